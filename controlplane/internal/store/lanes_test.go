package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

func TestStrictLaneRunsAllInOrderOneAtATime(t *testing.T) {
	d := newDatabase(t)
	var ids []string
	for range 3 {
		ids = append(ids, d.one(item("volume:ns/a")).ID)
	}
	for _, want := range ids {
		got := d.claim(10)
		if len(got) != 1 || got[0].Task.ID != want {
			t.Fatalf("claimed %d, want only %s", len(got), want)
		}
		if more := d.claim(10); len(more) != 0 {
			t.Fatalf("a held lane was claimed again: %v", more)
		}
		d.finish(got[0], success)
	}
}

func TestBatchKeepsItsOrderInEachLane(t *testing.T) {
	d := newDatabase(t)
	var items []store.Item
	for i := range 30 {
		it := item(fmt.Sprintf("volume:ns/%d", i%3))
		it.Task.Name = fmt.Sprint(i)
		items = append(items, it)
	}
	d.enqueue(items...)
	next := map[string]int{"volume:ns/0": 0, "volume:ns/1": 1, "volume:ns/2": 2}
	for range 10 {
		got := d.claim(10)
		if len(got) != 3 {
			t.Fatalf("claimed %d lanes, want 3", len(got))
		}
		for _, c := range got {
			if c.Task.Name != fmt.Sprint(next[c.Task.Lane]) {
				t.Fatalf("lane %s ran %s, want %d", c.Task.Lane, c.Task.Name, next[c.Task.Lane])
			}
			next[c.Task.Lane] += 3
			d.finish(c, success)
		}
	}
}

func TestLatestIsAbsorbedByTheTailOnlyIfQueuedAndOfTheSameKind(t *testing.T) {
	d := newDatabase(t)
	latest := func(kind, params string) store.Item {
		it := item("pool:ns/a")
		it.Task.Kind, it.Task.Mode, it.Task.Params = kind, task.Latest, json.RawMessage(params)
		return it
	}
	first := d.one(latest("pool.manage", `{"n":1}`))
	running := d.claimOne()
	if running.Task.ID != first.ID {
		t.Fatal("claimed another")
	}
	second := d.one(latest("pool.manage", `{"n":2}`)) // the first runs: a new one
	urgent := latest("pool.manage", `{"n":3}`)
	urgent.Task.Class = task.High
	third := d.enqueue(urgent)[0]
	if third.Result != store.Coalesced || third.Task.ID != second.ID || string(third.Task.Params) != `{"n": 3}` || third.Task.Class != task.High || third.Task.Seq != second.Seq {
		t.Fatalf("absorbed %+v", third)
	}
	del := d.one(latest("pool.delete", `{}`))
	fourth := d.enqueue(latest("pool.manage", `{"n":4}`))[0]
	if fourth.Result != store.Created || fourth.Task.Seq < del.Seq {
		t.Fatal("was absorbed over a task of another kind")
	}
	both := d.enqueue(latest("pool.manage", `{"n":5}`), latest("pool.manage", `{"n":6}`), latest("pool.delete", `{}`), latest("pool.delete", `{"last":true}`))
	for i, want := range []store.EnqueueResult{store.Coalesced, store.Coalesced, store.Created, store.Coalesced} {
		if both[i].Result != want {
			t.Fatalf("item %d was %s, want %s", i, both[i].Result, want)
		}
	}
	if both[3].Task.ID != both[2].Task.ID || string(both[3].Task.Params) != `{"last": true}` {
		t.Fatalf("within a batch: %+v", both[3])
	}
	if got, _ := d.get(fourth.Task.ID); string(got.Params) != `{"n": 6}` {
		t.Fatalf("params %s", got.Params)
	}
	if n := value[int](d, "select count(*) from slipway.events where type = 'coalesced'"); n != 4 {
		t.Fatalf("%d events of absorbed submits, want 4", n)
	}
}

func TestLatestIsAbsorbedDuringBackOffAndRunsAtOnce(t *testing.T) {
	d := newDatabase(t)
	it := item("pool:ns/a")
	it.Task.Mode, it.Task.Spec.Idempotent = task.Latest, true
	first := d.one(it)
	d.finish(d.claimOne(), failure)
	if got := d.claim(1); len(got) != 0 {
		t.Fatal("claimed during back-off")
	}
	again := d.enqueue(it)[0]
	if again.Result != store.Coalesced || again.Task.ID != first.ID || again.Task.SpentRetry != 0 {
		t.Fatalf("absorbed %+v", again)
	}
	if c := d.claimOne(); c.Task.ID != first.ID {
		t.Fatal("claimed another")
	}
}

func TestParallelTasksRunTogetherAndLeaveNoLane(t *testing.T) {
	d := newDatabase(t)
	d.enqueue(item(""), item(""), item(""))
	got := d.claim(10)
	if len(got) != 3 {
		t.Fatalf("claimed %d, want 3", len(got))
	}
	for _, c := range got {
		d.finish(c, success)
	}
	if n := value[int](d, "select count(*) from slipway.lanes"); n != 0 {
		t.Fatalf("%d lanes are left", n)
	}
}

func TestRejectNamesTheTaskInTheWay(t *testing.T) {
	d := newDatabase(t)
	reject := itemWith(func(i *store.Item) { i.OnConflict = task.ConflictReject }).of("branch:ns/a")
	first := d.one(reject)
	submit := func(items ...store.Item) error {
		_, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: items})
		return err
	}
	wantConflict(t, submit(reject), store.ConflictLaneBusy, first.ID)
	c := d.claimOne()
	other := item("volume:ns/x")
	wantConflict(t, submit(other, reject), store.ConflictLaneBusy, first.ID)
	if n := value[int](d, "select count(*) from slipway.tasks"); n != 1 {
		t.Fatalf("a refused batch left %d tasks", n-1)
	}
	d.finish(c, success)
	if err := submit(reject); err != nil {
		t.Fatal(err)
	}
}

func TestReplaceEndsQueuedStopsRunningAndGoesNext(t *testing.T) {
	d := newDatabase(t)
	of := func(kind string) store.Item {
		it := item("branch:ns/a")
		it.Task.Kind = kind
		return it
	}
	running := d.one(of("branch.start"))
	c := d.claimOne()
	kept := d.one(of("branch.observe"))
	dropped := d.one(of("branch.resize"))
	stop := of("branch.delete")
	stop.OnConflict, stop.Supersedes = task.ConflictReplace, []string{"branch.start", "branch.resize"}
	by := d.one(stop)
	d.wantState(dropped.ID, task.Canceled, task.ReasonSuperseded)
	if got, v := d.get(running.ID); got.State != task.Running || v.Phase != task.Canceling || v.Attempt.Stop != task.StopSuperseded {
		t.Fatalf("the running one: %+v", v)
	}
	d.finish(c, task.Verdict{Outcome: task.OutcomeCanceled, Reason: task.ReasonSuperseded})
	next := d.claimOne()
	if next.Task.ID != by.ID {
		t.Fatalf("next is %s, want the replacing task", next.Task.Kind)
	}
	d.finish(next, success)
	if last := d.claimOne(); last.Task.ID != kept.ID {
		t.Fatalf("after it %s runs", last.Task.Kind)
	}
}

func TestBackOffHoldsTheLaneUntilItsTime(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	it := item("volume:ns/a")
	it.Task.Spec.Idempotent = true
	first, second := d.one(it), d.one(it)
	urgent := it
	urgent.Task.Class = task.Critical
	d.one(urgent)
	r := d.finish(d.claimOne(), failure)
	if r.Move.Delay <= 0 || r.Task.State != task.Queued {
		t.Fatalf("move %+v", r.Move)
	}
	got, err := d.Claim(t.Context(), "default", 10)
	if err != nil || len(got.Claims) != 0 {
		t.Fatalf("somebody passed a task in back-off: %+v %v", got.Claims, err)
	}
	if got.NextIn <= 0 || got.NextIn > r.Move.Delay.Duration()+time.Millisecond {
		t.Fatalf("next look in %v, want %v", got.NextIn, r.Move.Delay.Duration())
	}
	if _, v := d.get(second.ID); v.Wait != task.WaitLane || v.HolderID != first.ID {
		t.Fatalf("the second waits for %s %s", v.Wait, v.HolderID)
	}
	d.advance(r.Move.Delay.Duration() + time.Second)
	if c := d.claimOne(); c.Task.ID != first.ID || c.Attempt.Number != 2 {
		t.Fatalf("after the back-off %s runs", c.Task.ID)
	}
}

func TestDelayedTaskStandsOutsideItsLaneAndDrawsItsPlaceWhenItEnters(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	late := item("volume:ns/a")
	late.Delay = time.Minute
	delayed := d.one(late)
	if delayed.Seq != 0 {
		t.Fatal("it has a place already")
	}
	if _, v := d.get(delayed.ID); v.Phase != task.Delayed {
		t.Fatalf("phase %s", v.Phase)
	}
	now := d.one(item("volume:ns/a"))
	c := d.claimOne()
	if c.Task.ID != now.ID {
		t.Fatal("the delayed task ran")
	}
	if n, err := d.EnterDue(t.Context(), 10); n != 0 || err != nil {
		t.Fatalf("entered early: %d, %v", n, err)
	}
	d.advance(time.Minute)
	if n, err := d.EnterDue(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("entered %d, %v", n, err)
	}
	behind := d.one(item("volume:ns/a"))
	d.finish(c, success)
	for _, want := range []string{delayed.ID, behind.ID} {
		c := d.claimOne()
		if c.Task.ID != want {
			t.Fatalf("out of order: %s", c.Task.ID)
		}
		d.finish(c, success)
	}
}

func TestDelayedTaskReplacesWhenItEnters(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	it := item("branch:ns/a")
	it.Delay, it.OnConflict, it.Supersedes = time.Minute, task.ConflictReplace, []string{"branch.resize"}
	it.Task.Kind = "branch.stop"
	d.one(it)
	resize := item("branch:ns/a")
	resize.Task.Kind = "branch.resize"
	queued := d.one(resize)
	d.wantState(queued.ID, task.Queued, "")
	d.advance(time.Minute)
	if _, err := d.EnterDue(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	d.wantState(queued.ID, task.Canceled, task.ReasonSuperseded)
}

func TestHeldHeadKeepsItsLane(t *testing.T) {
	d := newDatabase(t)
	first, second := d.one(item("volume:ns/a")), d.one(item("volume:ns/a"))
	if err := d.Hold(t.Context(), first.ID, "bob", "look first"); err != nil {
		t.Fatal(err)
	}
	if got := d.claim(10); len(got) != 0 {
		t.Fatalf("claimed %v", got)
	}
	if _, v := d.get(first.ID); v.Wait != task.WaitHeld || v.WaitNote != "bob: look first" {
		t.Fatalf("view %+v", v)
	}
	if _, v := d.get(second.ID); v.Wait != task.WaitLane || v.HolderID != first.ID {
		t.Fatalf("view of the second %+v", v)
	}
	if err := d.Unhold(t.Context(), first.ID, "bob"); err != nil {
		t.Fatal(err)
	}
	if c := d.claimOne(); c.Task.ID != first.ID {
		t.Fatal("another ran")
	}
}

func TestACancelThatWasAnsweredHoldsWhateverWasJudgedBeforeIt(t *testing.T) {
	d := newDatabase(t)
	for _, before := range []task.Verdict{success, failure, lost} {
		id := d.one(item("")).ID
		c := d.claimOne()
		if _, err := d.Cancel(t.Context(), id, "bob", ""); err != nil {
			t.Fatal(err)
		}
		_, err := d.Finish(t.Context(), c.Attempt.ID, c.Attempt.Fence, before, store.Ending{})
		if !errors.Is(err, store.ErrChanged) {
			t.Errorf("%s, judged before the cancel, was stored after it: %v", before.Outcome, err)
		}
		d.finish(c, task.Verdict{Outcome: task.OutcomeCanceled, Reason: task.ReasonCanceled})
		d.wantState(id, task.Canceled, task.ReasonCanceled)
	}
}

func TestCancelInEachState(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	cancel := func(id string) task.Task {
		t.Helper()
		got, err := d.Cancel(ctx, id, "bob", "not needed")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	running, queued, behind := d.one(item("volume:ns/a")), d.one(item("volume:ns/a")), d.one(item("volume:ns/a"))
	late := item("volume:ns/b")
	late.Delay = time.Hour
	delayed := d.one(late)
	c := d.claimOne()
	if got := cancel(queued.ID); got.State != task.Canceled || got.Reason != task.ReasonCanceled || got.CancelBy != "bob" {
		t.Fatalf("queued: %+v", got)
	}
	if got := cancel(delayed.ID); got.State != task.Canceled {
		t.Fatalf("delayed: %+v", got)
	}
	first := cancel(running.ID)
	if first.State != task.Running || first.CancelAt.IsZero() {
		t.Fatalf("running: %+v", first)
	}
	if again := cancel(running.ID); !again.CancelAt.Equal(first.CancelAt) {
		t.Fatal("the second ask changed something")
	}
	if _, a, _, _ := d.OpenAttempt(ctx, c.Attempt.ID); a.Stop != task.StopCancel {
		t.Fatalf("stop is %q", a.Stop)
	}
	if _, _, err := d.Start(ctx, store.StartRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "p"}); !errors.Is(err, store.ErrStopped) {
		t.Fatalf("start after cancel: %v", err)
	}
	d.finish(c, failure) // whatever the verdict, a canceled task is not tried again
	d.wantState(running.ID, task.Canceled, task.ReasonCanceled)
	var ended *store.EndedError
	if _, err := d.Cancel(ctx, running.ID, "bob", ""); !errors.As(err, &ended) || ended.State != task.Canceled {
		t.Fatalf("canceled: %v", err)
	}
	if _, err := d.Cancel(ctx, "00000000-0000-7000-8000-000000000000", "bob", ""); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("unknown: %v", err)
	}
	if c := d.claimOne(); c.Task.ID != behind.ID {
		t.Fatal("the lane does not go on")
	}
	retrying := item("volume:ns/r")
	retrying.Task.Spec.Idempotent = true
	r := d.one(retrying)
	d.finish(d.claimOne(), failure)
	if got := cancel(r.ID); got.State != task.Canceled {
		t.Fatalf("in back-off: %+v", got)
	}
}

func TestQueueDeadlineNamesTheHolder(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	holder := d.one(item("volume:ns/a"))
	it := item("volume:ns/a")
	it.Task.Spec.QueueDeadline = 60
	waits := d.one(it)
	d.claimOne()
	d.advance(59 * time.Second)
	if n, err := d.ExpireQueued(t.Context(), 10); n != 0 || err != nil {
		t.Fatalf("expired early: %d, %v", n, err)
	}
	d.advance(2 * time.Second)
	if n, err := d.ExpireQueued(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("expired %d, %v", n, err)
	}
	d.wantState(waits.ID, task.Failed, task.ReasonQueueDeadline)
	if got, _ := d.get(waits.ID); got.Message != "it waited for task "+holder.ID+", which holds lane volume:ns/a" {
		t.Fatal(got.Message)
	}
}

func TestAttemptsThatAreLostInARowAreCounted(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	d.one(item(""))
	quota := task.Verdict{Outcome: task.OutcomeLost, Reason: task.ReasonQuota}
	for i, step := range []struct {
		v    task.Verdict
		want int
	}{{lost, 1}, {lost, 2}, {quota, 0}, {lost, 3}, {failure, 0}, {lost, 1}, {lost, 2}} {
		d.advance(10 * time.Minute)
		if got := d.finish(d.claimOne(), step.v).LostInARow; got != step.want {
			t.Errorf("end %d: %d in a row, want %d", i, got, step.want)
		}
	}
}

func TestWhoWaitsBehindAnAttemptThatStopsIsToldWhichAndForHowLong(t *testing.T) {
	d := newDatabase(t)
	first := d.one(item("volume:ns/a")).ID
	behind := d.one(item("volume:ns/a")).ID
	c := d.claimOne()
	if _, v := d.get(behind); v.Wait != task.WaitLane || v.HolderID != first || v.WaitNote != "" {
		t.Fatalf("behind one at work: %+v", v)
	}
	if _, _, err := d.Start(t.Context(), store.StartRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "p", PodName: "p"}); err != nil {
		t.Fatal(err)
	}
	const note = "waiting for attempt 1 to stop, at most 11m0s after its last sign of life"
	// Its pod was deleted by somebody.
	if err := d.MarkWaiting(t.Context(), c.Attempt.ID, c.Attempt.Fence, task.WaitLaunch, "late", 0); !errors.Is(err, store.ErrStale) {
		t.Errorf("one that has started waits for its launch: %v", err)
	}
	if err := d.MarkWaiting(t.Context(), c.Attempt.ID, c.Attempt.Fence, task.WaitStop, note, 0); err != nil {
		t.Fatal(err)
	}
	if _, v := d.get(first); v.Phase != task.Working || v.Wait != task.WaitStop || v.WaitNote != note {
		t.Errorf("its own view: %+v", v)
	}
	if _, v := d.get(behind); v.Wait != task.WaitLane || v.HolderID != first || v.WaitNote != note {
		t.Errorf("behind it: %+v", v)
	}
	if _, err := d.Cancel(t.Context(), first, "bob", ""); err != nil {
		t.Fatal(err)
	}
	if _, v := d.get(first); v.Phase != task.Canceling || v.Wait != task.WaitStop || v.WaitNote != note {
		t.Errorf("canceled: %+v", v)
	}
	d.finish(c, task.Verdict{Outcome: task.OutcomeCanceled, Reason: task.ReasonCanceled})
	if _, v := d.get(behind); v.Wait != task.WaitDispatch {
		t.Errorf("after its end: %+v", v)
	}
}
