package task

import (
	"testing"
	"time"
)

func TestTheBoundsOfAnInlineAttemptLeaveNoOverlap(t *testing.T) {
	if InlineCancelAfter >= InlineExitAfter || InlineExitAfter >= InlineFenceAfter || InlineFenceAfter >= InlineSilence || InlineBeat*5 > InlineCancelAfter {
		t.Error("the bounds are not in order")
	}
}

func TestAnInlineAttemptEndsByItsReportOrTheSilenceOfItsReplicaAndByNothingThatTheClusterShows(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	spec := DefaultSpec()
	spec.Idempotent, spec.RunDeadline = true, InlineMost
	tk := Task{State: Running, Spec: spec}
	leased := Attempt{ID: 7, Fence: 41, Executor: ExecutorInline, State: Leased, ClaimedAt: begin}
	atWork := leased
	atWork.State, atWork.PodUID, atWork.StartedAt = Started, "inline/a/x", begin
	beaten := atWork
	beaten.Beat = begin.Add(50 * time.Second)
	with := func(a Attempt, change func(*Attempt)) Attempt { change(&a); return a }
	stopped := func(a *Attempt) { a.Stop, a.StopAt = StopCancel, begin }
	said := func(a *Attempt) { a.Report = &Report{Outcome: OutcomeSucceeded, At: begin} }
	anew := func(a *Attempt) { a.Pods = []KnownPod{{UID: "inline/a/x", Ended: true}} }
	another := func(a *Attempt) { a.Pods = []KnownPod{{UID: "inline/a/x"}, {UID: "inline/a/y", Ended: true}} }
	late := func(a *Attempt) { stopped(a); said(a); a.Late = true }
	for _, c := range []struct {
		name    string
		a       Attempt
		after   time.Duration
		want    Action
		outcome Outcome
		stop    StopReason
	}{
		{"claimed", leased, time.Second, ActLaunch, "", ""},
		{"claimed and no place for two minutes", leased, 2 * time.Minute, ActStop, "", StopStartDeadline},
		{"stopped before it started", with(leased, stopped), time.Second, ActFinish, OutcomeCanceled, ""},
		{"at work", atWork, 59 * time.Second, ActWait, "", ""},
		{"silent from its start on", atWork, 60 * time.Second, ActFinish, OutcomeLost, ""},
		{"its replica was started anew", with(atWork, anew), time.Second, ActFinish, OutcomeLost, ""},
		{"started anew after it was asked to stop", with(with(atWork, stopped), anew), time.Second, ActFinish, OutcomeCanceled, ""},
		{"started anew after its report", with(with(atWork, said), anew), time.Second, ActFinish, OutcomeSucceeded, ""},
		{"the process of another try has ended", with(atWork, another), time.Second, ActWait, "", ""},
		{"silent since a beat", beaten, 109 * time.Second, ActStop, "", StopRunDeadline},
		{"asked to stop, still there", with(beaten, stopped), 109 * time.Second, ActWait, "", ""},
		{"asked to stop, then silent", with(beaten, stopped), 110 * time.Second, ActFinish, OutcomeCanceled, ""},
		{"reported", with(atWork, said), time.Second, ActFinish, OutcomeSucceeded, ""},
		{"reported after it was asked to stop", with(atWork, late), time.Second, ActFinish, OutcomeCanceled, ""},
	} {
		for _, s := range []Seen{{}, {Live: true}, live(over(), endedPod(1, "Error", ""))} {
			d := Decide(tk, c.a, s, begin.Add(c.after))
			if d.Action != c.want || d.Verdict.Outcome != c.outcome || d.Stop != c.stop || d.Action == ActWait && d.Again <= 0 {
				t.Errorf("%s: %+v", c.name, d)
			}
		}
	}
	lost := Decide(tk, atWork, Seen{}, begin.Add(time.Minute)).Verdict
	if lost.Spends != SpendsLost || lost.Reason != ReasonHeartbeat || !lost.Started {
		t.Errorf("a silent replica: %+v", lost)
	}
}

func TestOnlyWhatIsShortIdempotentAndAsksForNothingOfAPodRunsInline(t *testing.T) {
	fits := DefaultSpec()
	fits.Idempotent, fits.RunDeadline = true, InlineMost
	if field, why := InlineBar(fits, false); field != "" {
		t.Fatalf("%s %s", field, why)
	}
	for field, change := range map[string]func(*Spec){
		"idempotent":      func(s *Spec) { s.Idempotent = false },
		"run_deadline":    func(s *Spec) { s.RunDeadline = InlineMost + 1 },
		"image":           func(s *Spec) { s.Image = "x" },
		"service_account": func(s *Spec) { s.ServiceAccount = "x" },
		"requests":        func(s *Spec) { s.Requests = map[string]string{"cpu": "1"} },
		"limits":          func(s *Spec) { s.Limits = map[string]string{"memory": "1Gi"} },
		"node_selector":   func(s *Spec) { s.NodeSelector = map[string]string{"a": "b"} },
		"pod":             func(s *Spec) { s.Pod.Secrets = map[string]KeyRef{"password": {}} },
	} {
		s := fits
		change(&s)
		if got, why := InlineBar(s, false); got != field || why == "" {
			t.Errorf("%s: got %q %q", field, got, why)
		}
		if got, _ := InlineBar(s, true); (got == "") != (field == "idempotent") {
			t.Errorf("%s where it can run nowhere else: got %q", field, got)
		}
	}
}
