package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/e2e/proxy"
)

// unavailable calls and wants ErrUnavailable, without a bound of the caller's own.
func (d proxied) unavailable(within time.Duration, calls map[string]func(context.Context) error) {
	d.t.Helper()
	for what, call := range calls {
		began := time.Now()
		if err := call(context.WithoutCancel(d.t.Context())); !errors.Is(err, store.ErrUnavailable) {
			d.t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(began); took > within {
			d.t.Errorf("%s was given up after %v, want %v at most", what, took, within)
		}
	}
}

// Nothing is closed and nothing answers: a call ends within the bound of one answer, of the look at an idle connection
// and of a new connection, each twice the time for a statement here.
func TestASilentDatabaseIsFoundInTheStatedTime(t *testing.T) {
	const statement = 200 * time.Millisecond
	d := newProxied(t, store.Config{StatementTimeout: statement, BeatEvery: 10 * time.Millisecond})
	d.running()
	c := d.started()
	d.proxy.Set(proxy.PostgresFault{Kind: proxy.PostgresSilent})
	d.unavailable(3*2*statement+10*time.Second, map[string]func(context.Context) error{ // and what a busy machine adds
		"ready": d.Ready,
		"enqueue": func(ctx context.Context) error {
			_, err := d.Enqueue(ctx, store.Batch{Caller: "alice", Items: []store.Item{item("")}})
			return err
		},
		"read": func(ctx context.Context) error { _, _, err := d.Task(ctx, c.Task.ID); return err },
		"beat": func(ctx context.Context) error {
			_, err := d.Beat(ctx, store.BeatRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "pod"})
			return err
		},
		"finish": func(ctx context.Context) error {
			_, err := d.Finish(ctx, c.Attempt.ID, c.Attempt.Fence, success, store.Ending{})
			return err
		},
	})
	d.proxy.Set()
	until(t, func() bool { return d.Ready(t.Context()) == nil })
	d.finish(c, success)
}

func TestAStoreEndsWhileItsDatabaseIsSilent(t *testing.T) {
	d := newProxied(t, store.Config{StatementTimeout: 200 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	until(t, func() bool {
		return value[int](d.database, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query LIKE '-- ping%'") > 0
	})
	d.proxy.Set(proxy.PostgresFault{Kind: proxy.PostgresSilent})
	if err := d.Ready(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("ready: %v", err)
	}
	began := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	d.Close()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it ended after %v", took)
	}
}

// An ear that hears nothing for long asks whether the other side is there; one that is deaf is replaced.
func TestADeafEarIsReplaced(t *testing.T) {
	d := newProxied(t, store.Config{StatementTimeout: 200 * time.Millisecond})
	d.running()
	other := database{pgtest.Open(t, store.Config{URL: d.url, Replica: "b"}), t, d.url}.running()
	hears := func() bool {
		other.one(item(""))
		select {
		case <-d.QueueWakes():
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	}
	until(t, hears)
	d.proxy.Set(proxy.PostgresFault{Kind: proxy.PostgresSilent, Times: 1}) // nobody but the ear says anything here
	until(t, func() bool { return d.proxy.Counts()[string(proxy.PostgresSilent)] == 1 })
	until(t, hears)
}

func TestReadySaysInPlainWordsWhatIsWrong(t *testing.T) {
	d := newProxied(t, store.Config{StatementTimeout: 200 * time.Millisecond})
	for kind, words := range map[proxy.PostgresKind]string{
		proxy.PostgresTooManyConnections: "takes no more connections",
		proxy.PostgresShutdown:           "is being shut down",
		proxy.PostgresSilent:             "does not answer in time",
		proxy.PostgresRefuse:             "cannot be reached",
	} {
		d.proxy.Set(proxy.PostgresFault{Kind: kind})
		if kind != proxy.PostgresSilent {
			d.proxy.CutAll()
		}
		wantWords(t, d, words)
	}
	d.proxy.Set()
	d.sql("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$")
	d.proxy.CutAll()
	wantWords(t, d, "is read-only")
	if _, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: []store.Item{item("")}}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a write: %v", err)
	}
	if _, err := d.Queues(t.Context()); err != nil {
		t.Errorf("a read: %v", err)
	}
}

func wantWords(t *testing.T, d proxied, words string) {
	t.Helper()
	until(t, func() bool { // a connection that was cut while idle is found by its next user
		var why *store.NotReadyError
		err := d.Ready(t.Context())
		return errors.As(err, &why) && why.Why == words && errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), words)
	})
}
