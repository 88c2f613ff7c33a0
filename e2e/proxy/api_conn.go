package proxy

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// hush holds the bytes of every connection back while it is quiet.
type hush struct {
	mu    sync.Mutex
	quiet chan struct{} // nil: they pass; closed when they pass again
	open  map[*conn]bool
}

func newHush() *hush {
	return &hush{open: map[*conn]bool{}}
}

// silence holds every connection back until remove, those that are opened meanwhile too.
func (p *API) silence(f APIFault) (remove func()) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if p.gate.quiet == nil {
		p.gate.quiet = make(chan struct{})
		p.faults.count(f.Action, 1)
	}
	return p.gate.speak
}

func (h *hush) speak() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.quiet != nil {
		close(h.quiet)
		h.quiet = nil
	}
}

// sever resets every connection and tells how many they were.
func (h *hush) sever() int {
	all := h.now()
	for _, c := range all {
		c.reset()
	}
	return len(all)
}

// deaden lets what is open now pass nothing any more, and tells how many they were.
func (h *hush) deaden() int {
	all := h.now()
	for _, c := range all {
		c.dead.Store(true)
	}
	return len(all)
}

func (h *hush) now() []*conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.open))
}

// hushed accepts connections below the hush.
type hushed struct {
	net.Listener
	api *API
}

// Accept implements net.Listener.
func (l hushed) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, gate: l.api.gate, closed: make(chan struct{})}
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	c.gate.open[c] = true
	return c, nil
}

// conn is a client's connection, below TLS.
type conn struct {
	net.Conn
	gate   *hush
	dead   atomic.Bool
	once   sync.Once
	closed chan struct{}
}

// pass waits while the hush is quiet, but not longer than c is open.
func (c *conn) pass() error {
	for {
		if c.dead.Load() {
			<-c.closed
			return net.ErrClosed
		}
		c.gate.mu.Lock()
		quiet := c.gate.quiet
		c.gate.mu.Unlock()
		if quiet == nil {
			return nil
		}
		select {
		case <-quiet:
		case <-c.closed:
			return net.ErrClosed
		}
	}
}

// Read gives what came in once it may pass.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if held := c.pass(); held != nil {
		return 0, held
	}
	return n, err
}

// Write sends once it may pass.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// SetWriteDeadline is called when TLS says goodbye; a dead connection says nothing, and is closed.
func (c *conn) SetWriteDeadline(t time.Time) error {
	if c.dead.Load() {
		return c.Close()
	}
	return c.Conn.SetWriteDeadline(t)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		err = c.Conn.Close()
		c.gate.mu.Lock()
		defer c.gate.mu.Unlock()
		delete(c.gate.open, c)
	})
	return err
}

// reset closes the connection as a broken middlebox would: the peer sees a reset.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

type connKey struct{}

// withConn lets a handler find the connection of its request.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

func reset(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.reset()
	}
}
