package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

func TestSameKeyFromManySendersMakesOneTask(t *testing.T) {
	d := newDatabase(t)
	const rounds, senders = 40, 50
	replicas := []database{d, {pgtest.Open(t, store.Config{URL: d.url, Replica: "b"}), t, d.url}}
	var created, repeated, refused atomic.Int64
	for round := range rounds {
		var all sync.WaitGroup
		ids := sync.Map{}
		for sender := range senders {
			all.Go(func() {
				hash := []byte("body")
				if sender%10 == 9 {
					hash = []byte("other body")
				}
				b := store.Batch{Caller: "alice", Key: fmt.Sprint("key-", round), Hash: hash, Items: []store.Item{item("")}}
				out, err := replicas[sender%2].Enqueue(t.Context(), b)
				var c *store.ConflictError
				switch {
				case errors.As(err, &c):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				case out[0].Result == store.Created:
					created.Add(1)
					ids.Store(string(hash)+out[0].Task.ID, true)
				default:
					repeated.Add(1)
					ids.Store(string(hash)+out[0].Task.ID, true)
				}
			})
		}
		all.Wait()
		n := 0
		ids.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Fatalf("round %d answered %d different tasks", round, n)
		}
	}
	if created.Load() != rounds {
		t.Fatalf("%d created, want %d (%d repeats, %d refused)", created.Load(), rounds, repeated.Load(), refused.Load())
	}
	if n := value[int](d, "select count(*) from slipway.tasks"); n != rounds {
		t.Fatalf("%d tasks, want %d", n, rounds)
	}
	if d.Deadlocks()+replicas[1].Deadlocks() != 0 {
		t.Fatal("deadlocks")
	}
}

func TestARepeatIsAnsweredWithThePresentStateAndAnotherBodyIsRefused(t *testing.T) {
	d := newDatabase(t)
	b := store.Batch{Caller: "alice", Key: "k", Hash: []byte("1"), Items: []store.Item{item("volume:ns/a"), item("volume:ns/b")}}
	first, err := d.Enqueue(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	d.finish(d.claimOne(), success)
	again, err := d.Enqueue(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range again {
		if again[i].Result != store.Repeated || again[i].Task.ID != first[i].Task.ID {
			t.Fatalf("item %d: %+v", i, again[i])
		}
	}
	if again[0].Task.State != task.Succeeded {
		t.Fatalf("state %s", again[0].Task.State)
	}
	b.Hash = []byte("2")
	_, err = d.Enqueue(t.Context(), b)
	wantConflict(t, err, store.ConflictBody, first[0].Task.ID)
	b.Caller = "bob"
	if out, err := d.Enqueue(t.Context(), b); err != nil || out[0].Result != store.Created {
		t.Fatalf("another caller: %v", err)
	}
}

func TestItemKeysOfABatchAreAllOrNothing(t *testing.T) {
	d := newDatabase(t)
	keyed := func(key, hash string) store.Item {
		it := item("volume:ns/" + key)
		it.Key, it.Hash = key, []byte(hash)
		return it
	}
	submit := func(items ...store.Item) ([]store.Enqueued, error) {
		return d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: items})
	}
	first, err := submit(keyed("b", "1"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := submit(keyed("c", "1"), keyed("b", "1"), item("volume:ns/x"))
	if err != nil || out[0].Result != store.Created || out[1].Result != store.Repeated || out[1].Task.ID != first[0].Task.ID || out[2].Result != store.Created {
		t.Fatalf("%+v, %v", out, err)
	}
	_, err = submit(keyed("new", "1"), keyed("b", "2"), keyed("c", "2"))
	var c *store.ConflictError
	if !errors.As(err, &c) || len(c.All) != 2 || c.Item != 1 {
		t.Fatalf("%v", err)
	}
	if n := value[int](d, "select count(*) from slipway.tasks"); n != 3 {
		t.Fatalf("%d tasks, want 3", n)
	}
	var fields store.FieldErrors
	if _, err := submit(keyed("twice", "1"), keyed("twice", "1")); !errors.As(err, &fields) {
		t.Fatalf("a key twice: %v", err)
	}
}

func TestAnAbsorbedSubmitKeepsItsOwnKey(t *testing.T) {
	d := newDatabase(t)
	it := item("pool:ns/a")
	it.Task.Mode = task.Latest
	first := d.one(it)
	b := store.Batch{Caller: "alice", Key: "k", Hash: []byte("1"), Items: []store.Item{it}}
	for i, want := range []store.EnqueueResult{store.Coalesced, store.Repeated} {
		out, err := d.Enqueue(t.Context(), b)
		if err != nil || out[0].Result != want || out[0].Task.ID != first.ID {
			t.Fatalf("send %d: %+v, %v", i, out, err)
		}
	}
}

func TestAKeyWhoseTimeIsOverCanBeUsedAgain(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	b := store.Batch{Caller: "alice", Key: "k", Hash: []byte("1"), Items: []store.Item{item("volume:ns/a")}}
	if _, err := d.Enqueue(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	d.advance(8 * 24 * time.Hour)
	b.Hash = []byte("2")
	out, err := d.Enqueue(t.Context(), b)
	if err != nil || out[0].Result != store.Created {
		t.Fatalf("%+v, %v", out, err)
	}
	d.sql("DELETE FROM slipway.tasks") // retention took it
	out, err = d.Enqueue(t.Context(), b)
	if err != nil || out[0].Result != store.Created {
		t.Fatalf("after its task was removed: %+v, %v", out, err)
	}
}

func TestBatchesWithTheSameKeysAndLanesInAnyOrderNeverDeadlock(t *testing.T) {
	d := newDatabase(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for round := range 10 {
				var items []store.Item
				for _, n := range rand.Perm(20) {
					it := item(fmt.Sprintf("volume:ns/%d", n))
					it.Key, it.Hash = fmt.Sprintf("%d-%d", round, n), []byte("1")
					items = append(items, it)
				}
				if _, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: items}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := d.Deadlocks(); n != 0 {
		t.Fatalf("%d deadlocks", n)
	}
	if n := value[int](d, "select count(*) from slipway.tasks"); n != 200 {
		t.Fatalf("%d tasks, want 200", n)
	}
}
