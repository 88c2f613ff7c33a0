package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"slipway.dev/slipway/e2e/authority"
)

// APIOptions says between whom an API stands.
type APIOptions struct {
	Server    string // URL of the API server
	Authority []byte // that it is trusted by, in PEM
	Host      string // address to listen on; the port is chosen
	Seed      uint64 // of everything that is left to chance
}

// API stands between one client and the API server. It ends the client's TLS with a certificate of its own and passes
// requests on with the headers that they came with, so its client is who its bearer token says.
//
// Without a fault it changes nothing. Faults are added and taken away while it runs.
type API struct {
	Address string // host:port

	faults   *faults
	upstream *url.URL
	client   *http.Transport
	server   *http.Server
	gate     *hush
	pair     atomic.Pointer[tls.Certificate]
	ca       atomic.Pointer[[]byte]
	past     *past
	working  sync.RWMutex // held by each request
	ended    chan struct{}
}

// NewAPI listens, and serves until Close.
func NewAPI(ctx context.Context, o APIOptions) (*API, error) {
	upstream, err := url.Parse(o.Server)
	if err != nil {
		return nil, fmt.Errorf("read the API server's URL: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(o.Authority) {
		return nil, errors.New("read the API server's authority: it is no PEM")
	}
	p := &API{
		faults: newFaults(o.Seed), upstream: upstream, gate: newHush(), past: newPast(), ended: make(chan struct{}),
		client: &http.Transport{
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			ForceAttemptHTTP2: true, DisableCompression: true,
		},
	}
	if err := p.Certify(o.Host); err != nil {
		return nil, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(o.Host, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p.Address = l.Addr().String()
	p.server = &http.Server{
		Handler: http.HandlerFunc(p.serve), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		TLSConfig:   &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.certificate},
		ConnContext: withConn,
	}
	go func() {
		defer close(p.ended)
		_ = p.server.ServeTLS(hushed{l, p}, "", "") // ended by Close alone
	}()
	return p, nil
}

// URL is what the client's kubeconfig names.
func (p *API) URL() string { return "https://" + p.Address }

// CA is the authority of the certificate in use, in PEM.
func (p *API) CA() []byte { return *p.ca.Load() }

// Certify serves new connections with a new certificate of a new authority, for names.
func (p *API) Certify(names ...string) error {
	made, err := authority.Make(names...)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(made.Cert, made.Key)
	if err != nil {
		return fmt.Errorf("read a certificate: %w", err)
	}
	p.pair.Store(&pair)
	p.ca.Store(&made.CA)
	return nil
}

func (p *API) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.pair.Load(), nil }

// Close ends every connection and returns when the last request is over.
func (p *API) Close() {
	p.Clear()
	_ = p.server.Close()
	<-p.ended
	p.working.Lock() // the requests end with their connections
	defer p.working.Unlock()
	p.client.CloseIdleConnections()
}

// Add lets a fault happen from now on, until remove.
func (p *API) Add(f APIFault) (remove func()) {
	switch f.Action {
	case APISilentConnections:
		return p.silence(f)
	case APIDeadConnections:
		p.faults.count(f.Action, p.gate.deaden())
		return func() {}
	default:
		return p.faults.add(f)
	}
}

// Clear takes every fault away.
func (p *API) Clear() {
	p.faults.clear()
	p.gate.speak()
}

// Sever resets every open connection at once.
func (p *API) Sever() { p.faults.count(APISever, p.gate.sever()) }

// Counts tells how often each fault has happened: by action, and by status for a APIReply.
func (p *API) Counts() map[string]int { return p.faults.snapshot() }

// Requests counts what the client asked for, by APICall.
func (p *API) Requests() map[APICall]int { return p.faults.asked() }
