package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"slipway.dev/slipway/controlplane/cmd/slipway/cluster"
	"slipway.dev/slipway/pkg/client"
)

// reach is where the control plane is and as whom it is called: at a URL, or by way of a cluster.
type reach struct {
	server, token, tokenFile string

	kubeconfig, context, system, service, account string
	opened                                        *cluster.Cluster
}

func (c *cli) reachFlags(f *pflag.FlagSet) {
	f.StringVar(&c.server, "server", os.Getenv("SLIPWAY_SERVER"), "URL of the control plane; empty: by way of the cluster (SLIPWAY_SERVER)")
	f.StringVar(&c.token, "token", "", "bearer token, as kubectl create token NAME --audience slipway prints it (SLIPWAY_TOKEN)")
	f.StringVar(&c.tokenFile, "token-file", "", "file with the bearer token, read again for each request")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "path of the kubeconfig (KUBECONFIG)")
	f.StringVar(&c.context, "context", "", "context of the kubeconfig")
	f.StringVar(&c.account, "as-service-account", os.Getenv("SLIPWAY_SERVICE_ACCOUNT"),
		"service account to be for Slipway, as [NAMESPACE/]NAME (SLIPWAY_SERVICE_ACCOUNT)")
	f.StringVar(&c.system, "system-namespace", cmp.Or(os.Getenv("SLIPWAY_SYSTEM_NAMESPACE"), cluster.SystemNamespace),
		"namespace of the control plane (SLIPWAY_SYSTEM_NAMESPACE)")
	f.StringVar(&c.service, "service", cmp.Or(os.Getenv("SLIPWAY_SERVICE"), cluster.Service),
		"service of the control plane as SCHEME:NAME:PORT (SLIPWAY_SERVICE)")
}

// connect makes the client: of --server, or else by way of the cluster.
func (c *cli) connect(ctx context.Context) (*client.Client, error) {
	config := client.Config{Server: c.server, Token: c.bearer()}
	if c.server == "" {
		var err error
		if config, err = c.byCluster(ctx, config.Token); err != nil {
			return nil, err
		}
	}
	made, err := client.New(config)
	if err != nil {
		return nil, usageError{err}
	}
	return made, nil
}

// cluster opens the kubeconfig once.
func (c *cli) cluster() (*cluster.Cluster, error) {
	if c.opened != nil {
		return c.opened, nil
	}
	opened, err := cluster.Open(cluster.Config{
		Kubeconfig: c.kubeconfig, Context: c.context, Namespace: c.namespace,
		SystemNamespace: c.system, Service: c.service, ServiceAccount: c.account,
	})
	if errors.Is(err, cluster.ErrNoKubeconfig) {
		err = usageError{errors.New("say where the control plane is: --server or SLIPWAY_SERVER, or a kubeconfig of its cluster, with --kubeconfig or KUBECONFIG")}
	}
	c.opened = opened
	return opened, err
}

// byCluster reaches the control plane through the service proxy, with the token that was given, one of the service
// account, or the kubeconfig's own.
func (c *cli) byCluster(ctx context.Context, token func(context.Context) (string, error)) (client.Config, error) {
	config := client.Config{Token: token, TokenHeader: cluster.TokenHeader}
	through, err := c.cluster()
	if err != nil {
		return config, err
	}
	own := false
	switch {
	case token != nil:
	case c.account != "":
		config.Token = through.Token
		if _, err := through.Token(ctx); err != nil { // here, where it is not taken for trouble that goes by
			return config, err
		}
	default:
		if err := through.OwnToken(); err != nil {
			return config, usageError{err}
		}
		own = true
	}
	config.Server = through.URL()
	config.HTTP, err = through.HTTP(own)
	return config, err
}

// bearer is where a token that was given comes from; nil where none was.
func (c *cli) bearer() func(context.Context) (string, error) {
	switch {
	case c.token != "":
		return client.StaticToken(c.token)
	case c.tokenFile != "":
		return func(context.Context) (string, error) {
			raw, err := os.ReadFile(c.tokenFile)
			return strings.TrimSpace(string(raw)), err
		}
	case os.Getenv("SLIPWAY_TOKEN") != "":
		return client.StaticToken(os.Getenv("SLIPWAY_TOKEN"))
	}
	return nil
}

// inNamespace is the namespace that was asked for, or that of the kubeconfig's context; empty where there is neither.
func (c *cli) inNamespace() (string, error) {
	if c.namespace != "" || c.server != "" {
		return c.namespace, nil
	}
	through, err := c.cluster()
	if err != nil {
		return "", err
	}
	return through.Namespace(), nil
}
