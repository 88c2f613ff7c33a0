package task

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// initFailed is a pod whose main container never started because the init container of that name ended with code.
func initFailed(name string, code int) SeenPod {
	p := pod("Failed", SeenContainer{Waiting: "PodInitializing"})
	p.Containers = append([]SeenContainer{{Name: name, Before: true, Terminated: &Terminated{ExitCode: code, Reason: "Error"}}}, p.Containers...)
	return p
}

// unwrapped is a Task without a runner inside.
func unwrapped() Task {
	t := someTask()
	t.Spec.Pod.Wrap = WrapNone
	return t
}

func TestWithoutARunnerTheExitCodeAndTheMessageTellTheEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		a      Attempt
		s      Seen
		want   Outcome
		reason Reason
		rule   string
	}{
		{"exit 0", started(), live(over(), endedPod(0, "Completed", "")), OutcomeSucceeded, "", "9"},
		{"exit 0, and the gate's start is not known", launched(), live(over(), endedPod(0, "Completed", "")), OutcomeSucceeded, "", "9"},
		{"exit 3", started(), live(over(), endedPod(3, "Error", "")), OutcomeFailed, ReasonExitCode, "8"},
		{"121 is the program's own", started(), live(over(), endedPod(ExitGateRefused, "Error", "")), OutcomeFailed, ReasonExitCode, "8"},
		{"its own message", started(), live(over(), endedPod(0, "Completed", "v1 7 41 rejected bad_input no such table")), OutcomeRejected, "bad_input", "2"},
		{"memory", started(), live(over(), endedPod(137, "OOMKilled", "")), OutcomeFailed, ReasonOOMKilled, "6"},
		{"deadline", started(), live(over(), endedPod(0, "Completed", "").with(func(p *SeenPod) { p.Reason = "DeadlineExceeded" })), OutcomeTimedOut, ReasonRunDeadline, "4"},
		{"the gate was refused", launched(), live(over(), initFailed(GateContainer, ExitGateRefused)), OutcomeLost, ReasonNoReport, "7"},
		{"the gate reached nobody", launched(), live(over(), initFailed(GateContainer, ExitUnreachable)), OutcomeLost, ReasonUnreachable, "7"},
	} {
		if v := Judge(unwrapped().Spec, c.a, c.s); v.Outcome != c.want || v.Reason != c.reason || !strings.HasPrefix(v.Rule, c.rule) {
			t.Errorf("%s: got %s/%s by rule %q, want %s/%s by %s", c.name, v.Outcome, v.Reason, v.Rule, c.want, c.reason, c.rule)
		}
	}
}

func TestWithoutARunnerFenceTimeHandsNoLaneOn(t *testing.T) {
	gone := having(started(), KnownPod{UID: "pod-1"})
	cutOff := runningPod()
	collected := runningPod().with(func(p *SeenPod) { p.Phase, p.Disruption = "Failed", "DeletionByPodGC" })
	tainted := runningPod().with(func(p *SeenPod) { p.NodeGone = true })
	neverAsked := having(launched(), KnownPod{UID: "pod-1"})
	for _, c := range []struct {
		name                string
		a                   Attempt
		s                   Seen
		wrapped, withoutOne bool
	}{
		{"its pod is gone without a word", gone, live(nil), true, false},
		{"its node is cut off", started(), live(alive(), cutOff), true, false},
		{"its Node is deleted", started(), live(nil, collected), true, true},
		{"its Node is deleted, and the Job stands", started(), live(alive(), collected), true, true},
		{"its Node is out of service", started(), live(nil, tainted), true, true},
		{"the kubelet says that it has ended", started(), live(over(), endedPod(0, "Completed", "")), true, true},
		{"the gate was never passed, and its pod is gone", neverAsked, live(nil), true, true},
	} {
		for _, way := range []struct {
			task Task
			want bool
		}{{someTask(), c.wrapped}, {unwrapped(), c.withoutOne}} {
			if over, why := Over(way.task.Spec, c.a, c.s, at(100*fence)); over != way.want {
				t.Errorf("%s, wrap %q: over is %v (%s)", c.name, way.task.Spec.Pod.Wrap, over, why)
			}
		}
	}
}

func TestBehindAGateABadImageEndsAtTheStartDeadline(t *testing.T) {
	task := unwrapped()
	waiting := live(alive(), waitingPod("ImagePullBackOff", "not found"))
	if d := Decide(task, started(), waiting, at(time.Minute)); d.Action != ActWait || !strings.Contains(d.Why, "not found") {
		t.Errorf("within the start deadline: %+v", d)
	}
	d := Decide(task, started(), waiting, at(3*time.Minute))
	if d.Action != ActStop || d.Stop != StopStartDeadline {
		t.Fatalf("after it: %+v", d)
	}
	if v := Judge(task.Spec, stopped(started(), d.Stop), waiting); v.Reason != ReasonImagePull {
		t.Errorf("judged %+v", v)
	}
	if d := Decide(task, started(), live(alive(), waitingPod("CreateContainerConfigError", "no secret")), at(time.Second)); d.Stop != StopInvalid {
		t.Errorf("a missing secret: %+v", d)
	}
}

func TestNoStartDeadlineRunsWhileAJobIsSuspended(t *testing.T) {
	for _, after := range []time.Duration{time.Second, time.Hour, 48 * time.Hour} {
		if d := Decide(someTask(), launched(), live(suspended()), at(after)); d.Action != ActWait {
			t.Errorf("after %v: %+v", after, d)
		}
	}
	// Let go after an hour: the deadline counts from there.
	freed := alive()
	freed.Waited = time.Hour
	for _, s := range []Seen{asked(live(freed), nil), live(freed, unbound()), live(freed, waitingPod("ContainerCreating", ""))} {
		if d := Decide(someTask(), launched(), s, at(time.Hour+time.Minute)); d.Action != ActWait {
			t.Errorf("a minute after: %+v", d)
		}
		if d := Decide(someTask(), launched(), s, at(time.Hour+3*time.Minute)); d.Action != ActStop || d.Stop != StopStartDeadline {
			t.Errorf("three minutes after: %+v", d)
		}
	}
}

func TestASpecWithoutWishesForItsPodIsWrittenAsBefore(t *testing.T) {
	raw, err := json.Marshal(DefaultSpec())
	if err != nil || strings.Contains(string(raw), "pod") {
		t.Errorf("%s, %v", raw, err)
	}
}

// Behind a gate the start is won before the image is pulled: what never ran may be tried again, idempotent or not.
func TestAnImageThatNeverRanBehindItsGateMayBeTriedAgain(t *testing.T) {
	task := unwrapped()
	task.Spec.Idempotent = false
	for name, c := range map[string]struct {
		note string
		end  *Terminated
		want State
	}{
		"never located":            {"ErrImagePull: not found", &Terminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}, Queued},
		"still waiting":            {"ErrImagePull: not found", nil, Queued},
		"it came while we stopped": {"ErrImagePull: not found", &Terminated{Ran: true, ExitCode: 143, Reason: "Error"}, Failed},
	} {
		a := stopped(started(), StopStartDeadline)
		a.StopNote = c.note
		p := pod("Failed", SeenContainer{Terminated: c.end, Waiting: "ImagePullBackOff"})
		if move := After(task, Judge(task.Spec, a, live(over(), p))); move.State != c.want {
			t.Errorf("%s: the Task becomes %s/%s, want %s", name, move.State, move.Reason, c.want)
		}
	}
}
