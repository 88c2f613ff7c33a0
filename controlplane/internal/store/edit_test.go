package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

func wantHindered(t *testing.T, err error, reason store.HinderReason, id string) {
	t.Helper()
	var h *store.HinderedError
	if !errors.As(err, &h) || h.Reason != reason || h.ID != id {
		t.Fatalf("got %v, want %s by %s", err, reason, id)
	}
}

func wantEnded(t *testing.T, err error) {
	t.Helper()
	var e *store.EndedError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an ended task", err)
	}
}

func (d database) change(id string, c store.TaskChange) {
	d.t.Helper()
	if err := d.ChangeTask(d.t.Context(), id, c, "bob"); err != nil {
		d.t.Fatal(err)
	}
}

func (d database) enterDue() {
	d.t.Helper()
	if _, err := d.EnterDue(d.t.Context(), 50); err != nil {
		d.t.Fatal(err)
	}
}

func TestARunAtThatMovesAheadTakesATaskOutOfItsLane(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	now, err := d.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, second := d.one(item("volume:ns/a")), d.one(item("volume:ns/a"))
	d.change(first.ID, store.TaskChange{Move: true, RunAt: now.Add(time.Hour)})
	if got, v := d.get(first.ID); v.Phase != task.Delayed || got.Seq != 0 || !got.RunAt.Equal(now.Add(time.Hour)) {
		t.Fatalf("%s, seq %d, run at %v", v.Phase, got.Seq, got.RunAt)
	}
	if c := d.claimOne(); c.Task.ID != second.ID {
		t.Fatal("the one that was moved away still heads the lane")
	}
	third := d.one(item("volume:ns/a"))
	d.change(first.ID, store.TaskChange{Move: true})
	d.settle()
	if got, v := d.get(first.ID); got.Seq < third.Seq || v.Wait != task.WaitLane {
		t.Fatalf("moved to now it has place %d behind %d, and waits for %s", got.Seq, third.Seq, v.Wait)
	}
}

func TestADelayedTaskOfItsOwnRunsAtTheInstantItIsMovedTo(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	now, err := d.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	alone := d.one(item(""))
	d.change(alone.ID, store.TaskChange{Move: true, RunAt: now.Add(time.Hour)})
	if got := d.claim(10); len(got) != 0 {
		t.Fatalf("claimed %d", len(got))
	}
	d.change(alone.ID, store.TaskChange{Move: true, RunAt: now.Add(time.Minute)})
	d.advance(2 * time.Minute)
	d.enterDue()
	if c := d.claimOne(); c.Task.ID != alone.ID {
		t.Fatal("another ran")
	}
}

func TestBackOffIsMovedWithoutLosingThePlace(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	first := d.one(item("volume:ns/a"))
	d.one(item("volume:ns/a"))
	d.finish(d.claimOne(), failure)
	if got := d.claim(10); len(got) != 0 {
		t.Fatalf("claimed %d during back-off", len(got))
	}
	d.change(first.ID, store.TaskChange{Move: true})
	if c := d.claimOne(); c.Task.ID != first.ID {
		t.Fatal("the one behind ran first")
	}
}

func TestAClassChangesTheRankAndNothingElse(t *testing.T) {
	d := newDatabase(t)
	first, second := d.one(item("volume:ns/a")), d.one(item("volume:ns/b"))
	critical := task.Critical
	d.change(second.ID, store.TaskChange{Class: &critical})
	got, _ := d.get(second.ID)
	if got.Class != task.Critical || !got.RunAt.Equal(second.RunAt) || got.Seq != second.Seq {
		t.Fatalf("%+v", got)
	}
	if c := d.claim(1); len(c) != 1 || c[0].Task.ID != second.ID {
		t.Fatalf("the critical one is not first; the other is %s", first.ID)
	}
}

func TestWhatRunsOrHasEndedIsNotChanged(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	got := d.one(item("volume:ns/a"))
	c := d.claimOne()
	critical := task.Critical
	wantHindered(t, d.ChangeTask(ctx, got.ID, store.TaskChange{Class: &critical}, "bob"), store.HinderClaimed, got.ID)
	wantHindered(t, d.Hold(ctx, got.ID, "bob", ""), store.HinderClaimed, got.ID)
	wantHindered(t, d.DeleteTask(ctx, got.ID, "bob"), store.HinderNotEnded, got.ID)
	d.finish(c, success)
	wantEnded(t, d.ChangeTask(ctx, got.ID, store.TaskChange{Class: &critical}, "bob"))
	wantEnded(t, d.Unhold(ctx, got.ID, "bob"))
	if n := value[int](d, "select count(*) from slipway.audit where verb <> 'create'"); n != 0 {
		t.Fatalf("%d audit rows of changes that were refused", n)
	}
}

func TestOnlyAnEndedTaskThatNobodyNeedsIsDeletedWithAllItsRows(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	with := item("volume:ns/a")
	with.Task.Labels = map[string]string{"team": "a"}
	got := d.one(with)
	waits := itemWith(func(i *store.Item) { i.After, i.RunIf = []string{got.ID}, store.AllFinished }).of("volume:ns/b")
	dependent := d.one(waits)
	c := d.claimOne()
	d.finish(c, success)
	wantHindered(t, d.DeleteTask(ctx, got.ID, "bob"), store.HinderDependent, dependent.ID)
	if _, err := d.Cancel(ctx, dependent.ID, "bob", ""); err != nil {
		t.Fatal(err)
	}
	wantHindered(t, d.DeleteTask(ctx, got.ID, "bob"), store.HinderClosing, got.ID)
	if err := d.MarkClosed(ctx, c.Attempt.ID); err != nil {
		t.Fatal(err)
	}
	if err := d.DeleteTask(ctx, got.ID, "bob"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Task(ctx, got.ID); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	for _, left := range []string{
		"attempts where task = %d", "events where task = %d", "task_labels where task = %d", "nudges where task = %d", "leases where attempt in (select id from slipway.attempts where task = %d)",
	} {
		if n := value[int](d, fmt.Sprintf("select count(*) from slipway."+left, got.Key)); n != 0 {
			t.Errorf("%d rows are left of %s", n, left)
		}
	}
	if err := d.DeleteTask(ctx, got.ID, "bob"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("again: %v", err)
	}
}

func TestLiveParentAndChildAreInTheWayOfADeletion(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	parent := item("branch:ns/a")
	parent.Children = []store.Item{item(""), item("")}
	p := d.one(parent)
	d.claim(10)
	d.settle()
	c := d.claimOne()
	d.finish(c, success)
	if err := d.MarkClosed(ctx, c.Attempt.ID); err != nil {
		t.Fatal(err)
	}
	wantHindered(t, d.DeleteTask(ctx, c.Task.ID, "bob"), store.HinderParent, p.ID)
}

func TestEveryChangeIsAuditedWithItsOriginOnce(t *testing.T) {
	d := newDatabase(t)
	ctx := store.WithOrigin(t.Context(), store.Origin{Peer: "10.1.2.3", Request: "r-1"})
	out, err := d.Enqueue(ctx, store.Batch{Caller: "alice", Key: "k", Hash: []byte{1}, Items: []store.Item{item("volume:ns/a")}})
	if err != nil {
		t.Fatal(err)
	}
	id := out[0].Task.ID
	later, low := store.TaskChange{Move: true, RunAt: time.Now().Add(time.Hour)}, task.Low
	steps := []struct {
		verb string
		do   func() error
	}{
		{"hold", func() error { return d.Hold(ctx, id, "bob", "why") }},
		{"unhold", func() error { return d.Unhold(ctx, id, "bob") }},
		{"patch", func() error { return d.ChangeTask(ctx, id, later, "bob") }},
		{"patch", func() error { return d.ChangeTask(ctx, id, store.TaskChange{Class: &low}, "bob") }},
		{"cancel", func() error { _, err := d.Cancel(ctx, id, "bob", "no need"); return err }},
		{"retry", func() error {
			again := item("volume:ns/a")
			again.Task.RetryOf = id
			_, err := d.Enqueue(ctx, store.Batch{Caller: "bob", Items: []store.Item{again}})
			return err
		}},
		{"batch", func() error {
			_, err := d.Enqueue(ctx, store.Batch{Caller: "bob", Items: []store.Item{item(""), item("")}})
			return err
		}},
		{"delete", func() error { return d.DeleteTask(ctx, id, "bob") }},
		{"pause", func() error {
			return d.ChangeQueue(ctx, "default", "pause", "bob", func(q *store.Queue) { q.Paused, q.Note = true, "look" })
		}},
		{"switch", func() error {
			return d.SwitchKind(ctx, store.KindSwitch{Kind: "volume.resize", Executor: "off", Actor: "bob", Reason: "broken"})
		}},
	}
	want := []string{"create"}
	for _, s := range steps {
		for try := range 2 {
			err := s.do()
			if try == 0 && err != nil {
				t.Fatalf("%s: %v", s.verb, err)
			}
			if s.verb == "retry" || s.verb == "batch" || s.verb == "switch" {
				break // each of these is a change of its own
			}
		}
		want = append(want, s.verb)
	}
	got := value[string](d, "select string_agg(verb, ' ' order by id) from slipway.audit where peer = '10.1.2.3' and request = 'r-1' and actor <> ''")
	if got != strings.Join(want, " ") {
		t.Fatalf("audited %s\nwant    %s", got, strings.Join(want, " "))
	}
	pause := value[string](d, "select before ->> 'paused' || ' ' || (after ->> 'paused') || ' ' || (after ->> 'note') from slipway.audit where verb = 'pause'")
	if pause != "false true look" {
		t.Errorf("the pause tells %q", pause)
	}
}

func TestADryRunDecidesEverythingAndStoresNothing(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	there := d.one(item("volume:ns/a"))
	rows := func() int {
		return value[int](d, `select (select count(*) from slipway.tasks) + (select count(*) from slipway.lanes)
			+ (select count(*) from slipway.idempotency) + (select count(*) from slipway.audit) + (select count(*) from slipway.events)::int`)
	}
	was := rows()
	out, err := d.Enqueue(ctx, store.Batch{Caller: "alice", Key: "k", Hash: []byte{1}, DryRun: true, Items: []store.Item{item("volume:ns/b")}})
	if err != nil || out[0].Result != store.Created || out[0].Task.Lane != "volume:ns/b" {
		t.Fatalf("%+v, %v", out, err)
	}
	rejecting := itemWith(func(i *store.Item) { i.OnConflict = task.ConflictReject }).of("volume:ns/a")
	_, err = d.Enqueue(ctx, store.Batch{Caller: "alice", DryRun: true, Items: []store.Item{rejecting}})
	wantConflict(t, err, store.ConflictLaneBusy, there.ID)
	if n := rows(); n != was {
		t.Fatalf("%d rows, %d before", n, was)
	}
	real, err := d.Enqueue(ctx, store.Batch{Caller: "alice", Key: "k", Hash: []byte{1}, Items: []store.Item{item("volume:ns/b")}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Enqueue(ctx, store.Batch{Caller: "alice", Key: "k", Hash: []byte{2}, DryRun: true, Items: []store.Item{item("volume:ns/b")}})
	wantConflict(t, err, store.ConflictBody, real[0].Task.ID)
}

func TestALaneTellsWhoHoldsItAndWhyItWaits(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	if _, err := d.Lane(ctx, "volume:ns/none"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	first, second := d.one(item("volume:ns/a")), d.one(item("volume:ns/a"))
	if err := d.ChangeQueue(ctx, "default", "pause", "bob", func(q *store.Queue) { q.Paused, q.Note = true, "look" }); err != nil {
		t.Fatal(err)
	}
	if l, err := d.Lane(ctx, "volume:ns/a"); err != nil || l.Head != first.ID || l.Queued != 2 || l.Wait != task.WaitPaused || l.WaitNote != "look" || l.Holder != "" {
		t.Fatalf("%+v, %v", l, err)
	}
	if err := d.ChangeQueue(ctx, "default", "resume", "bob", func(q *store.Queue) { q.Paused, q.Note = false, "" }); err != nil {
		t.Fatal(err)
	}
	c := d.claimOne()
	l, err := d.Lane(ctx, "volume:ns/a")
	if err != nil || l.Holder != first.ID || l.Head != second.ID || l.Queued != 1 || l.Fence != c.Attempt.Fence || l.Wait != task.WaitLane || l.WaitsFor != first.ID {
		t.Fatalf("%+v, %v", l, err)
	}
	limits, err := d.Limits(ctx, "ns")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range limits {
		if at.Queue == "default" && (at.Running != 1 || at.Queued != 1 || at.NamespaceCap != 20) {
			t.Errorf("%+v", at)
		}
	}
	if err := d.ChangeQueue(ctx, "none", "pause", "bob", func(*store.Queue) {}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a queue that is not there: %v", err)
	}
}
