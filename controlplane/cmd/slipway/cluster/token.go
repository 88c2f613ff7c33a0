package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// audience is what tokens for the control plane are made for.
const audience = "slipway"

// Life of a token: the shortest that the API server makes. A new one is asked for when a fifth of it is left.
const (
	tokenLife = 10 * time.Minute
	renewAt   = tokenLife * 4 / 5
)

// kept is the token in use.
type kept struct {
	mu    sync.Mutex
	text  string
	until time.Time // when to ask for another
}

// Token asks the API server for a token of Config.ServiceAccount, made for the control plane alone.
func (c *Cluster) Token(ctx context.Context) (string, error) {
	c.token.mu.Lock()
	defer c.token.mu.Unlock()
	asked := time.Now()
	if asked.Before(c.token.until) {
		return c.token.text, nil
	}
	namespace, name := c.account()
	seconds := int64(tokenLife / time.Second)
	made, err := c.api.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("get a token of service account %s/%s: you may not. It takes a Role in namespace %s with apiGroups [\"\"], "+
			"resources [serviceaccounts/token], resourceNames [%s], verbs [create]", namespace, name, namespace, name)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("get a token of service account %s/%s: there is no such account", namespace, name)
	case err != nil:
		return "", fmt.Errorf("get a token of service account %s/%s: %w", namespace, name, err)
	}
	c.token.text, c.token.until = made.Status.Token, asked.Add(renewAt)
	return c.token.text, nil
}

func (c *Cluster) account() (namespace, name string) {
	if namespace, name, ok := strings.Cut(c.cfg.ServiceAccount, "/"); ok {
		return namespace, name
	}
	return c.home, c.cfg.ServiceAccount
}

// OwnToken says why the kubeconfig's own token cannot be shown to the control plane; nil where it can.
func (c *Cluster) OwnToken() error {
	const instead = "name a service account to be, with --as-service-account or SLIPWAY_SERVICE_ACCOUNT, or give a --token"
	has := c.rest.BearerToken != "" || c.rest.BearerTokenFile != "" || c.rest.ExecProvider != nil || c.rest.AuthProvider != nil
	switch {
	case !has:
		return errors.New("your kubeconfig holds no token, and the control plane cannot see a client certificate: " + instead)
	case !strings.HasPrefix(c.cfg.Service, "https:"):
		return errors.New("your kubeconfig's own token opens the API server and is not sent over plain HTTP: " + instead)
	}
	return nil
}
