package store

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Bounds of a database that keeps silent without closing anything, beside answerWithin: of a new connection, and of the
// look at one that was idle.
const (
	connectWithin = 5 * time.Second
	pingWithin    = 3 * time.Second
)

// keepAlive finds an idle connection whose other end is gone within 30 s.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// dial opens connections on which no call waits longer than within for the other side; silent hears of each that did.
func dial(within time.Duration, silent func()) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &boundedConn{Conn: c, within: within, silent: silent}, nil
	}
}

// boundedConn gives each of its reads and writes a bound of their own, beside the deadline that is set on it.
type boundedConn struct {
	net.Conn
	within time.Duration
	silent func()

	mu       sync.Mutex
	deadline time.Time
}

// SetDeadline sets the deadline of the one who uses the connection.
func (c *boundedConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return c.Conn.SetDeadline(t)
}

func (c *boundedConn) Read(b []byte) (int, error) {
	return c.bounded(c.SetReadDeadline, c.Conn.Read, b)
}

func (c *boundedConn) Write(b []byte) (int, error) {
	return c.bounded(c.SetWriteDeadline, c.Conn.Write, b)
}

func (c *boundedConn) bounded(set func(time.Time) error, do func([]byte) (int, error), b []byte) (int, error) {
	own, err := c.bound(set)
	if err != nil {
		return 0, err
	}
	n, err := do(b)
	if own && errors.Is(err, os.ErrDeadlineExceeded) && !c.asked() {
		c.silent()
	}
	return n, err
}

// bound sets the nearer deadline; own tells that it is ours.
func (c *boundedConn) bound(set func(time.Time) error) (own bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	until := time.Now().Add(c.within)
	own = c.deadline.IsZero() || until.Before(c.deadline)
	if !own {
		until = c.deadline
	}
	return own, set(until)
}

// asked reports whether the deadline that was set from outside is over.
func (c *boundedConn) asked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.deadline.IsZero() && !c.deadline.After(time.Now())
}
