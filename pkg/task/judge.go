package task

import (
	"fmt"
	"strings"
)

// Judge says how the Attempt a of a Task with that Spec ended. It is total; the first rule that matches wins. The Job's word and a bare
// exit code come last: an evicted pod that exits 0 on SIGTERM makes its Job Complete.
func Judge(spec Spec, a Attempt, s Seen) Verdict {
	p := deciding(a, s)
	if p != nil && a.Stop == StopEnded {
		p = new(p.unmarked())
	}
	v := blame(judge(spec, a, s, p), p)
	v.Started, v.Heard, v.Stop = a.started() && !kept(spec, a, s), a.Report != nil, a.Stop
	v.Spends = spends(v)
	v.Silent = v.Started && silent(spec, a, p, v)
	return v
}

// silent reports whether a handler was cut off: its runner said nothing of its end, neither in time nor late nor in the
// pod's last message. Where no runner is inside, an end by itself is the only word that there can be.
func silent(spec Spec, a Attempt, p *SeenPod, v Verdict) bool {
	if v.Outcome == OutcomeSucceeded || a.Report != nil {
		return false
	}
	if p != nil {
		if _, spoke := byMessage(a, *p); spoke {
			return false
		}
	}
	cut := v.Outcome == OutcomeLost || v.Reason == ReasonSignal || v.Reason == ReasonOOMKilled
	return cut || spec.Pod.Wrap.Runner()
}

// GoesOn says for people what a Task leaves behind that is not tried again after an Attempt whose handler was cut off.
func GoesOn(attempt int, outcome Outcome, reason Reason) string {
	how := "ended without a word"
	if outcome == OutcomeLost {
		how = "was lost"
	}
	if reason != ReasonNone {
		how += " (" + string(reason) + ")"
	}
	return fmt.Sprintf("attempt %d %s, and what it had begun may go on", attempt, how)
}

// kept reports whether what stands behind a gate was kept from starting: the start was won, the image never ran.
func kept(spec Spec, a Attempt, s Seen) bool {
	p := deciding(a, s)
	if spec.Pod.Wrap.Runner() || a.Stop != StopStartDeadline && a.Stop != StopInvalid || p == nil {
		return false
	}
	m := p.main()
	return m != nil && m.Main && !m.Running && (m.Terminated == nil || !m.Terminated.Ran)
}

func judge(spec Spec, a Attempt, s Seen, p *SeenPod) Verdict {
	if v, ok := byStop(a, s); ok { // rule 0
		v.Message = lastWords(v.Message, a, p)
		return v
	}
	if v, ok := byReport(a); ok { // rule 1
		return v
	}
	if a.Executor == ExecutorInline { // rule 10, where there never was a pod
		return Verdict{
			Outcome: OutcomeLost, Reason: ReasonHeartbeat, Rule: "10 replica silent",
			Message: "the replica that ran it was not heard for longer than its fence time",
		}
	}
	if p == nil { // rule 10
		v := Verdict{Outcome: OutcomeLost, Reason: ReasonDeleted, Rule: "10 nothing left", Message: "no pod is left, and nothing was reported"}
		if len(s.GoneNodes) > 0 {
			v.Reason, v.Message = ReasonNodeLost, "no pod is left, and its node is gone"
		}
		return v
	}
	if v, ok := byMessage(a, *p); ok { // rule 2
		return v
	}
	if v, ok := byDisruption(*p); ok { // rules 3 and 4
		return v
	}
	v := byContainer(a, *p) // rules 5 to 9
	if v.Outcome == OutcomeSucceeded && spec.Pod.Wrap.Runner() && !a.started() {
		return unasked(v)
	}
	return v
}

// byReport reads what the runner said under a valid fence.
func byReport(a Attempt) (Verdict, bool) {
	r := a.Report
	if r == nil {
		return Verdict{}, false
	}
	return own(Verdict{
		Outcome: r.Outcome, Reason: r.Reason, Message: r.Message, Rule: "1 report",
		ExitCode: r.ExitCode, RetryAfter: r.RetryAfter,
	}), true
}

// own checks the word of a runner. Nobody here had asked for a stop, so one that calls itself canceled was told to stop
// from outside.
func own(v Verdict) Verdict {
	switch {
	case v.Outcome == OutcomeCanceled:
		v.Outcome, v.Reason = OutcomeLost, ReasonTerminated
	case !(Termination{Outcome: v.Outcome}).Final():
		v.Outcome, v.Reason = OutcomeFailed, ReasonReportMalformed
	}
	return v
}

// blame completes the word of a runner that was told to stop from outside: it saw a SIGTERM, the pod says whose.
func blame(v Verdict, p *SeenPod) Verdict {
	if v.Outcome != OutcomeLost || v.Reason != ReasonTerminated || p == nil {
		return v
	}
	if why, ok := byDisruption(*p); ok {
		v.Outcome, v.Reason, v.Rule = why.Outcome, why.Reason, v.Rule+", "+why.Rule
	}
	return v
}

// spends says which budget an Outcome costs: infrastructure trouble never costs the user's.
func spends(v Verdict) Budget {
	switch v.Outcome {
	case OutcomeSucceeded, OutcomeFailed, OutcomeRejected:
		return SpendsRetry
	case OutcomeTimedOut:
		if v.Reason == ReasonUnschedulable || v.Reason == ReasonStartDeadline || v.Reason == ReasonRegistry {
			return SpendsLost
		}
		return SpendsRetry
	case OutcomeLost:
		if v.Reason == ReasonQuota || v.Reason == ReasonNameTaken {
			return SpendsNothing
		}
		return SpendsLost
	case OutcomeCanceled:
		return SpendsNothing
	}
	return SpendsNothing
}

// byStop applies a stop reason that was stored before the end. A report that was stored earlier still wins over it: the
// handler had truly ended.
func byStop(a Attempt, s Seen) (Verdict, bool) {
	if a.Report != nil && !a.Late && a.Report.Outcome != OutcomeCanceled {
		return Verdict{}, false
	}
	cause := causeOf(a.StopNote)
	if cause == ReasonNone {
		cause, _ = stuck(s)
	}
	v := Verdict{Rule: "0 stopped: " + string(a.Stop), Message: a.StopNote}
	switch a.Stop {
	case StopNone:
		return Verdict{}, false
	case StopCancel:
		v.Outcome, v.Reason = OutcomeCanceled, ReasonCanceled
	case StopSuperseded:
		v.Outcome, v.Reason = OutcomeCanceled, ReasonSuperseded
	case StopRunDeadline:
		v.Outcome, v.Reason = OutcomeTimedOut, ReasonRunDeadline
	case StopStartDeadline:
		v.Outcome, v.Reason = OutcomeTimedOut, ReasonStartDeadline
		if cause != ReasonNone {
			v.Reason = cause
		}
	case StopQuota:
		v.Outcome, v.Reason = OutcomeLost, ReasonQuota
	case StopInvalid:
		v.Outcome, v.Reason = OutcomeRejected, ReasonInvalid
		if cause == ReasonConfig {
			v.Reason = cause
		}
	case StopEnded:
		return Verdict{}, false
	default:
		v.Outcome, v.Reason = OutcomeLost, ReasonDeleted
	}
	return v, true
}

// lastWords adds to why an Attempt was stopped what its runner said at its end: what it could not take back and what it
// left behind is for whoever asked for the stop. One that had succeeded all the same has nothing to add.
func lastWords(note string, a Attempt, p *SeenPod) string {
	said, words := a.Report != nil, ""
	if said && a.Report.Outcome != OutcomeSucceeded {
		words = a.Report.Message
	} else if !said && p != nil {
		if v, ok := byMessage(a, *p); ok && v.Outcome != OutcomeSucceeded {
			words = v.Message
		}
	}
	if note != "" && words != "" {
		return note + "; " + words
	}
	return note + words
}

// deciding picks the pod that counts: the one that won start, else the newest that was not refused at the gate, else
// the newest.
func deciding(a Attempt, s Seen) *SeenPod {
	if a.PodUID != "" {
		return find(s.Pods, a.PodUID)
	}
	var asked []SeenPod
	for _, p := range s.Pods {
		if !p.refusedAtGate(a) {
			asked = append(asked, p)
		}
	}
	if len(asked) == 0 {
		asked = s.Pods
	}
	return newest(asked)
}

// byMessage reads the termination message of the pod that won start.
func byMessage(a Attempt, p SeenPod) (Verdict, bool) {
	c := p.main()
	if c == nil || c.Terminated == nil || p.UID != a.PodUID {
		return Verdict{}, false
	}
	m, ok := ParseTermination(c.Terminated.Message)
	if !ok || !m.Final() || m.Attempt != a.ID || m.Fence != a.Fence {
		return Verdict{}, false
	}
	code := c.Terminated.ExitCode
	return own(Verdict{Outcome: m.Outcome, Reason: m.Reason, Message: m.Text, Rule: "2 termination message", ExitCode: &code}), true
}

// byDisruption finds ends that were not the work's own doing, and the kubelet's deadline. The kubelet's word for the
// pod is finer than the condition. A deadline comes before a bare deletion mark: a pod that was deleted first is never
// called DeadlineExceeded, one that ended by its deadline may well be deleted later.
func byDisruption(p SeenPod) (Verdict, bool) {
	v := Verdict{Outcome: OutcomeLost, Message: p.Message, Rule: "3 disruption"}
	switch {
	case p.Reason == "Evicted":
		v.Reason = ReasonEvicted
	case p.Reason == "Preempting":
		v.Reason = ReasonPreempted
	case p.Reason == "NodeLost", p.Reason == "Shutdown", p.Reason == "Terminated", p.NodeGone && !p.Ended():
		v.Reason = ReasonNodeLost
	case strings.HasPrefix(p.Reason, "OutOf"), p.Reason == "NodeAffinity", p.Reason == "NodePorts", p.Reason == "UnexpectedAdmissionError":
		v.Reason = ReasonAdmission
	case p.Disruption == "PreemptionByScheduler":
		v.Reason = ReasonPreempted
	case writtenByController(p.Disruption) && p.Node != "":
		v.Reason = ReasonNodeLost
	case p.unborn():
		v.Reason = ReasonDeleted
	case p.Disruption != "":
		v.Reason = ReasonEvicted
	case p.Reason == "DeadlineExceeded":
		return Verdict{Outcome: OutcomeTimedOut, Reason: ReasonRunDeadline, Message: p.Message, Rule: "4 deadline"}, true
	case p.Deleting:
		v.Reason = ReasonDeleted
	default:
		return Verdict{}, false
	}
	return v, true
}

// byContainer falls back to what the container itself left: reasons before exit codes.
func byContainer(a Attempt, p SeenPod) Verdict {
	c := p.main()
	if c == nil || c.Terminated == nil || c.Terminated.Reason == "Completed" || c.Terminated.Reason == "Error" {
		c = killedForMemory(p, c)
	}
	if c == nil || c.Terminated == nil {
		return byPhase(p)
	}
	end := c.Terminated
	v := Verdict{ExitCode: &end.ExitCode, Message: plain(end.Message)}
	if !c.ours() {
		v.Message = strings.TrimSuffix("container "+c.Name+": "+v.Message, ": ")
	}
	switch {
	case end.Reason == "ContainerStatusUnknown":
		v.Outcome, v.Reason, v.Rule = OutcomeLost, ReasonNodeLost, "5 container status unknown"
	case end.Reason == "StartError", end.Reason == "ContainerCannotRun":
		v.Outcome, v.Reason, v.Rule = OutcomeRejected, ReasonCannotRun, "5 cannot run"
	case end.Reason == "OOMKilled":
		v.Outcome, v.Reason, v.Rule = OutcomeFailed, ReasonOOMKilled, "6 out of memory"
	case end.ExitCode == ExitGateRefused && !a.started() && c.ours():
		v.Outcome, v.Reason, v.Rule = OutcomeLost, ReasonNoReport, "7 gate refused"
	case end.ExitCode == ExitUnreachable && !a.started() && c.ours():
		v.Outcome, v.Reason, v.Rule = OutcomeLost, ReasonUnreachable, "7 unreachable"
	case end.Signal != 0, end.ExitCode > 128 && end.ExitCode <= 128+maxSignal:
		v.Outcome, v.Reason, v.Rule = OutcomeFailed, ReasonSignal, "8 signal"
	case end.ExitCode != 0, p.Phase == "Failed":
		v.Outcome, v.Reason, v.Rule = OutcomeFailed, ReasonExitCode, "8 exit code"
	default:
		v.Outcome, v.Rule = OutcomeSucceeded, "9 succeeded"
	}
	return v
}

// unasked corrects an exit with 0 of a pod whose runner never won start: nothing of the handler can have run in it, and
// what ended there was something else.
func unasked(v Verdict) Verdict {
	v.Outcome, v.Reason, v.Rule = OutcomeLost, ReasonNoReport, "9 ended without a start"
	if v.Message == "" {
		v.Message = "the pod ended with 0, and no runner in it had asked for its start"
	}
	return v
}

// maxSignal is the largest signal number: an exit code beyond 128 + maxSignal is the command's own.
const maxSignal = 64

// killedForMemory finds a container of p other than main that was killed for memory: memory is a property of the pod,
// and a main container that ended by itself beside it cannot be trusted to have had what it needed.
func killedForMemory(p SeenPod, main *SeenContainer) *SeenContainer {
	for i := range p.Containers {
		if end := p.Containers[i].Terminated; end != nil && end.Reason == "OOMKilled" {
			return &p.Containers[i]
		}
	}
	return main
}

// plain leaves out a termination message that only says that the handler had started.
func plain(message string) string {
	if _, ours := ParseTermination(message); ours {
		return ""
	}
	return message
}

func byPhase(p SeenPod) Verdict {
	switch p.Phase {
	case "Succeeded":
		return Verdict{Outcome: OutcomeSucceeded, Rule: "9 succeeded"}
	case "Failed":
		return Verdict{Outcome: OutcomeFailed, Reason: ReasonNoReport, Message: p.Message, Rule: "8 phase failed"}
	}
	v := Verdict{Outcome: OutcomeLost, Reason: ReasonNoReport, Message: p.Message, Rule: "10 no word of an end"}
	if p.NodeSilent {
		v.Reason, v.Message = ReasonNodeLost, "neither its runner nor the kubelet of its node "+p.Node+" was heard for longer than fence time"
	}
	return v
}
