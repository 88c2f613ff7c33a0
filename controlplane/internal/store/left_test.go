package store_test

import (
	"strings"
	"testing"

	"slipway.dev/slipway/pkg/task"
)

// cutOff claims a Task, starts it, and ends the Attempt without a word of its handler.
func (d database) cutOff() {
	d.t.Helper()
	c := d.claimOne()
	if _, _, err := d.Start(d.t.Context(), start(c, "pod")); err != nil {
		d.t.Fatal(err)
	}
	d.finish(c, task.Verdict{Outcome: task.OutcomeLost, Reason: task.ReasonNodeLost, Message: "its node is gone", Spends: task.SpendsLost, Started: true, Silent: true})
	d.atOnce()
}

// atOnce ends every back-off.
func (d database) atOnce() {
	d.t.Helper()
	d.sql("UPDATE slipway.tasks SET run_at = slipway.now() WHERE state = 'queued'; UPDATE slipway.lanes SET ready_at = NULL")
}

func TestATaskThatIsNotTriedAgainSaysWhatMayGoOn(t *testing.T) {
	const goesOn = "attempt 1 was lost (node_lost), and what it had begun may go on"
	said := func(v task.Verdict) func(database, string) {
		return func(d database, _ string) {
			c := d.claimOne()
			if _, _, err := d.Start(d.t.Context(), start(c, "pod")); err != nil {
				d.t.Fatal(err)
			}
			v.Started = true
			d.finish(c, v)
		}
	}
	rejected := task.Verdict{Outcome: task.OutcomeRejected, Reason: task.ReasonInvalid, Message: "no such class", Spends: task.SpendsRetry}
	cancel := func(d database, id string) {
		if _, err := d.Cancel(d.t.Context(), id, "bob", "wrong one"); err != nil {
			d.t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		end  func(d database, id string)
		want string
	}{
		"canceled between two attempts": {cancel, "wrong one; " + goesOn},
		"canceled without a note": {func(d database, id string) {
			if _, err := d.Cancel(d.t.Context(), id, "bob", ""); err != nil {
				d.t.Fatal(err)
			}
		}, goesOn},
		"canceled with a note of any length": {func(d database, id string) {
			if _, err := d.Cancel(d.t.Context(), id, "bob", strings.Repeat("long ", 2000)); err != nil {
				d.t.Fatal(err)
			}
		}, goesOn},
		"queue deadline between two attempts": {func(d database, _ string) {
			d.sql("UPDATE slipway.tasks SET queue_by = slipway.now() WHERE state = 'queued'")
			if _, err := d.ExpireQueued(d.t.Context(), 10); err != nil {
				d.t.Fatal(err)
			}
		}, "it waited in its queue; " + goesOn},
		"replaced between two attempts": {func(d database, _ string) {
			next := item("volume:ns/a")
			next.OnConflict, next.Supersedes = task.ConflictReplace, []string{"volume.resize"}
			d.one(next)
		}, goesOn},
		"canceled before its next attempt started": {func(d database, id string) {
			c := d.claimOne()
			cancel(d, id)
			d.finish(c, task.Verdict{Outcome: task.OutcomeCanceled, Reason: task.ReasonCanceled, Message: "wrong one"})
		}, "wrong one; " + goesOn},
		"the next one cannot start": {func(d database, _ string) { d.finish(d.claimOne(), rejected) }, "no such class; " + goesOn},
		"the lost budget is spent": {func(d database, _ string) {
			d.sql("UPDATE slipway.tasks SET spent_lost = 20")
			d.cutOff()
		}, "its node is gone; attempt 2 was lost (node_lost), and what it had begun may go on"},
		"the lost budget is spent by one that never started": {func(d database, _ string) {
			d.sql("UPDATE slipway.tasks SET spent_lost = 20")
			d.finish(d.claimOne(), lost)
		}, goesOn},
		"killed while it was being stopped": {func(d database, id string) {
			c := d.claimOne()
			if _, _, err := d.Start(d.t.Context(), start(c, "pod")); err != nil {
				d.t.Fatal(err)
			}
			cancel(d, id)
			d.finish(c, task.Verdict{Outcome: task.OutcomeCanceled, Reason: task.ReasonCanceled, Message: "wrong one", Started: true, Silent: true})
		}, "wrong one; attempt 2 ended without a word (cancel), and what it had begun may go on"},
		"the next one takes it over and succeeds": {said(success), ""},
		"the next one takes it over and fails":    {said(rejected), "no such class"},
		"the next one fails, and then a cancel": {func(d database, id string) {
			said(task.Verdict{Outcome: task.OutcomeFailed, Reason: task.ReasonExitCode, Message: "busy", Spends: task.SpendsRetry})(d, id)
			cancel(d, id)
		}, "wrong one"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			it := item("volume:ns/a")
			it.Task.Spec.Idempotent = true
			id := d.one(it).ID
			d.cutOff()
			if got, _ := d.get(id); got.State != task.Queued {
				t.Fatalf("it is %s after a loss", got.State)
			}
			tc.end(d, id)
			got, _ := d.get(id)
			as := got.Message == tc.want || tc.want == goesOn && strings.HasSuffix(got.Message, "; "+goesOn)
			if !got.State.Terminal() || !as {
				t.Errorf("%s %q, want %q", got.State, got.Message, tc.want)
			}
		})
	}
	d := newDatabase(t)
	heard := item("volume:ns/b")
	heard.Task.Spec.Idempotent = true
	id := d.one(heard).ID
	c := d.claimOne()
	if _, _, err := d.Start(t.Context(), start(c, "pod")); err != nil {
		t.Fatal(err)
	}
	d.finish(c, task.Verdict{Outcome: task.OutcomeFailed, Reason: task.ReasonExitCode, Message: "taken back", Spends: task.SpendsRetry, Started: true})
	cancel(d, id)
	if got, _ := d.get(id); got.Message != "wrong one" {
		t.Errorf("after a try that had its word: %q", got.Message)
	}
}
