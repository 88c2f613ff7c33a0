package task

import (
	"fmt"
	"strings"
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
	Verdict Verdict       // with ActFinish
	Stop    StopReason    // with ActStop
	Why     string        // for people, in `slipway explain`
	Wait    WaitReason    // what it waits for, where known
	Again   time.Duration // when to look again at the latest; zero: at once, when the action is done
}

// Bounds of Decide.
const (
	launchedByOther = 2 * time.Second  // a leased Attempt older than this is launched by any replica
	podOverdue      = 2 * time.Second  // a Job without a pod for so long is asked why
	lookAgain       = 15 * time.Second // where no deadline says when
	haltAgain       = time.Second      // while something is being stopped
	refusedAgain    = 5 * time.Second  // the least wait after a refusal that may pass
)

// Decide says what to do with the open Attempt a of t, given what is seen of it and the database's time. It is total:
// every shape of Job and pods has one answer. What rests on something being absent is never decided from a cache.
func Decide(t Task, a Attempt, s Seen, now time.Time) Decision {
	if a.Executor == ExecutorInline {
		return decideInline(t, a, now)
	}
	d := decide(t, a, s, now)
	switch {
	case s.Live:
	case d.final() && missing(a, s):
		return Decision{Action: ActLook, Why: "the cache does not show what the Attempt should have"}
	case d.Action == ActFinish && !sworn(s):
		return Decision{Action: ActLook, Why: "it is over without the kubelet's word: its node is to be looked at"}
	case a.State == Started && missing(a, s):
		// The cache holds nothing that was closed: what had ended before the database was restored to an earlier minute.
		return Decision{Action: ActLook, Why: "the cache does not show the pod that started"}
	case d.Action != ActFinish && !t.Spec.Pod.Wrap.Runner() && a.started() && forsaken(s):
		return Decision{Action: ActLook, Why: "nothing inside its pod stops by itself: its node is to be looked at"}
	}
	return d
}

// sworn reports whether of each pod the kubelet itself has said that it ended, or none ever ran.
func sworn(s Seen) bool {
	for _, p := range s.Pods {
		if !p.Ended() && !p.unborn() {
			return false
		}
	}
	return true
}

// forsaken reports whether a pod is marked and not ended: its node may be gone.
func forsaken(s Seen) bool {
	for _, p := range s.Pods {
		if p.Node != "" && !p.Ended() && (p.Deleting || p.Disruption != "" || p.Phase == "Failed" || p.Phase == "Unknown") {
			return true
		}
	}
	return false
}

// final tells the decisions that a pod seen a moment later would overturn. To ask why a Job has no pod decides nothing: a
// refusal counts only where the API server itself shows none afterwards. Looking first would cost a busy server most.
func (d Decision) final() bool { return d.Action == ActFinish || d.Action == ActStop }

func decide(t Task, a Attempt, s Seen, now time.Time) Decision {
	if a.State == Finished {
		return Decision{Action: ActWait, Why: "judged", Again: lookAgain}
	}
	if over, why := Over(t.Spec, a, s, now); over {
		return Decision{Action: ActFinish, Verdict: Judge(t.Spec, a, s), Why: why}
	}
	rest, note := lingers(a, s)
	switch {
	case a.Stop == StopEnded && now.Sub(a.StopAt) < t.Spec.Grace.Duration():
		return Decision{Action: ActWait, Why: a.StopNote, Wait: WaitStop, Again: t.Spec.Grace.Duration() - now.Sub(a.StopAt)}
	case a.Stop != StopNone:
		return Decision{Action: ActHalt, Why: "asked to stop: " + string(a.Stop), Wait: WaitStop, Again: haltAgain}
	case a.Report != nil:
		return reported(t, a, now)
	case rest:
		return Decision{Action: ActStop, Stop: StopEnded, Why: note}
	case a.started():
		return leaving(t, a, s, atWork(t, a, s, now))
	case a.State == Leased:
		return launching(a, s, now)
	case s.Job != nil && s.Job.Suspended:
		return Decision{Action: ActWait, Why: "its Job is suspended by somebody else", Wait: WaitLaunch, Again: lookAgain}
	case len(s.Pods) == 0:
		return podless(t, a, s, now)
	}
	return leaving(t, a, s, starting(t, a, s, now))
}

// leaving says so where somebody else deleted a pod that may still run: the next Attempt waits for it.
func leaving(t Task, a Attempt, s Seen, d Decision) Decision {
	if d.Action != ActWait {
		return d
	}
	for _, p := range s.Pods {
		if p.Node != "" && p.Deleting && !p.Ended() {
			d.Wait, d.Why, d.Again = WaitStop, Stopping(t.Spec, a), min(d.Again, lookAgain)
		}
	}
	return d
}

// missing reports whether s lacks a pod that may exist.
func missing(a Attempt, s Seen) bool {
	if len(s.Pods) == 0 {
		return true
	}
	for _, known := range a.known() {
		if !known.Ended && find(s.Pods, known.UID) == nil {
			return true
		}
	}
	return false
}

// started reports whether a runner won start: a handler may be at work, or was.
func (a Attempt) started() bool {
	return a.State == Started || a.PodUID != "" || !a.StartedAt.IsZero()
}

// known lists the pods that were ever seen bound, and the one that won start.
func (a Attempt) known() []KnownPod {
	if a.PodUID == "" {
		return a.Pods
	}
	for _, p := range a.Pods {
		if p.UID == a.PodUID {
			return a.Pods
		}
	}
	return append(a.Pods[:len(a.Pods):len(a.Pods)], KnownPod{UID: a.PodUID, Name: a.PodName, Node: a.Node})
}

// main finds the container whose exit code counts: what stands before the main one if that failed, else the main one.
func (p SeenPod) main() *SeenContainer {
	var found *SeenContainer
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Before && c.Terminated != nil && c.Terminated.ExitCode != 0 {
			return c
		}
		if c.Main {
			found = c
		}
	}
	return found
}

// Init containers that stand before an image that Slipway did not build.
const (
	GateContainer   = "gate"   // asks for the start of an image without a runner inside
	RunnerContainer = "runner" // copies the runner in, for an image that is wrapped
)

func find(pods []SeenPod, uid string) *SeenPod {
	for i := range pods {
		if pods[i].UID == uid {
			return &pods[i]
		}
	}
	return nil
}

// reported waits for the pod of a runner that has said how it ended.
func reported(t Task, a Attempt, now time.Time) Decision {
	left := t.Spec.Grace.Duration() - now.Sub(a.Report.At)
	if left <= 0 {
		return Decision{Action: ActHalt, Why: "reported its end, and the pod is still there after the grace period", Wait: WaitStop, Again: haltAgain}
	}
	return Decision{Action: ActWait, Why: "reported its end; its pod is to end", Again: left}
}

// atWork applies the run deadline. Behind a gate the image is pulled only after the start was won, so what keeps its
// container from starting is looked for here.
func atWork(t Task, a Attempt, s Seen, now time.Time) Decision {
	since := a.StartedAt
	if since.IsZero() {
		since = a.ClaimedAt
	}
	left := t.Spec.RunDeadline.Duration() - now.Sub(since)
	if left <= 0 {
		return Decision{Action: ActStop, Stop: StopRunDeadline, Why: fmt.Sprintf("ran longer than %v", t.Spec.RunDeadline.Duration())}
	}
	d := Decision{Action: ActWait, Why: "a handler is at work", Again: left}
	if cause, note := stuck(s); cause != ReasonNone && !t.Spec.Pod.Wrap.Runner() {
		if cause == ReasonConfig {
			return Decision{Action: ActStop, Stop: StopInvalid, Why: note}
		}
		d.Why = note
		return untilDeadline(t.Spec.StartDeadline.Duration(), now.Sub(since), note, d)
	}
	return d
}

// launching leaves a fresh claim to whoever claimed it. A Job that is there already is adopted by the same launch.
func launching(a Attempt, s Seen, now time.Time) Decision {
	if wait := launchedByOther - now.Sub(a.ClaimedAt); wait > 0 {
		return Decision{Action: ActWait, Why: "its launch is under way", Again: wait}
	}
	if s.Job != nil {
		return Decision{Action: ActLaunch, Why: "its Job exists and is not recorded yet", Again: haltAgain}
	}
	return Decision{Action: ActLaunch, Why: "claimed, and no Job exists", Wait: a.Wait, Again: podOverdue}
}

// podless finds out why a Job has no pod.
func podless(t Task, a Attempt, s Seen, now time.Time) Decision {
	age := awake(a, s, now)
	switch {
	case age < podOverdue:
		return Decision{Action: ActWait, Why: "its pod is to come", Again: podOverdue - age}
	case !s.Asked:
		return Decision{Action: ActAsk, Why: "the Job has no pod"}
	case s.Refusal != nil:
		return refused(*s.Refusal)
	}
	return untilDeadline(t.Spec.StartDeadline.Duration(), age, "", Decision{
		Action: ActWait, Why: "the Job has no pod, and one would be accepted", Again: min(age, lookAgain),
	})
}

// awake is how long the Job of a has been there without being suspended: who queues Jobs, as Kueue does, may take as
// long as it wants.
func awake(a Attempt, s Seen, now time.Time) time.Duration {
	age := now.Sub(a.LaunchedAt)
	if s.Job != nil {
		age -= min(max(s.Job.Waited, 0), max(age, 0))
	}
	return age
}

// refused turns the answer of a dry run into an action.
func refused(r Refusal) Decision {
	switch r.Cause {
	case RefusedQuota:
		return Decision{Action: ActStop, Stop: StopQuota, Why: r.Message, Wait: WaitQuota}
	case RefusedInvalid, RefusedNamespace:
		return Decision{Action: ActStop, Stop: StopInvalid, Why: r.Message}
	case RefusedUnknown, RefusedUnavailable:
		return Decision{Action: ActWait, Why: r.Message, Wait: WaitLaunch, Again: max(r.RetryAfter, refusedAgain)}
	}
	return Decision{Action: ActWait, Why: r.Message, Wait: WaitLaunch, Again: lookAgain}
}

// starting applies the start deadline and finds what makes waiting for a start pointless. The time that a pod waited
// for a node is measured against the deadline for capacity alone.
func starting(t Task, a Attempt, s Seen, now time.Time) Decision {
	cause, note := stuck(s)
	if cause == ReasonConfig {
		return Decision{Action: ActStop, Stop: StopInvalid, Why: note}
	}
	age, limit := awake(a, s, now), t.Spec.StartDeadline.Duration()
	d := Decision{Action: ActWait, Why: note, Again: limit}
	if cause == ReasonUnschedulable {
		limit, d.Wait = t.Spec.Capacity.Duration(), WaitCapacity
		d.Again = limit
	} else if p := newest(s.Pods); p != nil && p.Node != "" {
		age -= min(max(p.Waited, 0), max(age, 0))
	}
	if cause != ReasonNone && d.Wait == "" {
		d.Wait = WaitStart
	}
	if d.Why == "" {
		d.Why = "its pod is starting"
	}
	return untilDeadline(limit, age, note, d)
}

// untilDeadline turns d into a stop once age has reached limit.
func untilDeadline(limit, age time.Duration, note string, d Decision) Decision {
	left := limit - age
	if left > 0 {
		d.Again = min(max(d.Again, podOverdue), left)
		return d
	}
	if note == "" {
		note = fmt.Sprintf("nothing started within %v", limit)
	}
	return Decision{Action: ActStop, Stop: StopStartDeadline, Why: note}
}

// stuck names what keeps a pod from starting, with the kubelet's or the scheduler's own words.
func stuck(s Seen) (Reason, string) {
	for _, p := range s.Pods {
		if p.Phase == "Succeeded" || p.Phase == "Failed" {
			continue
		}
		if p.Node == "" && p.Unschedulable != "" {
			return ReasonUnschedulable, "Unschedulable: " + p.Unschedulable
		}
		for _, c := range p.Containers {
			note := c.Waiting + ": " + c.WaitingFor
			if cause := causeOf(note); cause != ReasonNone {
				return cause, note
			}
		}
	}
	return ReasonNone, ""
}

// causeOf reads the cause out of a note that stuck has made; it is what a Stop keeps when the pod is long gone.
func causeOf(note string) Reason {
	word, _, _ := strings.Cut(note, ":")
	switch word {
	case "Unschedulable":
		return ReasonUnschedulable
	case "InvalidImageName":
		return ReasonConfig
	case "CreateContainerConfigError":
		if strings.Contains(note, "failed to sync") { // the kubelet has not read the Secret yet, and will
			return ReasonStartDeadline
		}
		return ReasonConfig
	case "RegistryUnavailable":
		return ReasonRegistry
	case "ErrImagePull", "ImagePullBackOff":
		if unanswered(note) {
			return ReasonRegistry
		}
		return ReasonImagePull
	case "ErrImageNeverPull", "ImageInspectError", "SignatureValidationFailed":
		return ReasonImagePull
	case "CreateContainerError", "RunContainerError", "CrashLoopBackOff":
		return ReasonCannotRun
	}
	return ReasonNone
}

// unanswered reports whether a pull failed because the registry could not be reached or could not answer, by the words
// of containerd's resolver: kubelets pass on nothing better. A no to this image, or to us, is an answer.
func unanswered(note string) bool {
	for _, sign := range []string{
		"connection refused", "connection reset", "i/o timeout", "handshake timeout", "no route to host", "network is unreachable",
		"deadline exceeded", "unexpected EOF", "failure in name resolution", "server misbehaving", "Too Many Requests",
		"500 Internal", "502 Bad", "503 Service", "504 Gateway",
	} {
		if strings.Contains(note, sign) {
			return true
		}
	}
	return false
}

func newest(pods []SeenPod) *SeenPod {
	var found *SeenPod
	for i := range pods {
		if found == nil || pods[i].Created.After(found.Created) {
			found = &pods[i]
		}
	}
	return found
}
