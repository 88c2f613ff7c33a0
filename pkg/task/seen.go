package task

import (
	"strconv"
	"strings"
	"time"
)

// Seen is what the cluster shows of an Attempt at one moment.
type Seen struct {
	// Live tells that it was read from the API server just now, not from a cache that may lag.
	Live bool
	Job  *SeenJob // nil: not there
	Pods []SeenPod
	// GoneNodes are those of its unfinished pods whose Node is deleted or carries the taint out-of-service; read live only.
	GoneNodes []string
	Asked     bool     // a dry run of the pod was made; Refusal is its answer
	Refusal   *Refusal // why the API server takes no such pod; nil where it would
}

// SeenJob is the part of a Job that matters.
type SeenJob struct {
	UID, Name string
	Created   time.Time
	Deleting  bool
	Suspended bool
	Waited    time.Duration // from its creation until it was let go, on the cluster's own clocks; 0 until then
	Ended     bool          // condition Complete or Failed: no further pod comes
}

// SeenPod is the part of a pod that matters.
type SeenPod struct {
	UID, Name, Node string // Node is empty until bound
	Created         time.Time
	Waited          time.Duration // from its creation to its binding, on the cluster's own clocks
	Phase           string        // Pending, Running, Succeeded, Failed, Unknown
	Reason          string        // status.reason: Evicted, DeadlineExceeded, NodeLost, …
	Message         string
	Deleting        bool
	Disruption      string // reason of the condition DisruptionTarget, where true
	Unschedulable   string // message of the condition PodScheduled, where false
	NodeGone        bool   // its Node is deleted or carries the taint out-of-service; read live only
	NodeSilent      bool   // the kubelet of its Node has not been heard for a while; read live only
	Containers      []SeenContainer
}

// SeenContainer is the state of one container or init container as the kubelet reported it.
type SeenContainer struct {
	Name       string
	Main       bool // the one whose exit code counts
	Before     bool // an init container: it has to end with 0 before the main one starts
	Running    bool
	Waiting    string // reason: ImagePullBackOff, CreateContainerConfigError, …
	WaitingFor string // message
	Terminated *Terminated
}

// Terminated is how a container ended.
type Terminated struct {
	Ran      bool // it had started
	ExitCode int
	Signal   int
	Reason   string // Completed, Error, OOMKilled, ContainerStatusUnknown, StartError, …
	Message  string // the termination message
}

// Trace is what open objects in the cluster say of themselves by their labels alone: a Job, its pods, or both.
type Trace struct {
	Attempt, Fence int64
	Namespace      string
	Name           string        // of the Job, else of a pod
	Age            time.Duration // of the youngest object
}

// RefusalCause tells refusals of the API server apart.
type RefusalCause string

// Why a create was refused or not answered.
const (
	RefusedInvalid     RefusalCause = "invalid"        // it can never pass as it is: schema, PodSecurity, service account
	RefusedQuota       RefusalCause = "quota"          // passes when a ResourceQuota has room
	RefusedNamespace   RefusalCause = "namespace_gone" // the namespace is missing or terminating
	RefusedUnknown     RefusalCause = "refused"        // a 403 of unknown cause: wait and show
	RefusedUnavailable RefusalCause = "unavailable"    // 429, 5xx, reset, time-out: nothing is known
)

// Refusal is the API server's no to a create.
type Refusal struct { //nolint:errname // a word of the glossary: an answer that can travel as an error
	Cause      RefusalCause
	Message    string
	RetryAfter time.Duration // the server's wish, where it had one
	// JobCount tells that the quota without room counts Jobs, finished ones included.
	JobCount bool
}

// Error makes a Refusal an error.
func (r *Refusal) Error() string { return string(r.Cause) + ": " + r.Message }

// Verdict is how an Attempt ends whose create was refused for good; final is false where waiting can help.
func (r *Refusal) Verdict() (v Verdict, final bool) {
	v = Verdict{Outcome: OutcomeRejected, Message: r.Message, Rule: "refused", Spends: SpendsRetry}
	switch r.Cause {
	case RefusedInvalid:
		v.Reason = ReasonInvalid
		return v, true
	case RefusedNamespace:
		v.Reason = ReasonNamespace
		return v, true
	case RefusedQuota, RefusedUnknown, RefusedUnavailable:
		return Verdict{}, false
	}
	return Verdict{}, false
}

// Exit codes that a runner reserves.
const (
	ExitGateRefused = 121 // start was refused: nothing has run, the pod is ignored
	ExitUnreachable = 122 // the control plane could not be reached before start: nothing has run
)

// TerminationPrefix begins every termination message of a runner.
const TerminationPrefix = "v1"

// TerminationStarted stands in the place of the outcome from start on, so that a message survives an abrupt end.
const TerminationStarted = "started"

// Termination is a runner's termination message: `v1 <attempt id> <fence> <outcome> <reason> [text]`.
type Termination struct {
	Attempt int64
	Fence   int64
	Outcome Outcome // TerminationStarted while the handler is at work
	Reason  Reason
	Text    string
}

// String renders m in at most 1 KiB; what is cut is the text.
func (m Termination) String() string {
	// A reason is one word: a blank in it would push the text into its place.
	reason := strings.Join(strings.Fields(string(m.Reason)), "_")
	if reason == "" {
		reason = "-"
	}
	line := strings.Join([]string{
		TerminationPrefix, strconv.FormatInt(m.Attempt, 10), strconv.FormatInt(m.Fence, 10), string(m.Outcome), reason,
	}, " ")
	if m.Text != "" {
		line += " " + m.Text
	}
	return strings.ToValidUTF8(line[:min(len(line), 1024)], "")
}

// ParseTermination reads a termination message; ok is false where it is not one of ours or was cut before its text.
func ParseTermination(text string) (m Termination, ok bool) {
	fields := strings.SplitN(strings.TrimSpace(text), " ", 6)
	if len(fields) < 5 || fields[0] != TerminationPrefix {
		return Termination{}, false
	}
	var errAttempt, errFence error
	m.Attempt, errAttempt = strconv.ParseInt(fields[1], 10, 64)
	m.Fence, errFence = strconv.ParseInt(fields[2], 10, 64)
	if errAttempt != nil || errFence != nil {
		return Termination{}, false
	}
	m.Outcome = Outcome(fields[3])
	if m.Reason = Reason(fields[4]); m.Reason == "-" {
		m.Reason = ReasonNone
	}
	if len(fields) == 6 {
		m.Text = fields[5]
	}
	return m, true
}

// Final reports whether m names an Outcome, not only a start.
func (m Termination) Final() bool {
	switch m.Outcome {
	case OutcomeSucceeded, OutcomeFailed, OutcomeRejected, OutcomeTimedOut, OutcomeLost, OutcomeCanceled:
		return true
	}
	return false
}
