package store_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/e2e/postgres"
	"slipway.dev/slipway/pkg/task"
)

func TestACommitWakesItsOwnReplicaAndTheOthers(t *testing.T) {
	d := newDatabase(t).running()
	other := database{pgtest.Open(t, store.Config{URL: d.url, Replica: "b"}), t, d.url}.running()
	hears := func(s *store.Store, who string) {
		t.Helper()
		select {
		case q := <-s.QueueWakes():
			if q != "default" {
				t.Fatalf("%s was woken for %q", who, q)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s was never woken", who)
		}
	}
	// The other's ear may still be opening: submit until it hears.
	until(t, func() bool {
		d.one(item(""))
		hears(d.Store, "its own replica")
		select {
		case <-other.QueueWakes():
			return true
		case <-time.After(200 * time.Millisecond):
			return false
		}
	})
	d.one(item("volume:ns/last"))
	hears(d.Store, "its own replica")
	hears(other.Store, "the other replica")
	for _, c := range d.claim(50) {
		if c.Task.Lane != "volume:ns/last" {
			continue
		}
		if _, err := d.Cancel(t.Context(), c.Task.ID, "bob", ""); err != nil {
			t.Fatal(err)
		}
		select {
		case id := <-other.AttemptWakes():
			if id != c.Attempt.ID {
				t.Fatalf("woken for attempt %d, want %d", id, c.Attempt.ID)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the cancel woke nobody")
		}
	}
}

// Case 28, at the level of the store.
func TestTheStoreComesBackWithItsDatabase(t *testing.T) {
	ctx := t.Context()
	server, err := postgres.Start(ctx, postgres.Options{Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(postgres.Fast); err != nil {
			t.Error(err)
		}
	})
	url := server.URL("postgres")
	if err := store.Migrate(ctx, url, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	d := database{pgtest.Open(t, store.Config{URL: url, Replica: "a"}), t, url}.running()
	made := d.one(item("volume:ns/a"))
	c := d.claimOne()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	within := func(what string, call func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := call(ctx); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s while the database is away: %v", what, err)
		}
	}
	within("ready", d.Ready)
	within("enqueue", func(ctx context.Context) error {
		_, err := d.Enqueue(ctx, store.Batch{Caller: "alice", Items: []store.Item{item("")}})
		return err
	})
	within("claim", func(ctx context.Context) error { _, err := d.Claim(ctx, "default", 1); return err })
	within("finish", func(ctx context.Context) error {
		_, err := d.Finish(ctx, c.Attempt.ID, c.Attempt.Fence, success, store.Ending{})
		return err
	})
	within("read", func(ctx context.Context) error { _, _, err := d.Task(ctx, made.ID); return err })
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return d.Ready(ctx) == nil })
	d.finish(c, success)
	d.wantState(made.ID, task.Succeeded, "")
	next := d.one(item("volume:ns/a"))
	if got := d.claimOne(); got.Task.ID != next.ID {
		t.Fatal("another task")
	}
}

// Case 28: a column changes its type under statements that are prepared.
func TestAMigrationUnderLoadCostsAReaderOneRepeatAndAWriterNothing(t *testing.T) {
	d := newDatabase(t)
	made := d.one(item("volume:ns/a"))
	d.get(made.ID)
	d.get(made.ID)
	d.sql("ALTER TABLE slipway.tasks ALTER COLUMN name TYPE varchar(300)")
	if _, err := d.Cancel(t.Context(), made.ID, "bob", ""); err != nil {
		t.Errorf("a write: %v", err)
	}
	for range 16 { // connections
		if _, _, err := d.Task(t.Context(), made.ID); err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a read: %v", err)
		}
	}
	d.get(made.ID)
}
