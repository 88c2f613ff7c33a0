package task

import (
	"encoding/json"
	"math"
	"time"
)

// Seconds is a duration on the wire and in the database: durations, never instants, are handed to other machines.
type Seconds float64

// Duration converts s; what is out of range becomes the nearest Duration that there is.
func (s Seconds) Duration() time.Duration {
	switch ns := float64(s) * float64(time.Second); {
	case ns >= math.MaxInt64:
		return math.MaxInt64
	case ns <= math.MinInt64:
		return math.MinInt64
	case math.IsNaN(ns):
		return 0
	default:
		return time.Duration(ns)
	}
}

// Task is one requested unit of work, from submit to a terminal state.
type Task struct {
	Key       int64  // the database's key; never leaves the control plane
	ID        string // a UUID; what users see
	Seq       int64  // order in the lane, drawn under the lane's lock; 0 while delayed
	Kind      string
	Namespace string
	Name      string // free text for people, at most 200 characters
	Lane      string
	Mode      Mode
	Queue     string
	Class     Class
	Executor  Executor
	Params    json.RawMessage
	Spec      Spec
	Labels    map[string]string

	State   State
	Outcome Outcome // of the last Attempt, or of the Task where none was made
	Reason  Reason
	Message string
	Result  json.RawMessage

	RunAt      time.Time // not before; moves with each back-off
	EligibleAt time.Time // since when it could run; with Class it makes the rank
	Attempts   int       // made so far
	SpentRetry int       // of Spec.Retry.Attempts
	SpentLost  int       // of Spec.Retry.Lost
	Held       bool

	Parent   string // id of the composite Task it belongs to
	RetryOf  string // id of the ended Task that it repeats
	Root     string // id of the first Task of a chain of such repeats; empty: it is none
	Children int    // how many it was given
	Absorbed int    // later submits of its lane that it took in, in mode latest

	CancelAt  time.Time // zero: nobody asked
	CancelBy  string
	CreatedBy string
	CreatedAt time.Time
	StartedAt time.Time // first claim
	EndedAt   time.Time
}

// Attempt is one numbered try of a Task.
type Attempt struct {
	ID        int64
	TaskKey   int64
	TaskID    string
	Number    int // from 1
	Fence     int64
	Lane      string
	Queue     string
	Namespace string
	Kind      string
	Executor  Executor
	Replica   string // who claimed it
	State     AttemptState

	JobName string
	JobUID  string
	PodUID  string // of the pod that won start
	PodName string
	Node    string

	Wait      WaitReason // why it is not launched yet
	WaitNote  string
	Stop      StopReason // stored before the end, it decides
	StopNote  string
	StopAt    time.Time
	Report    *Report // what the runner said under a valid fence
	Pods      []KnownPod
	Beat      time.Time // last stored heartbeat; zero before the first
	Progress  json.RawMessage
	Outcome   Outcome
	Reason    Reason
	Message   string
	Rule      string
	ExitCode  *int
	Late      bool // the report came after the stop reason was stored
	ClaimedAt time.Time

	LaunchedAt time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	ClosedAt   time.Time // Job and pods of it are closed in the cluster
}

// KnownPod is a pod of an Attempt that was once seen bound to a node.
type KnownPod struct {
	UID, Name, Node string
	// Ended is set once the kubelet said that every container that was started has terminated.
	Ended bool
}

// Report is what a runner said about the end of its handler.
type Report struct {
	Outcome    Outcome         `json:"outcome"`
	Reason     Reason          `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	ExitCode   *int            `json:"exit_code,omitempty"`
	RetryAfter Seconds         `json:"retry_after,omitempty"`
	At         time.Time       `json:"at"`
}

// Event is one line of a Task's history.
type Event struct {
	Position string // "xid-id": the stream's resume position
	TaskID   string
	Attempt  int // number; 0 for the Task itself
	Type     string
	Actor    string
	At       time.Time
	Data     json.RawMessage
}
