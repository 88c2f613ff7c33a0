package hollow

import (
	"context"
	"net"
	"sync"
	"time"
)

// way is a node's way to the control plane: it passes connections on, until it is silenced. Then nothing passes and
// nothing is closed, as behind a cable that was pulled; what was held arrives when the silence is over.
type way struct {
	address string

	target   string
	listener net.Listener
	ctx      context.Context
	stop     context.CancelFunc
	group    sync.WaitGroup

	mu     sync.Mutex
	silent chan struct{} // closed when the silence is over; nil while there is none
}

func newWay(ctx context.Context, host, target string) (*way, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	w := &way{address: l.Addr().String(), target: target, listener: l}
	w.ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.group.Go(w.accept)
	return w, nil
}

func (w *way) close() {
	w.stop()
	_ = w.listener.Close() // nobody calls any more
	w.group.Wait()
}

func (w *way) silence(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case on && w.silent == nil:
		w.silent = make(chan struct{})
	case !on && w.silent != nil:
		close(w.silent)
		w.silent = nil
	}
}

// open waits for the end of a silence; false means that the way is closed.
func (w *way) open() bool {
	w.mu.Lock()
	silent := w.silent
	w.mu.Unlock()
	if silent == nil {
		return w.ctx.Err() == nil
	}
	select {
	case <-silent:
		return w.ctx.Err() == nil
	case <-w.ctx.Done():
		return false
	}
}

func (w *way) accept() {
	for {
		c, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.group.Go(func() { w.carry(c) })
	}
}

func (w *way) carry(client net.Conn) {
	defer func() { _ = client.Close() }() // both ends are done
	if !w.open() {
		return
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	server, err := dialer.DialContext(w.ctx, "tcp", w.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }() // as above
	release := context.AfterFunc(w.ctx, func() {
		_ = client.Close() // wakes the reads
		_ = server.Close()
	})
	defer release()
	var back sync.WaitGroup
	back.Go(func() { w.pass(client, server) })
	w.pass(server, client)
	back.Wait()
}

// pass copies one direction to its end.
func (w *way) pass(to, from net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if !w.open() {
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				_ = from.Close() // the other direction ends too
				return
			}
		}
		if err != nil {
			if half, ok := to.(*net.TCPConn); ok {
				_ = half.CloseWrite() // the peer may have gone before
			}
			return
		}
	}
}
