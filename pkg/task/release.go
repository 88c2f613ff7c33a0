package task

import "fmt"

// ForceRelease ends an Attempt by hand, without the proof that nothing of it runs any more. What is stored already, a
// stop or a report, decides as ever; else it is lost.
func ForceRelease(spec Spec, a Attempt, by, reason string) Verdict {
	v := Judge(spec, a, Seen{})
	v.Message = fmt.Sprintf("its lane was taken from it by %s: %s", by, reason)
	if decided := a.Report != nil || a.Stop != StopNone && a.Stop != StopEnded; !decided {
		v.Outcome, v.Reason = OutcomeLost, ReasonForceReleased
		v.Spends = spends(v)
		v.Silent = v.Started
	}
	v.Rule = "force release"
	return v
}

// MayStillRun names, for people, what was not seen to end of an Attempt that is ended by hand.
func MayStillRun(a Attempt) []string {
	var all []string
	for _, p := range a.known() {
		if !p.Ended {
			all = append(all, fmt.Sprintf("pod %s on node %s", p.Name, p.Node))
		}
	}
	switch {
	case len(all) > 0 || len(a.known()) > 0:
	case a.JobName != "":
		all = append(all, "pods of Job "+a.JobName+": none was seen yet")
	default:
		all = append(all, "a launch that is under way")
	}
	return all
}
