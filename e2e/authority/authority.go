// Package authority makes certificates for demonstrations and tests.
//
// Allowed imports: the standard library.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Life is how long a certificate is good.
const Life = 365 * 24 * time.Hour

// Pair is a server's certificate with its key and the authority that signed it, each in PEM.
type Pair struct{ Cert, Key, CA []byte }

// Make makes an authority and, signed by it, a certificate for names, which may be addresses. The authority's key is
// thrown away: nobody can sign anything else with it.
func Make(names ...string) (Pair, error) {
	var made Pair
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "slipway"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(Life),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	serial, err3 := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err := errors.Join(err1, err2, err3); err != nil {
		return made, fmt.Errorf("draw keys: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "slipway"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	caRaw, err1 := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	raw, err2 := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	keyRaw, err3 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2, err3); err != nil {
		return made, fmt.Errorf("sign a certificate: %w", err)
	}
	text := func(kind string, raw []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}) }
	return Pair{Cert: text("CERTIFICATE", raw), Key: text("PRIVATE KEY", keyRaw), CA: text("CERTIFICATE", caRaw)}, nil
}

// Fits reports whether the pair is whole and good for every name for a while longer.
func (p Pair) Fits(within time.Duration, names ...string) bool {
	block, _ := pem.Decode(p.Cert)
	roots := x509.NewCertPool()
	if block == nil || len(p.Key) == 0 || !roots.AppendCertsFromPEM(p.CA) {
		return false
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false
	}
	for _, name := range names {
		_, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: time.Now().Add(within)})
		if err != nil {
			return false
		}
	}
	return true
}
