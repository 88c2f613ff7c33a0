package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// here says that the claiming process has a handler of the tests' kind.
var here = store.Inline{Kinds: []string{"volume.resize"}, Room: 1000}

// fits makes an item that may run inline.
var fits = itemWith(func(it *store.Item) { it.Task.Spec.Inline = true })

func (d database) claimFor(limit int, inline store.Inline) []store.Claimed {
	d.t.Helper()
	r, err := d.ClaimFor(d.t.Context(), "default", limit, inline)
	if err != nil {
		d.t.Fatal(err)
	}
	return r.Claims
}

func (d database) switched(to task.Executor, percent int) {
	d.t.Helper()
	err := d.SwitchKind(d.t.Context(), store.KindSwitch{Kind: "volume.resize", Executor: string(to), Percent: percent, Actor: "ada"})
	if err != nil {
		d.t.Fatal(err)
	}
}

func TestATaskRunsInlineOnlyWhereItsKindIsSwitchedItsSpecAllowsItAndThisProcessCan(t *testing.T) {
	d := newDatabase(t)
	for _, c := range []struct {
		name string
		item store.Item
		to   task.Executor
		in   store.Inline
		want task.Executor
	}{
		{"not switched", fits.of(""), "", here, task.ExecutorJob},
		{"switched", fits.of(""), task.ExecutorInline, here, task.ExecutorInline},
		{"its spec does not allow it", item(""), task.ExecutorInline, here, task.ExecutorJob},
		{"no handler here", fits.of(""), task.ExecutorInline, store.Inline{}, task.ExecutorJob},
		{"its namespace takes no Jobs", fits.of(""), "", store.Inline{Kinds: here.Kinds, Room: 1000, Fallback: []string{"ns"}}, task.ExecutorInline},
		{"another namespace takes no Jobs", fits.of(""), "", store.Inline{Kinds: here.Kinds, Room: 1000, Fallback: []string{"other"}}, task.ExecutorJob},
		{"there are no Jobs to be had", fits.of(""), task.ExecutorJob, store.Inline{Kinds: here.Kinds, Room: 1000, Only: true}, task.ExecutorInline},
	} {
		d.switched(c.to, 100)
		made := d.one(c.item)
		got := d.claimFor(10, c.in)
		if len(got) != 1 || got[0].Task.ID != made.ID || got[0].Attempt.Executor != c.want {
			t.Fatalf("%s: claimed %+v, want %s", c.name, got, c.want)
		}
		d.finish(got[0], success)
	}
}

func TestWhereThereAreNoJobsOnlyWhatRunsInlineIsClaimedFromBehindAnyNumberOfOthers(t *testing.T) {
	d := newDatabase(t)
	d.queue(func(q *store.Queue) { q.Cap, q.NamespaceCap = 100, 100 })
	for range 50 {
		d.one(item(""))
	}
	small := d.one(fits.of(""))
	only := store.Inline{Kinds: here.Kinds, Room: 1000, Only: true}
	got := d.claimFor(5, only)
	if len(got) != 1 || got[0].Task.ID != small.ID || got[0].Attempt.Executor != task.ExecutorInline {
		t.Fatalf("claimed %+v", got)
	}
	if got := d.claimFor(5, only); len(got) != 0 {
		t.Fatalf("claimed %d that need a Job", len(got))
	}
	if got := d.claimFor(100, here); len(got) != 50 {
		t.Fatalf("claimed %d of 50 once there are Jobs again", len(got))
	}
}

func TestNoMoreRunsInlineThanThereIsRoomForAndTheRestHidesNothing(t *testing.T) {
	d := newDatabase(t)
	d.switched(task.ExecutorInline, 100)
	for range 6 {
		d.one(fits.of(""))
	}
	d.one(item(""))
	by := func(room int) (inline, jobs int) {
		for _, c := range d.claimFor(5, store.Inline{Kinds: here.Kinds, Room: room}) {
			if c.Attempt.Executor == task.ExecutorInline {
				inline++
			} else {
				jobs++
			}
		}
		return inline, jobs
	}
	if inline, jobs := by(2); inline != 2 || jobs != 0 {
		t.Fatalf("%d inline and %d jobs, want 2 and 0", inline, jobs)
	}
	if inline, jobs := by(0); inline != 0 || jobs != 1 {
		t.Fatalf("%d inline and %d jobs behind them, want 0 and 1", inline, jobs)
	}
	if inline, jobs := by(5); inline != 4 || jobs != 0 {
		t.Fatalf("%d inline and %d jobs, want the 4 that are left", inline, jobs)
	}
}

func TestAPercentageTakesThatPartOfTheLanesAndAlwaysTheSame(t *testing.T) {
	d := newDatabase(t)
	const lanes = 400
	round := func() map[string]task.Executor {
		for i := range lanes {
			d.one(fits.of(fmt.Sprintf("volume:ns/data-%d", i)))
		}
		ran := map[string]task.Executor{}
		for _, c := range d.claimFor(lanes, here) {
			ran[c.Task.Lane] = c.Attempt.Executor
			d.finish(c, success)
		}
		return ran
	}
	d.queue(func(q *store.Queue) { q.Cap, q.NamespaceCap, q.MaxQueued = lanes, lanes, 10*lanes })
	d.switched(task.ExecutorInline, 25)
	first, inline := round(), 0
	for _, by := range first {
		if by == task.ExecutorInline {
			inline++
		}
	}
	if len(first) != lanes || inline < lanes/5 || inline > lanes*3/10 {
		t.Fatalf("%d of %d lanes ran inline, want about a quarter", inline, len(first))
	}
	for lane, by := range round() {
		if first[lane] != by {
			t.Fatalf("lane %s ran as %s, and before as %s", lane, by, first[lane])
		}
	}
	d.switched(task.ExecutorOff, 25)
	kept := map[string]bool{}
	for i := range lanes {
		kept[fmt.Sprintf("volume:ns/data-%d", i)] = true
		d.one(fits.of(fmt.Sprintf("volume:ns/data-%d", i)))
	}
	for _, c := range d.claimFor(lanes, here) {
		delete(kept, c.Task.Lane)
	}
	if len(kept) != inline {
		t.Fatalf("%d lanes are kept, want the same %d", len(kept), inline)
	}
	for lane := range kept {
		if first[lane] != task.ExecutorInline {
			t.Fatalf("lane %s is off, and is not in the first quarter", lane)
		}
	}
}

func TestAReplicaBeforeThisVersionMakesNoInlineAttempt(t *testing.T) {
	d := newDatabase(t)
	d.one(fits.of(""))
	d.switched(task.ExecutorInline, 100)
	d.sql(`SELECT set_config('slipway.binary', '4', false); UPDATE slipway.tasks SET min_binary = 4;
		INSERT INTO slipway.attempts (task, number, fence, lane, queue, namespace, kind, executor, replica, state, claimed_at)
		SELECT key, 1, 99, lane, queue, namespace, kind, 'inline', 'old', 'leased', now() FROM slipway.tasks`)
	if got := value[string](d, "SELECT executor FROM slipway.attempts"); got != "job" {
		t.Fatalf("it made one of executor %s", got)
	}
}

func TestAnAttemptOfAJobThatNobodyHeardOfIsStartedByAPodOrInlineAndNeverByBoth(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	pod := func(c store.Claimed) store.StartRequest {
		return store.StartRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "pod", PodName: "p", Node: "n"}
	}
	inline := func(c store.Claimed) store.StartRequest {
		return store.StartRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "inline/a", Inline: true}
	}
	d.one(fits.of(""))
	c := d.claimOne()
	if _, a, err := d.Start(ctx, inline(c)); err != nil || a.Executor != task.ExecutorInline {
		t.Fatalf("inline: %+v, %v", a, err)
	}
	if _, _, err := d.Start(ctx, pod(c)); !errors.Is(err, store.ErrOtherPod) {
		t.Fatalf("the pod of a Job that turned up: %v", err)
	}
	d.finish(c, success)
	d.one(fits.of(""))
	c = d.claimOne()
	if _, _, err := d.Start(ctx, pod(c)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Start(ctx, inline(c)); !errors.Is(err, store.ErrOtherPod) {
		t.Fatalf("inline after the pod: %v", err)
	}
	d.finish(c, success)
	d.one(fits.of(""))
	c = d.claimOne()
	if err := d.MarkLaunched(ctx, c.Attempt.ID, c.Attempt.Fence, "job", "uid"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Start(ctx, inline(c)); !errors.Is(err, store.ErrStale) {
		t.Fatalf("inline although its Job is known: %v", err)
	}
	d.finish(c, success)
	d.switched(task.ExecutorInline, 100)
	d.one(fits.of(""))
	c = d.claimFor(1, here)[0]
	if _, _, err := d.Start(ctx, pod(c)); !errors.Is(err, store.ErrStale) {
		t.Fatalf("a pod of what was claimed to run inline: %v", err)
	}
}

func TestWhatAnEarlierProcessOfThePodHeldInlineIsKeptAsEndedAndNothingElse(t *testing.T) {
	d := newDatabase(t)
	d.switched(task.ExecutorInline, 100)
	const ours, mine = "inline/a/pod-1/", "inline/a/pod-1/new/"
	started := map[string]store.Claimed{}
	for _, holder := range []string{ours + "old/1", ours + "old/2", mine + "1", "inline/b/pod-1/x/1", "inline/a/pod-2/x/1"} {
		d.one(fits.of(""))
		c := d.claimFor(1, here)[0]
		if _, _, err := d.Start(t.Context(), store.StartRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: holder, Inline: true}); err != nil {
			t.Fatal(err)
		}
		started[holder] = c
	}
	d.finish(started[ours+"old/2"], success)
	for range 2 { // it may be told again
		if err := d.Outlived(t.Context(), ours, mine); err != nil {
			t.Fatal(err)
		}
	}
	for holder, c := range started {
		all, err := d.Attempts(t.Context(), c.Task.ID)
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		ended := slices.ContainsFunc(all[0].Pods, func(p task.KnownPod) bool { return p.UID == holder && p.Ended })
		if want := holder == ours+"old/1"; ended != want {
			t.Errorf("%s is kept as ended: %v", holder, ended)
		}
	}
}
