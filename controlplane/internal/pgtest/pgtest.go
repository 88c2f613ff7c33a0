// Package pgtest gives tests a migrated database each: one private server a test process, one template, and a clone
// of it for every test.
//
// Allowed imports: e2e/postgres, controlplane/internal/store, pgx, goleak.
package pgtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/e2e/postgres"
)

const template = "slipway_template"

var (
	once   sync.Once
	server *postgres.Server
	broken error
	clones atomic.Int64
	making sync.Mutex // two clones of one template at a time refuse each other
)

// Main runs the tests of a package, stops the server and fails where a goroutine is left. Call it from TestMain.
func Main(m *testing.M) {
	code := m.Run()
	if server != nil {
		if err := server.Stop(postgres.Fast); err != nil {
			fmt.Fprintln(os.Stderr, "stop the test server:", err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Server is the process's one server; it is started by the first test that needs it.
func Server(t testing.TB) *postgres.Server {
	t.Helper()
	once.Do(func() { broken = start() })
	if broken != nil {
		t.Fatal(broken)
	}
	return server
}

func start() (err error) {
	ctx := context.Background()
	if server, err = postgres.Start(ctx, postgres.Options{}); err != nil {
		return err
	}
	if err := run(ctx, "CREATE DATABASE "+template); err != nil {
		return err
	}
	return store.Migrate(ctx, server.URL(template), slog.New(slog.DiscardHandler))
}

// URL gives a fresh, migrated database of its own instance.
func URL(t testing.TB) string {
	t.Helper()
	url := fresh(t, " TEMPLATE "+template)
	if err := Exec(t.Context(), url, "UPDATE slipway.meta SET instance = gen_random_uuid()"); err != nil {
		t.Fatal(err)
	}
	return url
}

// TCP is the same database as url, over the loopback address.
func TCP(t testing.TB, url string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return Server(t).TCP(cfg.Database)
}

// Empty gives a fresh database without a schema.
func Empty(t testing.TB) string {
	t.Helper()
	return fresh(t, " TEMPLATE template0")
}

func fresh(t testing.TB, from string) string {
	t.Helper()
	Server(t)
	ctx := t.Context()
	name := fmt.Sprintf("test_%d", clones.Add(1))
	making.Lock()
	err := run(ctx, "CREATE DATABASE "+name+from)
	making.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return server.URL(name)
}

// New gives a Store on a fresh database; it is closed with the test. Run is not started.
func New(t testing.TB) *store.Store {
	t.Helper()
	return Open(t, store.Config{URL: URL(t), Replica: "test"})
}

// Open gives one more Store, as another replica would have it.
func Open(t testing.TB, cfg store.Config) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func run(ctx context.Context, sql string) error { return Exec(ctx, server.URL("postgres"), sql) }

// Exec runs one statement on a connection of its own.
func Exec(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the test server: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }() // it was used for one statement
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}
