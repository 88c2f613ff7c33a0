package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
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

// forwarded is a port of this machine that leads to the control plane.
type forwarded struct {
	address string
	cmd     *exec.Cmd
}

var forwardLine = regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+) `)

// forward opens it: no address of the cluster need be reachable from here.
func forward(ctx context.Context, c *cluster) (*forwarded, error) {
	args := []string{"-n", system, "port-forward", "--address=127.0.0.1", "service/" + product, ":http"}
	if c.kubeconfig != "" {
		args = append([]string{"--kubeconfig", c.kubeconfig}, args...)
	}
	f := &forwarded{cmd: exec.CommandContext(ctx, c.kubectl, args...)}
	var said bytes.Buffer
	f.cmd.Stderr = &said
	out, err := f.cmd.StdoutPipe()
	if err == nil {
		err = f.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("run kubectl port-forward: %w", err)
	}
	late := time.AfterFunc(forwardWithin, func() { _ = f.cmd.Process.Kill() }) // its end is seen below
	defer late.Stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := forwardLine.FindStringSubmatch(lines.Text()); m != nil {
			f.address = m[1]
			return f, nil
		}
	}
	_ = f.cmd.Process.Kill() // it may be gone already
	err = f.cmd.Wait()
	return nil, fmt.Errorf("run kubectl port-forward: %w: %s", err, bytes.TrimSpace(said.Bytes()))
}

func (f *forwarded) close() {
	_ = f.cmd.Process.Kill() // it may be gone already
	_ = f.cmd.Wait()         // it was killed
}

// verified is a client that takes nobody for the control plane who cannot show a certificate of its authority.
func verified(ctx context.Context, c *cluster) (*http.Client, error) {
	secret, err := c.api.CoreV1().Secrets(system).Get(ctx, tlsSecret, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("look for the authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		return nil, errors.New("secret " + tlsSecret + " holds no authority")
	}
	trusted := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: serviceName}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: trusted, DisableKeepAlives: true}, Timeout: submitWithin}, nil
}
