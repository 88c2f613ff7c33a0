package proxy

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// PostgresKind is a way in which the way to Postgres breaks.
type PostgresKind string

// The kinds. Each is counted under its name when it took place.
const (
	// PostgresSilent passes nothing on, in either direction, and closes nothing; new connections are taken and stay
	// without an answer. What is held arrives once the silence is over, as it would after a partition.
	PostgresSilent PostgresKind = "postgres_silent"
	// PostgresDelay holds each request for a drawn part of For.
	PostgresDelay PostgresKind = "postgres_delay"
	// PostgresRefuse resets new connections.
	PostgresRefuse PostgresKind = "postgres_refuse"
	// PostgresCutBeforeCommit cuts a connection when it was asked to COMMIT, before that is passed on.
	PostgresCutBeforeCommit PostgresKind = "postgres_cut_before_commit"
	// PostgresCutAfterCommit cuts a connection once the server has done the COMMIT, before its answer is passed on.
	PostgresCutAfterCommit PostgresKind = "postgres_cut_after_commit"
	// PostgresLateCommit cuts the client when it asked for COMMIT, and passes that on a time of For later.
	PostgresLateCommit PostgresKind = "postgres_late_commit"
	// PostgresTooManyConnections answers new connections with 53300.
	PostgresTooManyConnections PostgresKind = "postgres_53300"
	// PostgresReadOnly answers statements that write with 25006.
	PostgresReadOnly PostgresKind = "postgres_25006"
	// PostgresShutdown answers a statement with 57P01 and closes, as a server does that is being stopped.
	PostgresShutdown PostgresKind = "postgres_57p01"
	// PostgresSerialization answers a statement of a transaction with 40001.
	PostgresSerialization PostgresKind = "postgres_40001"
	// PostgresCut is what CutAll does.
	PostgresCut PostgresKind = "postgres_cut"
)

// PostgresFault says what breaks and when. Its zero values do not restrict it.
type PostgresFault struct {
	Kind PostgresKind
	// Match is a part of the SQL that the fault waits for: of any statement of the transaction for the cuts around
	// COMMIT, of the statement itself for the answers. It means nothing to the others.
	Match string
	// Share is how many of the occasions are taken, drawn from the seed; of Silent, of the connections.
	Share float64
	// Times is after how many occasions the fault is over.
	Times int
	// For is the longest delay, and how late a COMMIT is.
	For time.Duration
}

// PostgresOptions say what NewPostgres makes.
type PostgresOptions struct {
	Upstream string // host:port of the server
	Seed     uint64 // of what is random
}

// Postgres is a proxy before a Postgres server, on a free port of the loopback address.
type Postgres struct {
	Address string // host:port

	listener net.Listener
	ctx      context.Context
	stop     context.CancelFunc
	group    sync.WaitGroup

	mu       sync.Mutex
	upstream string
	random   *rand.Rand
	faults   []*setFault
	changed  chan struct{} // closed when the faults change
	open     map[*pgPair]struct{}
	counts   map[string]int
}

// setFault is a fault with what it has done.
type setFault struct {
	PostgresFault
	done  int
	drawn map[*pgPair]bool // of Silent: who is hit
}

// NewPostgres opens the proxy; Close ends it.
func NewPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the proxy: %w", err)
	}
	p := &Postgres{
		Address: l.Addr().String(), listener: l, upstream: o.Upstream,
		random:  rand.New(rand.NewPCG(o.Seed, o.Seed)),
		changed: make(chan struct{}), open: map[*pgPair]struct{}{}, counts: map[string]int{},
	}
	p.ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.group.Go(p.accept)
	return p, nil
}

// Close ends the proxy and every connection through it.
func (p *Postgres) Close() {
	p.stop()
	_ = p.listener.Close()
	p.cut()
	p.group.Wait()
}

// URL is a server's URL with the proxy in the place of the server.
func (p *Postgres) URL(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("read the server's URL: %w", err)
	}
	u.Host = p.Address
	return u.String(), nil
}

// Redirect sends new connections to another server.
func (p *Postgres) Redirect(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = upstream
}

// Set puts these faults in the place of those that were set; without any, all is well again.
func (p *Postgres) Set(faults ...PostgresFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
	for _, f := range faults {
		p.faults = append(p.faults, &setFault{PostgresFault: f, drawn: map[*pgPair]bool{}})
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// CutAll resets every open connection.
func (p *Postgres) CutAll() {
	n := p.cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[string(PostgresCut)] += n
}

// Counts says how often each fault took place: of Silent how many connections it held, of CutAll how many it cut.
func (p *Postgres) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Connections is how many connections are open.
func (p *Postgres) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

func (p *Postgres) cut() int {
	p.mu.Lock()
	pairs := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	for _, c := range pairs {
		c.cut()
	}
	return len(pairs)
}

func (p *Postgres) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.serve(client) })
	}
}

func (p *Postgres) serve(client net.Conn) {
	c := newPair(p, client)
	p.mu.Lock()
	p.open[c] = struct{}{}
	p.mu.Unlock()
	defer func() {
		c.close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, c)
	}()
	if p.ctx.Err() == nil && c.connect() {
		c.pass()
	}
}

func (p *Postgres) server() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstream
}

// takes reports whether a fault of this kind takes place now, for a transaction or statement of this SQL, and counts it.
func (p *Postgres) takes(kind PostgresKind, sql ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.occasion(kind, sql) != nil
}

// lateness is how much later a COMMIT is passed on.
func (p *Postgres) lateness(sql []string) (late time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.occasion(PostgresLateCommit, sql); f != nil {
		return f.For, true
	}
	return 0, false
}

// delay is how long to hold a request.
func (p *Postgres) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.occasion(PostgresDelay, nil)
	if f == nil || f.For <= 0 {
		return 0
	}
	return time.Duration(p.random.Int64N(int64(f.For)) + 1)
}

func (p *Postgres) occasion(kind PostgresKind, sql []string) *setFault {
	for _, f := range p.faults {
		if f.Kind != kind || f.Times > 0 && f.done >= f.Times {
			continue
		}
		if f.Match != "" && len(sql) > 0 && !slices.ContainsFunc(sql, func(s string) bool { return strings.Contains(s, f.Match) }) {
			continue
		}
		if f.Share > 0 && p.random.Float64() >= f.Share {
			continue
		}
		f.done++
		p.counts[string(kind)]++
		return f
	}
	return nil
}

// silence reports whether c is held, and gives what is closed when that may have changed.
func (p *Postgres) silence(c *pgPair) (held bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.Kind != PostgresSilent {
			continue
		}
		hit, known := f.drawn[c]
		if !known {
			hit = (f.Times == 0 || f.done < f.Times) && (f.Share == 0 || p.random.Float64() < f.Share)
			f.drawn[c] = hit
			if hit {
				f.done++
				p.counts[string(PostgresSilent)]++
			}
		}
		held = held || hit
	}
	return held, p.changed
}
