package rig

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"slipway.dev/slipway/e2e/authority"
)

func (r *Rig) scheme() string {
	if r.options.TLS {
		return "https://"
	}
	return "http://"
}

func (r *Rig) tlsFile(name string) string { return filepath.Join(r.dir, name) }

// Certificate makes a certificate that the replicas may serve with, of an authority of its own.
func (r *Rig) Certificate(t testing.TB) authority.Pair {
	t.Helper()
	made, err := authority.Make(r.Cluster.HostIP)
	if err != nil {
		t.Fatalf("make an authority: %v", err)
	}
	return made
}

// Certify puts a pair where the replicas read it; users of the rig trust its authority and no other from now on.
func (r *Rig) Certify(t testing.TB, p authority.Pair) {
	t.Helper()
	for _, file := range []struct {
		name string
		text []byte
	}{{"ca.crt", p.CA}, {"tls.crt", p.Cert}, {"tls.key", p.Key}} {
		if err := os.WriteFile(r.tlsFile(file.name), file.text, 0o600); err != nil {
			t.Fatalf("write %s: %v", file.name, err)
		}
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.CA) {
		t.Fatal("the authority is no PEM")
	}
	r.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}}
}
