package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

func (d database) queue(change func(q *store.Queue)) {
	d.t.Helper()
	q := store.Queue{Name: "default", Cap: 50, NamespaceCap: 20, MaxQueued: 10000, Burst: 1}
	change(&q)
	if err := d.SetQueue(d.t.Context(), q, "bob"); err != nil {
		d.t.Fatal(err)
	}
}

func (d database) many(n int, namespace string, with ...itemWith) []store.Enqueued {
	d.t.Helper()
	items := make([]store.Item, n)
	for i := range items {
		items[i] = item("")
		items[i].Task.Namespace = namespace
		for _, w := range with {
			w(&items[i])
		}
	}
	return d.enqueue(items...)
}

func TestCapsAreExactUnderManyClaimers(t *testing.T) {
	d := newDatabase(t)
	d.queue(func(q *store.Queue) { q.Cap, q.NamespaceCap = 8, 3 })
	for n := range 5 {
		d.many(20, fmt.Sprintf("ns-%d", n))
	}
	var all sync.WaitGroup
	for r := range 8 {
		other := database{pgtest.Open(t, store.Config{URL: d.url, Replica: fmt.Sprint(r)}), t, d.url}
		all.Go(func() {
			for range 10 {
				r, err := other.Claim(t.Context(), "default", 20)
				if err != nil {
					t.Error(err)
					return
				}
				for i, c := range r.Claims {
					if i%2 == 0 {
						if _, err := other.Finish(t.Context(), c.Attempt.ID, c.Attempt.Fence, success, store.Ending{}); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
	all.Wait()
	// The largest number that was live at once, from the stamps alone.
	most := func(group string) int {
		return value[int](d, `select coalesce(max(n), 0) from (
			select (select count(*) from slipway.attempts b where `+group+` and b.claimed_at <= a.claimed_at
				and (b.finished_at is null or b.finished_at > a.claimed_at)) n from slipway.attempts a) x`)
	}
	if n := most("true"); n != 8 {
		t.Fatalf("%d were live at once, cap 8", n)
	}
	if n := most("b.namespace = a.namespace"); n > 3 {
		t.Fatalf("%d of one namespace were live at once, cap 3", n)
	}
}

func TestPauseDrainFreezeAndKindOffStopClaimsOnly(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	runs := d.many(1, "ns")[0].Task
	c := d.claimOne()
	waits := d.many(1, "ns")[0].Task
	blocked := func(want task.WaitReason) {
		t.Helper()
		r, err := d.Claim(ctx, "default", 10)
		if err != nil || len(r.Claims) != 0 {
			t.Fatalf("%s: claimed %d, %v", want, len(r.Claims), err)
		}
		if _, v := d.get(waits.ID); v.Wait != want {
			t.Fatalf("it waits for %s, want %s", v.Wait, want)
		}
	}
	d.queue(func(q *store.Queue) { q.Paused = true })
	blocked(task.WaitPaused)
	d.queue(func(q *store.Queue) { q.Draining = true })
	blocked(task.WaitPaused)
	d.queue(func(q *store.Queue) { q.Cap = 1 })
	blocked(task.WaitCap)
	d.queue(func(*store.Queue) {})
	for _, f := range []store.Freeze{{Namespace: "ns"}, {Queue: "default"}, {}} {
		f.Actor, f.Reason = "bob", "maintenance"
		f, err := d.Freeze(ctx, f, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		blocked(task.WaitFrozen)
		if err := d.Thaw(ctx, f.ID, "bob"); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.SwitchKind(ctx, store.KindSwitch{Kind: "volume.resize", Executor: "off", Actor: "bob", Reason: "broken"}); err != nil {
		t.Fatal(err)
	}
	blocked(task.WaitKindOff)
	if err := d.SwitchKind(ctx, store.KindSwitch{Kind: "volume.resize", Executor: "inline", Actor: "bob", Reason: ""}); err != nil {
		t.Fatal(err)
	}
	d.finish(c, success)
	d.wantState(runs.ID, task.Succeeded, "")
	if c := d.claimOne(); c.Task.ID != waits.ID || c.Attempt.Executor != task.ExecutorJob { // who has no handlers runs nothing inline
		t.Fatalf("claimed %+v", c.Attempt)
	}
	if n := value[int](d, "select count(*) from slipway.audit where resource <> 'tasks'"); n != 12 {
		t.Fatalf("%d audit rows, want 12", n)
	}
}

func TestRateLimitsLaunchesInDatabaseTime(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	d.queue(func(q *store.Queue) { q.Rate, q.Burst = 2, 3 })
	d.sql("UPDATE slipway.queues SET tokens = 3")
	d.many(20, "ns")
	if n := len(d.claim(10)); n != 3 {
		t.Fatalf("claimed %d at first, want the burst of 3", n)
	}
	r, err := d.Claim(t.Context(), "default", 10)
	if err != nil || len(r.Claims) != 0 || r.Blocked != task.WaitRate || r.NextIn != 500*time.Millisecond {
		t.Fatalf("%+v, %v", r, err)
	}
	d.advance(time.Second)
	if n := len(d.claim(10)); n != 2 {
		t.Fatalf("claimed %d after a second at 2/s", n)
	}
	d.advance(time.Hour)
	if n := len(d.claim(10)); n != 3 {
		t.Fatalf("claimed %d after an hour, want the burst of 3", n)
	}
}

func TestNamespacesTakeTurnsAndNobodyStarves(t *testing.T) {
	d := newDatabase(t)
	d.queue(func(q *store.Queue) { q.Cap, q.NamespaceCap = 100, 100 })
	d.many(200, "busy")
	for n := range 4 {
		d.many(3, fmt.Sprintf("quiet-%d", n))
	}
	count := map[string]int{}
	for _, c := range d.claim(15) {
		count[c.Task.Namespace]++
	}
	for ns, n := range count {
		if n != 3 {
			t.Fatalf("%s had %d of 15, want 3 each: %v", ns, n, count)
		}
	}
	for _, c := range d.claim(10) { // what runs counts as turns that were had
		if c.Task.Namespace != "busy" {
			t.Fatalf("nothing of %s is left", c.Task.Namespace)
		}
	}
}

func TestClassesAreOrderedAndWaitingMakesUpForThem(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	class := func(c task.Class) itemWith { return func(i *store.Item) { i.Task.Class = c } }
	low := d.many(1, "ns", class(task.Low))[0].Task
	d.advance(100 * time.Second)
	normal := d.many(1, "ns", class(task.Normal))[0].Task
	critical := d.many(1, "ns", class(task.Critical))[0].Task
	d.advance(200 * time.Second)
	late := d.many(1, "ns", class(task.Normal))[0].Task // a low one has waited 300 s more: worth more than one class
	for _, want := range []task.Task{critical, normal, low, late} {
		if c := d.claimOne(); c.Task.ID != want.ID {
			t.Fatalf("claimed class %s, want %s", c.Task.Class, want.Class)
		}
	}
}

func TestAMoreUrgentTaskBehindTheHeadLowersTheLanesRank(t *testing.T) {
	d := newDatabase(t)
	it := item("volume:ns/a")
	it.Task.Class = task.Low
	head := d.one(it)
	d.many(1, "ns", func(i *store.Item) { i.Task.Class = task.High })
	it.Task.Class = task.Critical
	d.one(it)
	if c := d.claimOne(); c.Task.ID != head.ID {
		t.Fatal("the head of the urgent lane did not go first")
	}
}

func TestANamespaceWithTooMuchWaitingIsRefused(t *testing.T) {
	d := newDatabase(t)
	d.queue(func(q *store.Queue) { q.MaxQueued = 3 })
	d.many(3, "ns")
	_, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: []store.Item{item("")}})
	var full *store.FullError
	if !errors.As(err, &full) || full.Namespace != "ns" || full.RetryAfter <= 0 {
		t.Fatalf("got %v", err)
	}
	d.many(3, "other")
	it := item("")
	it.Task.Queue = "no-such"
	var fields store.FieldErrors
	if _, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: []store.Item{it}}); !errors.As(err, &fields) || fields[0].Pointer != "/items/0/queue" {
		t.Fatalf("unknown queue: %v", err)
	}
}
