package task

import "strings"

// Judge says how the Attempt a of t ended. It is total; the first rule that matches wins. The Job's word and a bare
// exit code come last: an evicted pod that exits 0 on SIGTERM makes its Job Complete.
func Judge(t Task, a Attempt, s Seen) Verdict {
	v := judge(t, a, s)
	v.Started = a.State == Started || !a.StartedAt.IsZero()
	v.Spends = spends(v)
	return v
}

func judge(t Task, a Attempt, s Seen) Verdict {
	if v, ok := byStop(a, s); ok { // rule 0
		return v
	}
	if r := a.Report; r != nil { // rule 1
		return Verdict{
			Outcome: r.Outcome, Reason: r.Reason, Message: r.Message, Rule: "1 report",
			ExitCode: r.ExitCode, RetryAfter: r.RetryAfter,
		}
	}
	p := deciding(a, s)
	if p == nil { // rule 10
		return Verdict{Outcome: OutcomeLost, Reason: ReasonDeleted, Rule: "10 nothing left", Message: "Job and pod are gone without a report"}
	}
	if v, ok := byMessage(a, *p); ok { // rule 2
		return v
	}
	if v, ok := byDisruption(*p); ok { // rules 3 and 4
		return v
	}
	return byContainer(*p) // rules 5 to 9
}

// spends says which budget an Outcome costs: infrastructure trouble never costs the user's.
func spends(v Verdict) Budget {
	switch v.Outcome {
	case OutcomeSucceeded, OutcomeFailed, OutcomeRejected:
		return SpendsRetry
	case OutcomeTimedOut:
		if v.Reason == ReasonUnschedulable || v.Reason == ReasonStartDeadline {
			return SpendsLost
		}
		return SpendsRetry
	case OutcomeLost:
		if v.Reason == ReasonQuota {
			return SpendsNothing
		}
		return SpendsLost
	case OutcomeCanceled:
		return SpendsNothing
	}
	return SpendsNothing
}

// byStop applies a stop reason that was stored before the end.
func byStop(a Attempt, s Seen) (Verdict, bool) {
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
		if cause, _ := stuck(s); cause != ReasonNone {
			v.Reason = cause
		}
	case StopQuota:
		v.Outcome, v.Reason = OutcomeLost, ReasonQuota
	case StopInvalid:
		v.Outcome, v.Reason = OutcomeRejected, ReasonInvalid
	default:
		v.Outcome, v.Reason = OutcomeLost, ReasonDeleted
	}
	return v, true
}

// deciding picks the pod that counts: the one that won start, else the newest that was not refused at the gate.
func deciding(a Attempt, s Seen) *SeenPod {
	if a.PodUID != "" {
		return find(s.Pods, a.PodUID)
	}
	var newest *SeenPod
	for i := range s.Pods {
		p := &s.Pods[i]
		if !p.refusedAtGate() && (newest == nil || p.Created.After(newest.Created)) {
			newest = p
		}
	}
	return newest
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
	return Verdict{Outcome: m.Outcome, Reason: m.Reason, Message: m.Text, Rule: "2 termination message", ExitCode: &code}, true
}

// byDisruption finds ends that were not the work's own doing, and the kubelet's deadline.
func byDisruption(p SeenPod) (Verdict, bool) {
	v := Verdict{Outcome: OutcomeLost, Message: p.Message, Rule: "3 disruption"}
	switch {
	case p.Reason == "Evicted", p.Disruption == "EvictionByEvictionAPI", p.Disruption == "TerminationByKubelet":
		v.Reason = ReasonEvicted
	case p.Reason == "Preempting", p.Disruption == "PreemptionByScheduler":
		v.Reason = ReasonPreempted
	case p.Reason == "NodeLost", p.Reason == "Shutdown", p.Reason == "Terminated", p.NodeGone, writtenByController(p.Disruption):
		v.Reason = ReasonNodeLost
	case strings.HasPrefix(p.Reason, "OutOf"), p.Reason == "NodeAffinity", p.Reason == "NodePorts", p.Reason == "UnexpectedAdmissionError":
		v.Reason = ReasonAdmission
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
func byContainer(p SeenPod) Verdict {
	c := p.main()
	for i := range p.Containers {
		// Memory is a property of the pod: a killed side process counts, whatever the exit code.
		if end := p.Containers[i].Terminated; end != nil && end.Reason == "OOMKilled" {
			c = &p.Containers[i]
		}
	}
	if c == nil || c.Terminated == nil {
		return byPhase(p)
	}
	end := c.Terminated
	v := Verdict{ExitCode: &end.ExitCode, Message: plain(end.Message)}
	switch {
	case end.Reason == "ContainerStatusUnknown":
		v.Outcome, v.Reason, v.Rule = OutcomeLost, ReasonNodeLost, "5 container status unknown"
	case end.Reason == "StartError", end.Reason == "ContainerCannotRun":
		v.Outcome, v.Reason, v.Rule = OutcomeRejected, ReasonCannotRun, "5 cannot run"
	case end.Reason == "OOMKilled":
		v.Outcome, v.Reason, v.Rule = OutcomeFailed, ReasonOOMKilled, "6 out of memory"
	case end.ExitCode == ExitGateRefused:
		v.Outcome, v.Reason, v.Rule = OutcomeLost, ReasonNoReport, "7 gate refused"
	case end.ExitCode == ExitUnreachable:
		v.Outcome, v.Reason, v.Rule = OutcomeLost, ReasonUnreachable, "7 unreachable"
	case end.Signal != 0, end.ExitCode > 128:
		v.Outcome, v.Reason, v.Rule = OutcomeFailed, ReasonSignal, "8 signal"
	case end.ExitCode != 0, p.Phase == "Failed":
		v.Outcome, v.Reason, v.Rule = OutcomeFailed, ReasonExitCode, "8 exit code"
	default:
		v.Outcome, v.Rule = OutcomeSucceeded, "9 succeeded"
	}
	return v
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
	return Verdict{Outcome: OutcomeLost, Reason: ReasonNoReport, Message: p.Message, Rule: "10 no word of an end"}
}
