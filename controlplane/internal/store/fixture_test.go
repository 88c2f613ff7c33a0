package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// database is a Store on a fresh database, with plain SQL for what a test looks at from outside.
type database struct {
	*store.Store
	t   *testing.T
	url string
}

func newDatabase(t *testing.T) database {
	t.Helper()
	url := pgtest.URL(t)
	return database{pgtest.Open(t, store.Config{URL: url, Replica: "a"}), t, url}
}

// running starts Run for the length of the test.
func (d database) running() database {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	d.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
	})
	return d
}

// value runs a query of one value.
func value[T any](d database, sql string, args ...any) (v T) {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close(d.t.Context())
	if err := conn.QueryRow(d.t.Context(), sql, args...).Scan(&v); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// sql runs a statement.
func (d database) sql(statement string) {
	d.t.Helper()
	if err := pgtest.Exec(d.t.Context(), d.url, statement); err != nil {
		d.t.Fatal(err)
	}
}

// item is a strict Task of a lane; an empty lane makes it parallel.
func item(lane string) store.Item {
	mode := task.Strict
	if lane == "" {
		mode = task.Parallel
	}
	return store.Item{Task: task.Task{
		Kind: "volume.resize", Namespace: "ns", Lane: lane, Mode: mode, Queue: "default", Class: task.Normal,
		Params: json.RawMessage(`{"size":"1Gi"}`), Spec: task.DefaultSpec(),
	}}
}

func (i itemWith) of(lane string) store.Item {
	it := item(lane)
	i(&it)
	return it
}

type itemWith func(*store.Item)

func (d database) enqueue(items ...store.Item) []store.Enqueued {
	d.t.Helper()
	out, err := d.Enqueue(d.t.Context(), store.Batch{Caller: "alice", Items: items})
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

func (d database) one(it store.Item) task.Task {
	d.t.Helper()
	return d.enqueue(it)[0].Task
}

func (d database) claim(limit int) []store.Claimed {
	d.t.Helper()
	r, err := d.Claim(d.t.Context(), "default", limit)
	if err != nil {
		d.t.Fatal(err)
	}
	return r.Claims
}

func (d database) claimOne() store.Claimed {
	d.t.Helper()
	c := d.claim(1)
	if len(c) != 1 {
		d.t.Fatalf("claimed %d tasks, want 1", len(c))
	}
	return c[0]
}

// finish ends an Attempt under whatever stop it has by now.
func (d database) finish(c store.Claimed, v task.Verdict) store.FinishResult {
	d.t.Helper()
	_, a, _, err := d.OpenAttempt(d.t.Context(), c.Attempt.ID)
	if err != nil {
		d.t.Fatal(err)
	}
	v.Stop = a.Stop
	r, err := d.Finish(d.t.Context(), c.Attempt.ID, c.Attempt.Fence, v, store.Ending{})
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

func (d database) settle() {
	d.t.Helper()
	for range 100 {
		more, err := d.Settle(d.t.Context(), 50)
		if err != nil {
			d.t.Fatal(err)
		}
		if !more && value[int](d, "select count(*) from slipway.nudges") == 0 {
			return
		}
	}
	d.t.Fatal("nudges never end")
}

func (d database) get(id string) (task.Task, store.View) {
	d.t.Helper()
	got, v, err := d.Task(d.t.Context(), id)
	if err != nil {
		d.t.Fatal(err)
	}
	return got, v
}

func (d database) wantState(id string, want task.State, reason task.Reason) {
	d.t.Helper()
	got, _ := d.get(id)
	if got.State != want || got.Reason != reason {
		d.t.Fatalf("task is %s/%s, want %s/%s (%s)", got.State, got.Reason, want, reason, got.Message)
	}
}

var (
	success = task.Verdict{Outcome: task.OutcomeSucceeded, Spends: task.SpendsRetry, Started: true}
	failure = task.Verdict{Outcome: task.OutcomeFailed, Reason: task.ReasonExitCode, Spends: task.SpendsRetry}
	lost    = task.Verdict{Outcome: task.OutcomeLost, Reason: task.ReasonEvicted, Spends: task.SpendsLost}
)

// clockAt replaces the database's clock by a table, as the design's tests do.
func (d database) clockAt() {
	d.t.Helper()
	d.sql(`CREATE TABLE slipway.test_clock (t timestamptz); INSERT INTO slipway.test_clock SELECT statement_timestamp();
		CREATE OR REPLACE FUNCTION slipway.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT t FROM slipway.test_clock';
		CREATE OR REPLACE FUNCTION slipway.stamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT t FROM slipway.test_clock'`)
}

func (d database) advance(by time.Duration) {
	d.t.Helper()
	d.sql(fmt.Sprintf("UPDATE slipway.test_clock SET t = t + interval '%d milliseconds'", by.Milliseconds()))
}

func wantConflict(t *testing.T, err error, reason store.ConflictReason, id string) {
	t.Helper()
	var c *store.ConflictError
	if !errors.As(err, &c) || c.Reason != reason || c.TaskID != id {
		t.Fatalf("got %v, want conflict %s with %s", err, reason, id)
	}
}
