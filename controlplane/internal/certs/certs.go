// Package certs keeps what TLS needs in step with its files: a certificate with its key, and the authority that runners
// trust. The files are read again every so often and compared by what is in them, so that any way of replacing them is
// seen: the kubelet's swap of a link, a copy in place, a tool that keeps the times.
//
// Allowed imports: the standard library.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// MaxCA bounds the authority: it travels in an environment variable, and the kernel takes 128 KiB for each.
const MaxCA = 64 << 10

// Config says which files. Cert and Key go together; what is empty is not used.
type Config struct {
	Cert, Key, CA string
	Every         time.Duration // between two readings
	Log           *slog.Logger
}

// Files is the last good content of the files.
type Files struct {
	cfg Config

	mu       sync.Mutex
	now      content
	standing Standing
	said     string // the last complaint
}

// content is what stands in the files, and what it means.
type content struct {
	cert, key, ca []byte
	pair          *tls.Certificate
}

// Standing is how the files and what is in use compare.
type Standing struct {
	Reloads, Failures int64
	Stale             bool // what is in use is older than the files, which cannot be used
	NotAfter          time.Time
}

// Open reads the files once and starts nothing: see Run.
func Open(c Config) (*Files, error) {
	f := &Files{cfg: c}
	first, err := f.read()
	if err != nil {
		return nil, err
	}
	f.use(first)
	return f, nil
}

// Run reads the files again until ctx is done.
func (f *Files) Run(ctx context.Context) error {
	if f.cfg.Cert == "" && f.cfg.CA == "" {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(f.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			f.look()
		}
	}
}

// look takes what has changed and can be used; what cannot leaves everything as it is.
func (f *Files) look() {
	found, err := f.read()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.standing.Failures++
		f.standing.Stale = true
		if f.said != err.Error() {
			f.said = err.Error()
			f.cfg.Log.Warn("the TLS files cannot be used; serving on with what they held before", "error", err, "not_after", f.standing.NotAfter)
		}
		return
	}
	f.standing.Stale, f.said = false, ""
	if bytes.Equal(found.cert, f.now.cert) && bytes.Equal(found.key, f.now.key) && bytes.Equal(found.ca, f.now.ca) {
		return
	}
	f.standing.Reloads++
	f.use(found)
	f.cfg.Log.Info("the TLS files have changed and are in use", "not_after", f.standing.NotAfter)
}

// use takes found; the caller holds the lock where others may look.
func (f *Files) use(found content) {
	f.now = found
	if found.pair != nil {
		f.standing.NotAfter = found.pair.Leaf.NotAfter
	}
}

func (f *Files) read() (content, error) {
	var c content
	var err error
	if f.cfg.Cert != "" {
		if c.cert, err = os.ReadFile(f.cfg.Cert); err != nil {
			return c, fmt.Errorf("read the certificate: %w", err)
		}
		if c.key, err = os.ReadFile(f.cfg.Key); err != nil {
			return c, fmt.Errorf("read the certificate's key: %w", err)
		}
		pair, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return c, fmt.Errorf("use %s with %s: %w", f.cfg.Cert, f.cfg.Key, err)
		}
		c.pair = &pair
	}
	if f.cfg.CA != "" {
		if c.ca, err = readAuthority(f.cfg.CA); err != nil {
			return c, err
		}
	}
	return c, nil
}

func readAuthority(file string) ([]byte, error) {
	raw, err := os.ReadFile(file)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the authority: %w", err)
	case len(raw) > MaxCA:
		return nil, fmt.Errorf("read the authority: %s has %d bytes, more than %d", file, len(raw), MaxCA)
	case !x509.NewCertPool().AppendCertsFromPEM(raw):
		return nil, fmt.Errorf("read the authority: %s holds no certificate in PEM", file)
	}
	return raw, nil
}

// Server is the configuration of a server; nil where there is no certificate.
func (f *Files) Server() *tls.Config {
	if f.cfg.Cert == "" {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: f.certificate}
}

func (f *Files) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now.pair == nil {
		return nil, errors.New("there is no certificate")
	}
	return f.now.pair, nil
}

// CA is the authority in PEM; empty where there is none.
func (f *Files) CA() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.now.ca)
}

// Standing tells how the files are doing.
func (f *Files) Standing() Standing {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.standing
}
