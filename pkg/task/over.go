package task

import (
	"fmt"
	"slices"
	"time"
)

// Over reports whether nothing of the Attempt can run any more, so that its lane may be handed on, and why that is
// known. A missing object proves nothing: a container may outlive its pod object. What counts, for each pod ever
// seen: the kubelet's word that every started container has terminated; never bound and being deleted; or the fence
// time, after which a runner has stopped itself. The fence time also ends an Attempt whose Job still stands, as on a
// node that was cut off, but only once a runner had started: before that, silence is only waiting.
//
// Where no runner is inside (WrapNone), nothing in the container stops itself, so fence time says nothing once the gate
// was passed. Then only the kubelet's word counts, or that the node is gone: its Node deleted, or tainted as out of
// service. A pod that vanished without a word keeps its lane.
func Over(spec Spec, a Attempt, s Seen, now time.Time) (over bool, why string) {
	fences := spec.Pod.Wrap.Runner() || !a.started()
	fenced := fences && now.Sub(a.lastSign()) > (spec.FenceAfter+spec.Grace+HandOverMargin).Duration()
	if s.Job != nil && !s.Job.Ended && !jobSpent(spec, a, s) && (!fenced || !a.started()) {
		return false, ""
	}
	known := a.known()
	if s.Job == nil && a.State == Leased && a.Stop == StopNone && len(s.Pods)+len(known) == 0 {
		return false, "" // not launched yet
	}
	why = "no pod was ever bound to a node"
	for _, p := range s.Pods {
		switch {
		case p.Ended():
			why = "the kubelet says that every started container has terminated"
		case p.unborn():
			why = "its pod was never bound and is being deleted"
		case !fences && p.nodeless():
			why = "its node is gone, and its container with it"
		case fenced:
			why = "fence time has passed since the last heartbeat"
		default:
			return false, ""
		}
	}
	for _, p := range known {
		switch {
		case p.Ended || find(s.Pods, p.UID) != nil:
		case !fences && slices.Contains(s.GoneNodes, p.Node):
			why = "its pod is gone without a word, and its node as well"
		case fenced:
			why = "its pod is gone without a word, and fence time has passed since the last heartbeat"
		default:
			return false, ""
		}
	}
	return true, why
}

// Stopping says for people what follows an Attempt that is being stopped waits for, and how long that can take at most.
func Stopping(spec Spec, a Attempt) string {
	text := fmt.Sprintf("waiting for attempt %d to stop", a.Number)
	if a.Executor == ExecutorInline {
		return fmt.Sprintf("%s, at most %v after the last sign of life of its replica", text, InlineSilence.Duration())
	}
	if a.started() && !spec.Pod.Wrap.Runner() {
		return text + ", until the kubelet says so or its node is gone"
	}
	return fmt.Sprintf("%s, at most %v after its last sign of life", text, (spec.FenceAfter + spec.Grace + HandOverMargin).Duration())
}

// lastSign is the last stored moment at which a runner of a may have been told to go on: its claim, its start or its
// last heartbeat.
func (a Attempt) lastSign() time.Time {
	last := a.ClaimedAt
	for _, sign := range []time.Time{a.StartedAt, a.Beat} {
		if sign.After(last) {
			last = sign
		}
	}
	return last
}

// jobSpent reports whether a Job that has no end condition yet can bring no further pod: it is being deleted, or its
// one pod has ended (backoffLimit 0), which the Job itself says up to a second later.
func jobSpent(spec Spec, a Attempt, s Seen) bool {
	if s.Job.Deleting {
		return true
	}
	for _, p := range s.Pods {
		if p.unborn() || !spec.Pod.Wrap.Runner() && p.nodeless() {
			continue
		}
		if !p.Ended() || p.refusedAtGate(a) {
			return false
		}
	}
	return len(s.Pods) > 0
}

// unborn reports whether p was never bound and never can be: a bind is refused once it is being deleted.
func (p SeenPod) unborn() bool { return p.Node == "" && p.Deleting }

// nodeless reports whether the node of p is known to be gone: the pod garbage collector ends only pods whose Node is
// deleted or carries the taint out-of-service.
func (p SeenPod) nodeless() bool {
	return p.Node != "" && (p.NodeGone || p.Disruption == "DeletionByPodGC")
}

// Ended reports whether the kubelet itself said that every container of p that was started has terminated. Where the
// phase was written by somebody who does not see the node (pod garbage collector, taint manager), the statuses are old
// news: then each container must be known as terminated.
func (p SeenPod) Ended() bool {
	if p.Phase != "Succeeded" && p.Phase != "Failed" {
		return false
	}
	blind := writtenByController(p.Disruption) && p.Node != ""
	for _, c := range p.Containers {
		if c.Running || blind && c.Terminated == nil {
			return false
		}
	}
	return !blind || p.main() != nil
}

// writtenByController tells the disruptions whose phase is written by a controller that does not see the node.
func writtenByController(disruption string) bool {
	return disruption == "DeletionByPodGC" || disruption == "DeletionByTaintManager"
}

// refusedAtGate reports whether p asked for the start of a and was refused. After the start was won the same exit code
// is the command's own.
func (p SeenPod) refusedAtGate(a Attempt) bool {
	m := p.main()
	return p.UID != a.PodUID && m != nil && m.Terminated != nil && m.ours() && m.Terminated.ExitCode == ExitGateRefused
}

// ours reports whether a runner of Slipway may have ended c with a reserved exit code.
func (c SeenContainer) ours() bool {
	return c.Main || c.Name == GateContainer || c.Name == RunnerContainer
}

// lingers reports whether the work of a has ended by itself, and something of it runs on that nobody has told to end: a
// second container, or another pod. A pod that bears a mark is left to who marked it.
func lingers(a Attempt, s Seen) (bool, string) {
	p := deciding(a, s)
	if p == nil || p.Node == "" || p.Deleting || p.Disruption != "" || p.Reason != "" || p.refusedAtGate(a) {
		return false, ""
	}
	if p.Ended() {
		for _, other := range s.Pods {
			if other.UID != p.UID && !other.Ended() && !other.unborn() {
				return true, "its pod has ended, and pod " + other.Name + " beside it has not"
			}
		}
		return false, ""
	}
	if m := p.main(); m == nil || !m.Main || m.Terminated == nil {
		return false, ""
	}
	for _, c := range p.Containers {
		if c.Running {
			return true, "its main container has ended, and container " + c.Name + " beside it runs on"
		}
	}
	return false, ""
}

// unmarked is p as it was when StopEnded was stored: what it bears now is what ending the rest of it has left.
func (p SeenPod) unmarked() SeenPod {
	p.Deleting, p.Disruption, p.Reason, p.NodeGone = false, "", "", false
	if m := p.main(); m != nil && m.Terminated != nil {
		p.Phase = "" // the others' ends are in it
	}
	return p
}
