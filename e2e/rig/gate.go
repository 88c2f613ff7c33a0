package rig

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Gate is the one address that users and runners call: it passes connections on to a replica that answers, in turn,
// and can be cut.
type Gate struct {
	Address string // host:port

	listener net.Listener
	ctx      context.Context
	stop     context.CancelFunc
	group    sync.WaitGroup

	mu       sync.Mutex
	replicas []string
	skipped  []string
	next     int
	cut      bool
	open     map[net.Conn]struct{}
}

func newGate(ctx context.Context, host string) (*Gate, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	g := &Gate{Address: l.Addr().String(), listener: l, open: map[net.Conn]struct{}{}}
	g.ctx, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	g.group.Go(g.accept)
	return g, nil
}

// Cut refuses every new connection and closes those that are open.
func (g *Gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = true
	for c := range g.open {
		_ = c.Close()
	}
}

// Mend lets connections through again.
func (g *Gate) Mend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = false
}

// Skip sends no new connection to these replicas, as a Service does with those that are not ready; without any, to all
// again.
func (g *Gate) Skip(addresses ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.skipped = addresses
}

func (g *Gate) close() {
	g.stop()
	_ = g.listener.Close()
	g.Cut()
	g.group.Wait()
}

func (g *Gate) add(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replicas = append(g.replicas, address)
}

func (g *Gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.group.Go(func() { g.pass(client) })
	}
}

func (g *Gate) pass(client net.Conn) {
	defer client.Close()
	server := g.dial()
	if server == nil || !g.hold(client, server) {
		return
	}
	defer g.release(client, server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
	<-done
}

func (g *Gate) dial() net.Conn {
	g.mu.Lock()
	first, skipped := g.next, g.skipped
	replicas := slices.DeleteFunc(slices.Clone(g.replicas), func(a string) bool { return slices.Contains(skipped, a) })
	g.next++
	g.mu.Unlock()
	dialer := net.Dialer{Timeout: 2 * time.Second}
	for i := range replicas {
		if c, err := dialer.DialContext(g.ctx, "tcp", replicas[(first+i)%len(replicas)]); err == nil {
			return c
		}
	}
	return nil
}

func (g *Gate) hold(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		if g.cut {
			_ = c.Close()
			continue
		}
		g.open[c] = struct{}{}
	}
	return !g.cut
}

func (g *Gate) release(conns ...net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(g.open, c)
	}
}
