package store_test

import (
	"encoding/json"
	"errors"
	"testing"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

func TestOneTaskGoesTheWholeLine(t *testing.T) {
	d := newDatabase(t).running()
	ctx := t.Context()
	made, c, report := d.reported()
	r := d.finish(c, success)
	if r.Task.State != task.Succeeded || string(r.Task.Result) != `{"n": 7}` {
		t.Fatalf("finished %+v", r.Task)
	}
	if err := d.Report(ctx, report); err != nil {
		t.Fatalf("the same report after the end: %v", err)
	}
	if tail, err := d.LogTail(ctx, c.Attempt.ID); err != nil || string(tail) != "last line\n" {
		t.Fatalf("tail %q, %v", tail, err)
	}
	if err := d.KeepLog(ctx, c.Attempt.ID, []byte("what the kubelet had\n")); err != nil {
		t.Fatal(err)
	}
	if tail, err := d.LogTail(ctx, c.Attempt.ID); err != nil || string(tail) != "last line\n" {
		t.Fatalf("the runner's own tail was replaced by %q, %v", tail, err)
	}
	open, err := d.OpenAttempts(ctx)
	if err != nil || len(open) != 1 {
		t.Fatalf("open attempts %v, %v", open, err)
	}
	if err := d.MarkClosed(ctx, c.Attempt.ID); err != nil {
		t.Fatal(err)
	}
	if open, _ = d.OpenAttempts(ctx); len(open) != 0 {
		t.Fatalf("open attempts after closing %v", open)
	}
	events, err := d.Events(ctx, made.ID, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, e := range events {
		types = append(types, e.Type)
	}
	want := []string{"submitted", "claimed", "started", "succeeded"}
	if len(types) != len(want) {
		t.Fatalf("events %v, want %v", types, want)
	}
	rest, err := d.Events(ctx, made.ID, events[2].Position, 100)
	if err != nil || len(rest) != 1 {
		t.Fatalf("events after %s: %v, %v", events[2].Position, rest, err)
	}
}

// reported takes a Task up to the report of its runner, with what each step promises.
func (d database) reported() (made task.Task, c store.Claimed, report store.ReportRequest) {
	t := d.t
	t.Helper()
	ctx := t.Context()
	made = d.one(item("volume:ns/a"))
	if made.State != task.Queued || made.Seq == 0 || made.CreatedAt.IsZero() {
		t.Fatalf("created %+v", made)
	}
	c = d.claimOne()
	if c.Task.ID != made.ID || c.Attempt.Number != 1 || c.Attempt.Fence == 0 || c.Task.State != task.Running {
		t.Fatalf("claimed %+v", c)
	}
	if err := d.MarkLaunched(ctx, c.Attempt.ID, c.Attempt.Fence, "job-1", "uid-1"); err != nil {
		t.Fatal(err)
	}
	start := store.StartRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "pod-1", PodName: "p", Node: "n"}
	if _, a, err := d.Start(ctx, start); err != nil || a.State != task.Started || a.JobUID != "uid-1" {
		t.Fatalf("start: %+v, %v", a, err)
	}
	if _, _, err := d.Start(ctx, start); err != nil {
		t.Fatalf("the same pod asks again: %v", err)
	}
	other := start
	other.PodUID = "pod-2"
	if _, _, err := d.Start(ctx, other); !errors.Is(err, store.ErrOtherPod) {
		t.Fatalf("another pod: %v", err)
	}
	beat, err := d.Beat(ctx, store.BeatRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "pod-1", Progress: json.RawMessage(`{"done":1,"total":2}`)})
	if err != nil || beat.Cancel || beat.Left <= 0 {
		t.Fatalf("beat: %+v, %v", beat, err)
	}
	if _, v := d.get(made.ID); v.Phase != task.Working || string(v.Progress) != `{"done": 1, "total": 2}` {
		t.Fatalf("view %+v", v)
	}
	report = store.ReportRequest{
		Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "pod-1", Tail: []byte("last line\n"),
		Report: task.Report{Outcome: task.OutcomeSucceeded, Result: json.RawMessage(`{"n":7}`)},
	}
	for range 2 {
		if err := d.Report(ctx, report); err != nil {
			t.Fatal(err)
		}
	}
	read, a, now, err := d.OpenAttempt(ctx, c.Attempt.ID)
	if err != nil || a.Report == nil || a.Beat.IsZero() || now.IsZero() || read.ID != made.ID {
		t.Fatalf("open attempt: %+v %v", a, err)
	}
	return made, c, report
}

func TestAnAttemptThatEndsBeforeItsLaunchIsRecordedNamesItsJobAllTheSame(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	made := d.one(item("volume:ns/a"))
	c := d.claimOne()
	d.finish(c, success)
	if err := d.MarkLaunched(ctx, c.Attempt.ID, c.Attempt.Fence+1, "another", "u"); !errors.Is(err, store.ErrStale) {
		t.Errorf("with another fence: %v", err)
	}
	for _, name := range []string{"job-1", "a later one"} {
		if err := d.MarkLaunched(ctx, c.Attempt.ID, c.Attempt.Fence, name, "uid-1"); !errors.Is(err, store.ErrStale) {
			t.Errorf("%s: %v, want stale", name, err)
		}
	}
	if n := value[int](d, "SELECT count(*) FROM slipway.attempts WHERE state = 'finished' AND job_name = 'job-1' AND job_uid = 'uid-1'"); n != 1 {
		t.Error("its job is not named, or named anew")
	}
	d.wantState(made.ID, task.Succeeded, "")
}

func TestFinishIsIdempotentAndAStaleFenceChangesNothing(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	made := d.one(item("volume:ns/a"))
	first := d.claimOne()
	d.finish(first, lost)
	d.wantState(made.ID, task.Queued, task.ReasonEvicted)
	d.sql("UPDATE slipway.lanes SET ready_at = slipway.now(); UPDATE slipway.tasks SET run_at = slipway.now()")
	second := d.claimOne()
	if second.Attempt.Number != 2 || second.Attempt.Fence <= first.Attempt.Fence {
		t.Fatalf("second attempt %+v", second.Attempt)
	}
	before := value[string](d, "select t::text || a::text from slipway.tasks t, slipway.attempts a where a.number = 2")
	stale := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrStale) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, err := d.Finish(ctx, first.Attempt.ID, first.Attempt.Fence, success, store.Ending{})
	stale("finish of an ended attempt", err)
	_, err = d.Finish(ctx, second.Attempt.ID, first.Attempt.Fence, success, store.Ending{})
	stale("finish with an old fence", err)
	stale("launch", d.MarkLaunched(ctx, second.Attempt.ID, first.Attempt.Fence, "j", "u"))
	stale("wait", d.MarkWaiting(ctx, first.Attempt.ID, first.Attempt.Fence, task.WaitQuota, "", 0))
	_, _, err = d.Start(ctx, store.StartRequest{Attempt: second.Attempt.ID, Fence: first.Attempt.Fence, PodUID: "p"})
	stale("start", err)
	stale("report", d.Report(ctx, store.ReportRequest{Attempt: second.Attempt.ID, Fence: first.Attempt.Fence, PodUID: "p"}))
	stale("stop", d.Stop(ctx, second.Attempt.ID, first.Attempt.Fence, task.StopCancel, ""))
	after := value[string](d, "select t::text || a::text from slipway.tasks t, slipway.attempts a where a.number = 2")
	if before != after {
		t.Fatalf("a stale write changed something:\n%s\n%s", before, after)
	}
	d.finish(second, success)
	d.wantState(made.ID, task.Succeeded, "")
}

func TestALogThatNoRunnerSentIsKept(t *testing.T) {
	d := newDatabase(t).running()
	d.one(item("volume:ns/a"))
	c := d.claimOne()
	if err := d.KeepLog(t.Context(), c.Attempt.ID, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.LogTail(t.Context(), c.Attempt.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an empty log is kept: %v", err)
	}
	if err := d.KeepLog(t.Context(), c.Attempt.ID, []byte("last words\n")); err != nil {
		t.Fatal(err)
	}
	if tail, err := d.LogTail(t.Context(), c.Attempt.ID); err != nil || string(tail) != "last words\n" {
		t.Errorf("kept %q, %v", tail, err)
	}
}
