package proxy

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"slipway.dev/slipway/e2e/postgres"
)

// behind is a server with a table n(i), and a proxy before it.
type behind struct {
	*Postgres
	server *postgres.Server
	url    string    // through the proxy
	direct *pgx.Conn // past it
}

func startPostgres(t *testing.T) behind {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(postgres.Fast); err != nil {
			t.Error(err)
		}
	})
	b := behind{server: server, direct: connect(t, server.URL("postgres"))}
	if _, err := b.direct.Exec(t.Context(), "CREATE TABLE n (i int)"); err != nil {
		t.Fatal(err)
	}
	if b.Postgres, err = NewPostgres(t.Context(), PostgresOptions{Upstream: server.Address(), Seed: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	b.url = b.through(t, server)
	return b
}

// through is the URL of a server that the proxy is to reach.
func (b behind) through(t *testing.T, server *postgres.Server) string {
	t.Helper()
	url, err := b.URL(server.TCP("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	return url
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// add inserts a row in a transaction of its own.
func add(ctx context.Context, c *pgx.Conn, i int) error {
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO n VALUES ($1)", i)
		return err
	})
}

func has(t *testing.T, direct *pgx.Conn, i int) bool {
	t.Helper()
	var found bool
	if err := direct.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM n WHERE i = $1)", i).Scan(&found); err != nil {
		t.Fatal(err)
	}
	return found
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != code {
		t.Fatalf("error %v, want SQLSTATE %s", err, code)
	}
}

func wantCount(t *testing.T, p behind, kind PostgresKind, n int) {
	t.Helper()
	if got := p.Counts()[string(kind)]; got != n {
		t.Fatalf("%s was counted %d times, want %d", kind, got, n)
	}
}

func TestACutAroundCommitFallsOnTheSideThatWasAskedForAndOnTheTransactionThatWasNamed(t *testing.T) {
	p := startPostgres(t)
	for _, c := range []struct {
		kind PostgresKind
		kept bool
	}{{PostgresCutBeforeCommit, false}, {PostgresCutAfterCommit, true}} {
		p.Set(PostgresFault{Kind: c.kind, Match: "INSERT INTO n", Times: 1})
		conn := connect(t, p.url)
		if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "SELECT 1")
			return err
		}); err != nil {
			t.Fatalf("%s hit another transaction: %v", c.kind, err)
		}
		i := len(c.kind)
		if err := add(t.Context(), conn, i); err == nil || !conn.IsClosed() {
			t.Fatalf("%s: the transaction ended with %v", c.kind, err)
		}
		if has(t, p.direct, i) != c.kept {
			t.Fatalf("%s: the row is there: %t", c.kind, !c.kept)
		}
		wantCount(t, p, c.kind, 1)
		if err := add(t.Context(), connect(t, p.url), 0); err != nil {
			t.Fatalf("%s: it goes on after its times are over: %v", c.kind, err)
		}
	}
}

func TestACommitCanComeLaterThanItsClientBelieves(t *testing.T) {
	p := startPostgres(t)
	p.Set(PostgresFault{Kind: PostgresLateCommit, For: 200 * time.Millisecond, Times: 1})
	if err := add(t.Context(), connect(t, p.url), 1); err == nil {
		t.Fatal("the client heard of its commit")
	}
	if has(t, p.direct, 1) {
		t.Fatal("the commit was not late")
	}
	for deadline := time.Now().Add(10 * time.Second); !has(t, p.direct, 1); {
		if time.Now().After(deadline) {
			t.Fatal("the commit never came")
		}
	}
}

func TestASilentConnectionIsHeldAndThenGoesOnWhereItWas(t *testing.T) {
	p := startPostgres(t)
	conn := connect(t, p.url)
	p.Set(PostgresFault{Kind: PostgresSilent})
	ended := make(chan error, 1)
	go func() { ended <- add(t.Context(), conn, 1) }()
	waiting, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if c, err := pgx.Connect(waiting, p.url); err == nil {
		_ = c.Close(t.Context())
		t.Fatal("a new connection was answered")
	}
	select {
	case err := <-ended:
		t.Fatalf("a held transaction ended: %v", err)
	default:
	}
	p.Set()
	if err := <-ended; err != nil || !has(t, p.direct, 1) {
		t.Fatalf("after the silence: %v", err)
	}
	wantCount(t, p, PostgresSilent, 2)
}

func TestAShareOfTheConnectionsIsSilent(t *testing.T) {
	p := startPostgres(t)
	first, second := connect(t, p.url), connect(t, p.url)
	p.Set(PostgresFault{Kind: PostgresSilent, Times: 1})
	waiting, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := first.Ping(waiting); err == nil {
		t.Fatal("the first connection was answered")
	}
	if err := second.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAnswersInTheServersPlaceLookLikeItsOwn(t *testing.T) {
	p := startPostgres(t)
	p.Set(PostgresFault{Kind: PostgresTooManyConnections, Times: 1})
	_, err := pgx.Connect(t.Context(), p.url)
	wantCode(t, err, "53300")
	conn := connect(t, p.url)
	for code, kind := range map[string]PostgresKind{"25006": PostgresReadOnly, "40001": PostgresSerialization} {
		p.Set(PostgresFault{Kind: kind, Match: "INSERT", Times: 1})
		wantCode(t, add(t.Context(), conn, 2), code)
		if err := add(t.Context(), conn, 3); err != nil {
			t.Fatalf("after %s the connection is of no use: %v", code, err)
		}
		wantCount(t, p, kind, 1)
	}
	p.Set(PostgresFault{Kind: PostgresReadOnly})
	if err := conn.Ping(t.Context()); err != nil {
		t.Fatalf("a read was refused as a write: %v", err)
	}
	p.Set(PostgresFault{Kind: PostgresShutdown, Times: 1})
	wantCode(t, add(t.Context(), conn, 2), "57P01")
	if has(t, p.direct, 2) {
		t.Fatal("a refused row is there")
	}
	wantCount(t, p, PostgresShutdown, 1)
}

func TestAFailedTransactionFailsOnTheServerToo(t *testing.T) {
	p := startPostgres(t)
	conn := connect(t, p.url)
	p.Set(PostgresFault{Kind: PostgresSerialization, Times: 1, Match: "INSERT"})
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), "INSERT INTO n VALUES (1)")
	wantCode(t, err, "40001")
	_, err = tx.Exec(t.Context(), "INSERT INTO n VALUES (1)")
	wantCode(t, err, "25P02")
}

func TestRefusedCutAndRedirected(t *testing.T) {
	p := startPostgres(t)
	conn := connect(t, p.url)
	p.Set(PostgresFault{Kind: PostgresRefuse, Times: 1})
	if c, err := pgx.Connect(t.Context(), p.url); err == nil {
		_ = c.Close(t.Context())
		t.Fatal("a refused connection was answered")
	}
	wantCount(t, p, PostgresRefuse, 1)
	if err := conn.Ping(t.Context()); err != nil {
		t.Fatalf("a connection that was open before was refused: %v", err)
	}
	p.CutAll()
	if err := conn.Ping(t.Context()); err == nil {
		t.Fatal("a cut connection was answered")
	}
	wantCount(t, p, PostgresCut, 1)

	other := startPostgres(t)
	p.Redirect(other.server.Address())
	if err := add(t.Context(), connect(t, p.through(t, other.server)), 9); err != nil {
		t.Fatal(err)
	}
	if has(t, p.direct, 9) || !has(t, other.direct, 9) {
		t.Fatal("the row is not where the proxy was sent to")
	}
}

func TestADelayIsDrawnFromTheSeed(t *testing.T) {
	p := startPostgres(t)
	conn := connect(t, p.url)
	p.Set(PostgresFault{Kind: PostgresDelay, For: 50 * time.Millisecond, Times: 3})
	for range 5 {
		if err := conn.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantCount(t, p, PostgresDelay, 3)
	draws := func() (out []time.Duration) {
		q, err := NewPostgres(t.Context(), PostgresOptions{Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		q.Set(PostgresFault{Kind: PostgresDelay, For: time.Hour})
		for range 20 {
			out = append(out, q.delay())
		}
		return out
	}
	first, second := draws(), draws()
	for i := range first {
		if first[i] != second[i] {
			t.Fatalf("draw %d is %v and then %v", i, first[i], second[i])
		}
	}
}

func TestNotificationsPassWhileNothingIsAsked(t *testing.T) {
	p := startPostgres(t)
	conn := connect(t, p.url)
	if _, err := conn.Exec(t.Context(), "LISTEN c"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.direct.Exec(t.Context(), "NOTIFY c, 'x'"); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.WaitForNotification(t.Context()); err != nil || n.Payload != "x" {
		t.Fatalf("heard %v, %v", n, err)
	}
}
