package local

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// certLife outlasts any test of clocks; a cluster is thrown away long before.
const certLife = 10 * 365 * 24 * time.Hour

// identity is one certificate to be made: who the holder is, or which names
// and addresses it serves. Every one may be used by clients and servers.
type identity struct {
	file   string
	name   string   // common name: the user
	groups []string // organisations: the groups
	dns    []string
	ips    []netip.Addr
}

// identities lists every certificate that a cluster needs.
func identities(r record) []identity {
	list := []identity{
		{file: "admin", name: "admin", groups: []string{"system:masters"}},
		{file: "controller-manager", name: "system:kube-controller-manager"},
		{file: "etcd-client", name: "etcd-client"},
		{file: "front-proxy", name: "front-proxy-client"},
		{
			file: "server", name: "kube-apiserver",
			dns: []string{
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local",
			},
			ips: []netip.Addr{r.Address, netip.MustParseAddr("127.0.0.1"), r.servicePrefix().Addr().Next()},
		},
	}
	if r.Profile == Fake {
		list = append(list, identity{file: "scheduler", name: "system:kube-scheduler"})
	}
	if r.Profile == Node {
		node := r.cluster("").NodeName
		list = append(
			list,
			identity{file: "scheduler", name: "system:kube-scheduler"},
			identity{file: "proxy", name: "system:kube-proxy"},
			identity{file: "kubelet", name: "system:node:" + node, groups: []string{"system:nodes"}},
			identity{file: "kubelet-client", name: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}},
			identity{file: "kubelet-server", name: node, dns: []string{node}, ips: []netip.Addr{r.Address}},
		)
	}
	return list
}

// ensurePKI makes the authority, all certificates and the key that signs
// service account tokens, in one step, unless they are there.
func (c *Cluster) ensurePKI(now time.Time) error {
	if isFolder(c.path("pki")) {
		return nil
	}
	partial := c.path("pki.partial")
	if err := errors.Join(os.RemoveAll(partial), os.Mkdir(partial, 0o700)); err != nil {
		return fmt.Errorf("prepare certificates: %w", err)
	}
	ca, err := newAuthority(now)
	if err != nil {
		return err
	}
	if err := ca.write(filepath.Join(partial, "ca")); err != nil {
		return err
	}
	for _, id := range identities(c.record) {
		cert, err := ca.issue(id, now)
		if err != nil {
			return err
		}
		if err := cert.write(filepath.Join(partial, id.file)); err != nil {
			return err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make service account key: %w", err)
	}
	if err := writeKey(filepath.Join(partial, "service-account"), key); err != nil {
		return err
	}
	if err := os.Rename(partial, c.path("pki")); err != nil {
		return fmt.Errorf("publish certificates: %w", err)
	}
	return nil
}

type certificate struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(now time.Time) (certificate, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "slipway-local"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	return sign(template, nil, now)
}

func (cert certificate) issue(id identity, now time.Time) (certificate, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: id.name, Organization: id.groups},
		DNSNames:    id.dns,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, ip := range id.ips {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	return sign(template, &cert, now)
}

// sign completes the template and signs it; without a parent, by itself.
func sign(template *x509.Certificate, parent *certificate, now time.Time) (certificate, error) {
	fail := func(err error) (certificate, error) {
		return certificate{}, fmt.Errorf("make certificate %s: %w", template.Subject.CommonName, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fail(err)
	}
	template.NotBefore, template.NotAfter = now.Add(-24*time.Hour), now.Add(certLife)
	signer := certificate{template, key}
	if parent != nil {
		signer = *parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, key.Public(), signer.key)
	if err != nil {
		return fail(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return fail(err)
	}
	return certificate{cert, key}, nil
}

func (cert certificate) write(base string) error {
	raw := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.cert.Raw})
	if err := writeFile(base+".crt", raw); err != nil {
		return err
	}
	return writeKey(base, cert.key)
}

func writeKey(base string, key *ecdsa.PrivateKey) error {
	// Kubernetes reads service account keys in this encoding only.
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	return writeFile(base+".key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// writeKubeconfigs gives each client its credentials in one file that can be
// copied elsewhere.
func (c *Cluster) writeKubeconfigs() error {
	clients := map[string]string{c.path("admin.kubeconfig"): "admin"}
	for _, client := range []string{"controller-manager", "scheduler", "proxy", "kubelet"} {
		if _, err := os.Stat(c.path("pki", client+".crt")); err == nil {
			clients[c.path("config", client+".kubeconfig")] = client
		}
	}
	for file, client := range clients {
		var encoded [3]string
		for i, name := range []string{"ca.crt", client + ".crt", client + ".key"} {
			raw, err := os.ReadFile(c.path("pki", name))
			if err != nil {
				return fmt.Errorf("write kubeconfig: %w", err)
			}
			encoded[i] = base64.StdEncoding.EncodeToString(raw)
		}
		text := fmt.Sprintf(kubeconfig, encoded[0], c.APIServer, encoded[1], encoded[2], "slipway-"+c.Name)
		if err := writeFile(file, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: %[5]s
  cluster: {certificate-authority-data: %[1]s, server: "%[2]s"}
users:
- name: %[5]s
  user: {client-certificate-data: %[3]s, client-key-data: %[4]s}
contexts:
- name: %[5]s
  context: {cluster: %[5]s, user: %[5]s}
current-context: %[5]s
`
