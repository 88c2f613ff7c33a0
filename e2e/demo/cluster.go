package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/e2e/cluster/local"
)

// cluster is where the demonstration runs.
type cluster struct {
	local      *local.Cluster // nil: the one of the current kubeconfig
	kubectl    string
	kubeconfig string // empty: kubectl's own choice
	rest       *rest.Config
	api        kubernetes.Interface
	overlay    string
}

// connect brings the local cluster up, or takes the current one.
func connect(ctx context.Context, s settings, log *progress) (*cluster, error) {
	if s.current {
		return current(ctx, log)
	}
	started, err := local.Up(ctx, local.Options{Name: cmp.Or(s.name, "demo"), Profile: local.Node, Log: log.out})
	if err != nil {
		return nil, err
	}
	c := &cluster{local: started, kubectl: started.Kubectl, kubeconfig: started.Kubeconfig, overlay: "overlays/local"}
	config, err := clientcmd.BuildConfigFromFlags("", started.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", started.Kubeconfig, err)
	}
	return c, c.dial(config)
}

func current(ctx context.Context, log *progress) (*cluster, error) {
	c := &cluster{kubectl: "kubectl", overlay: "overlays/current"}
	if _, err := exec.LookPath(c.kubectl); err != nil {
		return nil, fmt.Errorf("CLUSTER=current needs kubectl: %w", err)
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the current kubeconfig: %w", err)
	}
	if err := c.dial(config); err != nil {
		return nil, err
	}
	version, err := c.api.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("reach the cluster of the current kubeconfig: %w", err)
	}
	log.say("cluster of the current kubeconfig: Kubernetes %s", version.GitVersion)
	return c, ctx.Err()
}

func (c *cluster) dial(config *rest.Config) error {
	config.QPS = -1
	var err error
	c.rest = config
	if c.api, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client of the cluster: %w", err)
	}
	return nil
}

// kubectlRun runs kubectl with text as its standard input and gives what it prints.
func (c *cluster) kubectlRun(ctx context.Context, input []byte, args ...string) (string, error) {
	if c.kubeconfig != "" {
		args = append([]string{"--kubeconfig", c.kubeconfig}, args...)
	}
	cmd := exec.CommandContext(ctx, c.kubectl, args...)
	cmd.Stdin = bytes.NewReader(input)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run kubectl %s: %w: %s", verb(args), err, strings.TrimSpace(complaints.String()))
	}
	return out.String(), nil
}

// verb finds the first word that is neither a flag nor the value of one.
func verb(args []string) string {
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") && (i == 0 || args[i-1] != "--kubeconfig" && args[i-1] != "-n") {
			return arg
		}
	}
	return strings.Join(args, " ")
}
