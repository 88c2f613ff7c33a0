package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/e2e/authority"
)

// Names of TLS.
const (
	tlsSecret   = "slipway-tls"
	serviceName = "slipway." + system + ".svc"

	renewBefore   = 30 * 24 * time.Hour
	forwardWithin = 20 * time.Second
)

// serviceAddress makes the Service, and the namespace that it needs, before all else and gives its address: the
// certificate has to name it, since pods here call it by address.
func serviceAddress(ctx context.Context, c *cluster) (string, error) {
	all, err := render(c.overlay, nil, secrets{})
	if err != nil {
		return "", err
	}
	var first [][]byte
	for document := range bytes.SplitSeq(all, []byte("\n---\n")) {
		var is struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal(document, &is); err != nil {
			return "", fmt.Errorf("read what is to be applied: %w", err)
		}
		if is.Kind == "Namespace" && is.Metadata.Name == system || is.Kind == "Service" && is.Metadata.Name == product {
			first = append(first, document)
		}
	}
	if err := apply(ctx, c, bytes.Join(first, []byte("\n---\n")), nil); err != nil {
		return "", err
	}
	service, err := c.api.CoreV1().Services(system).Get(ctx, product, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("look for Slipway's Service: %w", err)
	}
	return service.Spec.ClusterIP, nil
}

// keptPair is the certificate of an earlier run if it is good for the Service as it is, or a new one.
func keptPair(ctx context.Context, c *cluster, address string) (authority.Pair, error) {
	names := []string{serviceName, product, "slipway." + system, serviceName + ".cluster.local", address}
	secret, err := c.api.CoreV1().Secrets(system).Get(ctx, tlsSecret, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return authority.Pair{}, fmt.Errorf("look for the certificate: %w", err)
	}
	if err == nil {
		kept := authority.Pair{Cert: secret.Data["tls.crt"], Key: secret.Data["tls.key"], CA: secret.Data["ca.crt"]}
		if kept.Fits(renewBefore, names...) {
			return kept, nil
		}
	}
	return authority.Make(names...)
}

// tunnel leads to the control plane by kubectl port-forward: no address of the cluster need be reachable from here.
type tunnel struct {
	cluster *cluster

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{} // closed once cmd has ended
	address string
}

var forwardLine = regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+) `)

// dial connects to the control plane. The forwarding ends with the first connection that breaks: it is begun again then.
func (t *tunnel) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open() {
		if err := t.begin(ctx); err != nil {
			return nil, err
		}
	}
	return (&net.Dialer{Timeout: forwardWithin}).DialContext(ctx, "tcp", t.address)
}

func (t *tunnel) open() bool {
	if t.cmd == nil {
		return false
	}
	select {
	case <-t.ended:
		return false
	default:
		return true
	}
}

// begin starts the forwarding, which outlives ctx, and waits until it stands.
func (t *tunnel) begin(ctx context.Context) error {
	args := []string{"-n", system, "port-forward", "--address=127.0.0.1", "service/" + product, ":http"}
	if t.cluster.kubeconfig != "" {
		args = append([]string{"--kubeconfig", t.cluster.kubeconfig}, args...)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), t.cluster.kubectl, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("run kubectl port-forward: %w", err)
	}
	found, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if m := forwardLine.FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
			}
		}
		_ = cmd.Wait() // what it said tells more
	}()
	t.cmd, t.ended = cmd, ended
	select {
	case t.address = <-found:
		return nil
	case <-ended:
		return fmt.Errorf("run kubectl port-forward: %s", bytes.TrimSpace(said.Bytes()))
	case <-ctx.Done():
	case <-time.After(forwardWithin):
	}
	t.stop()
	return errors.New("run kubectl port-forward: nothing after " + forwardWithin.String())
}

func (t *tunnel) stop() {
	_ = t.cmd.Process.Kill() // it may be gone already
	<-t.ended
}

func (t *tunnel) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open() {
		t.stop()
	}
}

// verified is a client that takes nobody for the control plane who cannot show a certificate of its authority.
func (t *tunnel) verified(ctx context.Context) (*http.Client, error) {
	secret, err := t.cluster.api.CoreV1().Secrets(system).Get(ctx, tlsSecret, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("look for the authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		return nil, errors.New("secret " + tlsSecret + " holds no authority")
	}
	return &http.Client{Timeout: submitWithin, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, DialContext: t.dial,
	}}, nil
}
