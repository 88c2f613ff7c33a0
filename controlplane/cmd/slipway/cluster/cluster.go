// Package cluster is what the command line does by way of a Kubernetes API server, with what the kubeconfig has: it
// reaches the control plane through the service proxy, asks for tokens, enables namespaces and releases pods.
//
// Allowed imports: the standard library, manifests, pkg/api and client-go; nothing else of the command line names
// client-go.
package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Where the manifests put the control plane.
const (
	SystemNamespace = "slipway-system"
	Service         = "https:slipway:http" // scheme, name and port, as the service proxy takes them
)

// TokenHeader carries the token for the control plane: the service proxy keeps Authorization to itself.
const TokenHeader = "Slipway-Authorization"

// ErrNoKubeconfig says that nothing tells which cluster is meant.
var ErrNoKubeconfig = errors.New("no kubeconfig")

// Config says which cluster, and as whom.
type Config struct {
	Kubeconfig, Context string // empty: as kubectl chooses
	Namespace           string // empty: that of the context
	SystemNamespace     string // of the control plane; empty: SystemNamespace
	Service             string // of the control plane; empty: Service
	// ServiceAccount is whom to be for the control plane, as [NAMESPACE/]NAME, by default in the context's namespace;
	// empty: who the kubeconfig says.
	ServiceAccount string
}

// Cluster is one cluster as a kubeconfig reaches it.
type Cluster struct {
	cfg     Config
	home    string // namespace of the context: where one's own account is, wherever one works
	rest    *rest.Config
	api     kubernetes.Interface
	objects dynamic.Interface
	token   kept
}

// Open reads the kubeconfig. It calls nobody.
func Open(c Config) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context})
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, ErrNoKubeconfig
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	home, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	c.Namespace = cmp.Or(c.Namespace, home)
	c.SystemNamespace, c.Service = cmp.Or(c.SystemNamespace, SystemNamespace), cmp.Or(c.Service, Service)
	config.UserAgent, config.ContentType, config.WarningHandler = "slipway-cli", "application/json", rest.NoWarnings{}
	made := &Cluster{cfg: c, rest: config, home: home}
	if made.api, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	if made.objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return made, nil
}

// Namespace is the one that was asked for, or that of the kubeconfig's context.
func (c *Cluster) Namespace() string { return c.cfg.Namespace }

// URL is where the API server's service proxy serves the control plane.
func (c *Cluster) URL() string {
	return strings.TrimRight(c.rest.Host, "/") + "/api/v1/namespaces/" + c.cfg.SystemNamespace + "/services/" + c.cfg.Service + "/proxy/"
}

// HTTP makes the client that goes to URL. With own, requests without a token for the control plane carry the
// kubeconfig's.
func (c *Cluster) HTTP(own bool) (*http.Client, error) {
	config := rest.CopyConfig(c.rest)
	// What wraps first is innermost: it sees the Authorization that a token file or a login plugin has set.
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &proxied{next: next, cluster: c, own: own} })
	made, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return made, nil
}
