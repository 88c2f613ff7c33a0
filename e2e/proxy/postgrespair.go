package proxy

import (
	"bufio"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// pgPair is one client's connection and the server's that belongs to it.
type pgPair struct {
	proxy  *Postgres
	client net.Conn
	server net.Conn
	in     *bufio.Reader // from the client
	out    *bufio.Reader // from the server
	gone   chan struct{} // closed when the pair is cut or over
	once   sync.Once

	// Of the requests' side alone.
	prepared map[string]string // SQL by the name of a prepared statement
	portals  map[string]string // SQL by the name of a portal

	mu          sync.Mutex
	transaction []string // the statements since the server was last idle
	inside      bool     // a transaction is open and has not failed
	mute        bool     // the server does what it was asked, and the client is not to hear of it
}

func newPair(p *Postgres, client net.Conn) *pgPair {
	return &pgPair{
		proxy: p, client: client, in: bufio.NewReader(client), gone: make(chan struct{}),
		prepared: map[string]string{}, portals: map[string]string{},
	}
}

// connect speaks for the server where a fault wants that, else opens the connection to it.
func (c *pgPair) connect() bool {
	if c.proxy.takes(PostgresRefuse) {
		c.cut()
		return false
	}
	if !c.flows() {
		return false
	}
	if c.proxy.takes(PostgresTooManyConnections) {
		c.refuse("53300", "sorry, too many clients already")
		return false
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	server, err := dialer.DialContext(c.proxy.ctx, "tcp", c.proxy.server())
	if err != nil {
		c.cut()
		return false
	}
	c.mu.Lock()
	c.server, c.out = server, bufio.NewReader(server)
	c.mu.Unlock()
	return c.begin()
}

// refuse answers the first message of a connection with a fatal error.
func (c *pgPair) refuse(code, text string) {
	back := pgproto3.NewBackend(c.in, c.client)
	for {
		m, err := back.ReceiveStartupMessage()
		if err != nil {
			return
		}
		if _, ok := m.(*pgproto3.StartupMessage); ok {
			break
		}
		if _, err := c.client.Write([]byte{'N'}); err != nil { // no TLS here
			return
		}
	}
	c.fatal(code, text)
}

func (c *pgPair) fatal(code, text string) {
	raw, err := (&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: text}).Encode(nil)
	if err == nil {
		_, _ = c.client.Write(raw) // it is closed next, heard or not
	}
}

// begin passes the messages without a type on: the start-up, and what may come before it.
func (c *pgPair) begin() bool {
	for {
		m, err := readUntyped(c.in)
		if err != nil {
			return false
		}
		if _, err := c.server.Write(m); err != nil {
			return false
		}
		if !asksForEncryption(m) {
			return true
		}
		answer, err := c.out.ReadByte()
		if err != nil {
			return false
		}
		if answer != 'N' {
			return false // a proxy that reads frames has no use for an encrypted connection
		}
		if _, err := c.client.Write([]byte{answer}); err != nil {
			return false
		}
	}
}

// pass hands on until either side is gone.
func (c *pgPair) pass() {
	var answers sync.WaitGroup
	answers.Go(func() {
		c.answers()
		c.close()
	})
	c.requests()
	c.close()
	answers.Wait()
}

// flows waits while there is silence; false means that the pair is over.
func (c *pgPair) flows() bool {
	for {
		held, changed := c.proxy.silence(c)
		if !held {
			return !c.over()
		}
		select {
		case <-changed:
		case <-c.gone:
			return false
		}
	}
}

func (c *pgPair) over() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// cut resets both sides.
func (c *pgPair) cut() {
	c.mu.Lock()
	for _, conn := range []net.Conn{c.client, c.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // else the other side sees an orderly end
		}
	}
	c.mu.Unlock()
	c.close()
}

func (c *pgPair) close() {
	c.once.Do(func() { close(c.gone) })
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.client.Close()
	if c.server != nil {
		_ = c.server.Close()
	}
}

// requests passes on what the client asks, one group of messages at a time: what ends with Sync, or one Query.
func (c *pgPair) requests() {
	var g group
	for {
		f, err := readFrame(c.in)
		if err != nil {
			return
		}
		c.note(&g, f)
		if !f.ends() {
			continue
		}
		if !c.flows() || !c.wait(c.proxy.delay()) || !c.ask(g) {
			return
		}
		g = group{}
	}
}

// note adds a frame to its group and remembers which SQL a name stands for.
func (c *pgPair) note(g *group, f frame) {
	g.raw = append(g.raw, f.raw...)
	switch f.kind {
	case 'Q':
		var m pgproto3.Query
		if m.Decode(f.body()) == nil {
			g.runs = append(g.runs, m.String)
		}
	case 'P':
		var m pgproto3.Parse
		if m.Decode(f.body()) == nil {
			c.prepared[m.Name] = m.Query
		}
	case 'B':
		var m pgproto3.Bind
		if m.Decode(f.body()) == nil {
			c.portals[m.DestinationPortal] = c.prepared[m.PreparedStatement]
		}
	case 'E':
		var m pgproto3.Execute
		if m.Decode(f.body()) == nil {
			g.runs = append(g.runs, c.portals[m.Portal])
		}
	}
}

// ask passes a group on, or does what a fault wants instead; false means that the pair is over.
func (c *pgPair) ask(g group) bool {
	if len(g.runs) > 0 {
		done, ok := c.breaks(g)
		if done || !ok {
			return ok
		}
	}
	_, err := c.server.Write(g.raw)
	return err == nil
}

// breaks looks for a fault that hits the group; done means that nothing is left to pass on.
func (c *pgPair) breaks(g group) (done, ok bool) {
	c.mu.Lock()
	c.transaction = append(c.transaction, g.runs...)
	all, inside := c.transaction, c.inside
	c.mu.Unlock()
	if g.commits() {
		if late, ok := c.proxy.lateness(all); ok {
			c.commitLater(g, late)
			return true, false
		}
	}
	switch {
	case g.commits() && c.proxy.takes(PostgresCutBeforeCommit, all...):
		c.cut()
		return true, false
	case g.commits() && c.proxy.takes(PostgresCutAfterCommit, all...):
		c.silence()
		return false, true
	case c.proxy.takes(PostgresShutdown, g.runs...):
		c.fatal("57P01", "terminating connection due to administrator command")
		return true, false
	case g.writes() && c.proxy.takes(PostgresReadOnly, g.runs...):
		return true, c.raise("25006", "cannot execute this in a read-only transaction")
	case inside && !g.commits() && c.proxy.takes(PostgresSerialization, g.runs...):
		return true, c.raise("40001", "could not serialize access due to concurrent update")
	}
	return false, true
}

// silence keeps what the server says from the client; once it is ready again the pair is cut.
func (c *pgPair) silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mute = true
}

// commitLater cuts the client and does the COMMIT after it, as the network may that held it back.
func (c *pgPair) commitLater(g group, late time.Duration) {
	c.silence()
	_ = c.client.Close() // what is left to be heard is not for it
	if !c.wait(late) {
		return
	}
	if _, err := c.server.Write(g.raw); err == nil {
		<-c.gone
	}
}

// raise makes the server fail the transaction with an error, so that its state is what the client believes.
func (c *pgPair) raise(code, text string) bool {
	raw, err := (&pgproto3.Query{String: "DO $$ BEGIN RAISE EXCEPTION '" + text + "' USING ERRCODE = '" + code + "'; END $$"}).Encode(nil)
	if err != nil {
		return false
	}
	_, err = c.server.Write(raw)
	return err == nil
}

// wait holds a request; false means that the pair is over.
func (c *pgPair) wait(d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.gone:
		return false
	}
}

// answers passes on what the server says.
func (c *pgPair) answers() {
	w := bufio.NewWriter(c.client)
	for {
		f, err := readFrame(c.out)
		if err != nil {
			_ = w.Flush() // the server's last words
			return
		}
		if !c.flows() || c.hear(f) {
			return
		}
		if _, err := w.Write(f.raw); err != nil {
			return
		}
		if c.out.Buffered() == 0 && w.Flush() != nil {
			return
		}
	}
}

// hear follows the state of the transaction; true means that the client hears no more.
func (c *pgPair) hear(f frame) (over bool) {
	const ready = 'Z'
	c.mu.Lock()
	mute := c.mute
	if f.kind == ready && len(f.body()) > 0 {
		c.inside = f.body()[0] == 'T'
		if f.body()[0] == 'I' {
			c.transaction = nil
		}
	}
	c.mu.Unlock()
	if !mute {
		return false
	}
	for f.kind != ready { // the server is to have done it
		next, err := readFrame(c.out)
		if err != nil {
			break
		}
		f = next
	}
	c.cut()
	return true
}
