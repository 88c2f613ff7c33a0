package task

import (
	"fmt"
	"time"
)

// Action is what reconcile has to do next for an open Attempt.
type Action string

// The actions.
const (
	ActWait   Action = "wait"   // nothing now; look again after Again
	ActLaunch Action = "launch" // no Job yet: create it (same number and fence)
	ActLook   Action = "look"   // read the API server itself: the cache shows too little to decide
	ActAsk    Action = "ask"    // the Job has no pod: ask by dry run why
	ActStop   Action = "stop"   // store Stop on the Attempt, then halt it
	ActHalt   Action = "halt"   // stop what still runs in the cluster
	ActFinish Action = "finish" // store Verdict
)

// Decision is the answer of Decide.
type Decision struct {
	Action  Action
	Verdict Verdict    // with ActFinish
	Stop    StopReason // with ActStop
	Why     string     // for people, in `slipway explain`
	Wait    WaitReason // what a launch waits for, where known
	Again   time.Duration
}

// Bounds of Decide.
const (
	launchedByOther = 2 * time.Second  // a leased Attempt older than this is launched by any replica
	podOverdue      = 2 * time.Second  // a Job without a pod for so long is asked why
	lookAgain       = 15 * time.Second // the slowest pace at which an open Attempt is looked at
	haltAgain       = time.Second      // while something is being stopped
)

// Decide says what to do with the open Attempt a of t, given what is seen of it and the database's time. It is total:
// every shape of Job and pods has one answer.
func Decide(t Task, a Attempt, s Seen, now time.Time) Decision {
	if !s.Live && needsLiveRead(a, s) {
		return Decision{Action: ActLook, Why: "the cache does not show what the Attempt should have"}
	}
	if over, why := Over(t.Spec, a, s, now); over {
		return Decision{Action: ActFinish, Verdict: Judge(t, a, s), Why: why}
	}
	if a.Stop != StopNone {
		return Decision{Action: ActHalt, Why: "asked to stop: " + string(a.Stop), Again: haltAgain}
	}
	if d, ok := deadlines(t, a, s, now); ok {
		return d
	}
	if a.Report != nil && now.Sub(a.Report.At) > t.Spec.Grace.Duration() {
		return Decision{Action: ActHalt, Why: "reported its end, and the pod is still there after the grace period", Again: haltAgain}
	}
	if s.Job == nil && a.State == Leased {
		if wait := launchedByOther - now.Sub(a.ClaimedAt); wait > 0 {
			return Decision{Action: ActWait, Why: "its launch is under way", Again: wait}
		}
		return Decision{Action: ActLaunch, Why: "claimed, and no Job exists"}
	}
	return Decision{Action: ActWait, Why: "under way", Wait: waitsFor(s), Again: lookAgain}
}

// needsLiveRead reports whether an absence in the cache would decide something.
func needsLiveRead(a Attempt, s Seen) bool {
	if s.Job == nil && (a.State != Leased || a.Stop != StopNone) {
		return true
	}
	for _, known := range a.Pods {
		if !known.Ended && find(s.Pods, known.UID) == nil {
			return true
		}
	}
	return false
}

// Over reports whether nothing of the Attempt can run any more, so that its lane may be handed on, and why that is
// known. A missing object proves nothing: a container may outlive its pod object. What counts, for each pod ever
// seen: the kubelet's word that every started container has terminated; never bound and being deleted; or the fence
// time, after which a runner has stopped itself.
func Over(spec Spec, a Attempt, s Seen, now time.Time) (over bool, why string) {
	if s.Job != nil && !s.Job.Ended && !jobSpent(s) {
		return false, ""
	}
	since := a.ClaimedAt
	if a.Beat.After(since) {
		since = a.Beat
	}
	fenced := now.Sub(since) > (spec.FenceAfter + spec.Grace + HandOverMargin).Duration()
	why = "no pod was ever bound to a node"
	for _, p := range s.Pods {
		switch {
		case p.Ended():
			why = "the kubelet says that every started container has terminated"
		case p.Node == "" && p.Deleting:
			why = "its pod was never bound and is being deleted"
		case fenced:
			why = "fence time has passed since the last heartbeat"
		default:
			return false, ""
		}
	}
	for _, known := range a.Pods {
		if known.Ended || find(s.Pods, known.UID) != nil {
			continue
		}
		if !fenced {
			return false, ""
		}
		why = "its pod is gone without a word, and fence time has passed since the last heartbeat"
	}
	if s.Job == nil && a.State == Leased && a.Stop == StopNone && len(s.Pods)+len(a.Pods) == 0 {
		return false, "" // not launched yet
	}
	return true, why
}

// jobSpent reports whether a Job that has no end condition yet can bring no further pod: it is being deleted, or its
// one pod has ended (backoffLimit 0), which the Job itself says up to a second later.
func jobSpent(s Seen) bool {
	if s.Job.Deleting {
		return true
	}
	for _, p := range s.Pods {
		if !p.Ended() || p.refusedAtGate() {
			return false
		}
	}
	return len(s.Pods) > 0
}

// Ended reports whether the kubelet itself said that every container of p that was started has terminated. A phase
// written by anybody else (pod garbage collector, taint manager) does not count.
func (p SeenPod) Ended() bool {
	if p.Phase != "Succeeded" && p.Phase != "Failed" {
		return false
	}
	terminated := 0
	for _, c := range p.Containers {
		if c.Running {
			return false
		}
		if c.Terminated != nil {
			if c.Terminated.Reason == "ContainerStatusUnknown" && p.Disruption != "" {
				return false
			}
			terminated++
		}
	}
	if terminated > 0 {
		return true
	}
	return p.Node == "" || p.Disruption == "" || !writtenByController(p.Disruption)
}

// writtenByController tells the disruptions whose phase is written by a controller that does not see the node.
func writtenByController(disruption string) bool {
	return disruption == "DeletionByPodGC" || disruption == "DeletionByTaintManager"
}

func (p SeenPod) refusedAtGate() bool {
	m := p.main()
	return m != nil && m.Terminated != nil && m.Terminated.ExitCode == ExitGateRefused
}

// main finds the container whose exit code counts: the first failed init container, else the main one.
func (p SeenPod) main() *SeenContainer {
	var found *SeenContainer
	for i := range p.Containers {
		c := &p.Containers[i]
		if !c.Main && c.Terminated != nil && c.Terminated.ExitCode != 0 && c.Name == GateContainer {
			return c
		}
		if c.Main {
			found = c
		}
	}
	return found
}

// GateContainer is the init container that asks for the start of an image without a runner inside.
const GateContainer = "gate"

func find(pods []SeenPod, uid string) *SeenPod {
	for i := range pods {
		if pods[i].UID == uid {
			return &pods[i]
		}
	}
	return nil
}

// deadlines applies the start and run deadlines and what makes waiting for a start pointless.
func deadlines(t Task, a Attempt, s Seen, now time.Time) (Decision, bool) {
	if a.State == Started {
		left := t.Spec.RunDeadline.Duration() - now.Sub(a.StartedAt)
		if left <= 0 {
			return Decision{Action: ActStop, Stop: StopRunDeadline, Why: fmt.Sprintf("ran longer than %v", t.Spec.RunDeadline.Duration())}, true
		}
		return Decision{Action: ActWait, Why: "a handler is at work", Again: min(left, lookAgain)}, a.Report == nil
	}
	if s.Job == nil || s.Job.Deleting || s.Job.Suspended {
		return Decision{}, false
	}
	if s.Refusal != nil {
		return refused(*s.Refusal), true
	}
	if len(s.Pods) == 0 {
		if age := now.Sub(a.LaunchedAt); a.LaunchedAt.IsZero() || age < podOverdue {
			return Decision{Action: ActWait, Why: "its pod is to come", Again: podOverdue}, true
		}
		return Decision{Action: ActAsk, Why: "the Job has no pod"}, true
	}
	return startDeadline(t, a, s, now)
}

// refused turns the answer of a dry run into an action.
func refused(r Refusal) Decision {
	switch r.Cause {
	case RefusedQuota:
		return Decision{Action: ActStop, Stop: StopQuota, Why: r.Message, Wait: WaitQuota}
	case RefusedInvalid, RefusedNamespace:
		return Decision{Action: ActStop, Stop: StopInvalid, Why: r.Message}
	case RefusedUnknown, RefusedUnavailable:
		return Decision{Action: ActWait, Why: r.Message, Wait: WaitLaunch, Again: 5 * time.Second}
	}
	return Decision{Action: ActWait, Why: r.Message, Again: lookAgain}
}

func startDeadline(t Task, a Attempt, s Seen, now time.Time) (Decision, bool) {
	cause, note := stuck(s)
	if cause == ReasonConfig {
		return Decision{Action: ActStop, Stop: StopInvalid, Why: note}, true
	}
	limit := t.Spec.StartDeadline.Duration()
	if cause == ReasonUnschedulable {
		limit = t.Spec.Capacity.Duration()
	}
	since := a.LaunchedAt
	if since.IsZero() {
		since = a.ClaimedAt
	}
	left := limit - now.Sub(since)
	if left <= 0 {
		if note == "" {
			note = fmt.Sprintf("nothing started within %v", limit)
		}
		return Decision{Action: ActStop, Stop: StopStartDeadline, Why: note}, true
	}
	return Decision{Action: ActWait, Why: note, Wait: waitsFor(s), Again: min(left, lookAgain)}, a.Report == nil
}

// stuck names what keeps a pod from starting, with the kubelet's or the scheduler's own words.
func stuck(s Seen) (Reason, string) {
	for _, p := range s.Pods {
		if p.Node == "" && p.Unschedulable != "" {
			return ReasonUnschedulable, p.Unschedulable
		}
		for _, c := range p.Containers {
			note := c.Waiting + ": " + c.WaitingFor
			switch c.Waiting {
			case "InvalidImageName", "CreateContainerConfigError":
				return ReasonConfig, note
			case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable":
				return ReasonImagePull, note
			case "CreateContainerError", "RunContainerError":
				return ReasonCannotRun, note
			}
		}
	}
	return ReasonNone, ""
}

func waitsFor(s Seen) WaitReason {
	if cause, _ := stuck(s); cause == ReasonUnschedulable {
		return WaitCapacity
	}
	return ""
}
