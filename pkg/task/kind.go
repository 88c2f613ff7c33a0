package task

import (
	"encoding/json"
	"time"
)

// Mode is how a lane treats several Tasks.
type Mode string

// The lane modes.
const (
	Strict   Mode = "strict"   // all of them, in order
	Latest   Mode = "latest"   // a newer one is absorbed by the lane's tail if that is queued and of the same kind
	Parallel Mode = "parallel" // no order: each Task has a lane of its own
)

// OnConflict is what a submit does when its lane is already in use.
type OnConflict string

// The conflict policies.
const (
	ConflictQueue   OnConflict = "queue"   // wait behind what is there
	ConflictReject  OnConflict = "reject"  // refuse the submit and name the Task in the way
	ConflictReplace OnConflict = "replace" // end or cancel the kinds listed in Kind.Supersedes and go next
)

// Executor is where an Attempt runs.
type Executor string

// The executors.
const (
	ExecutorJob    Executor = "job"    // a Kubernetes Job
	ExecutorInline Executor = "inline" // a goroutine of the control plane
	ExecutorOff    Executor = "off"    // accepted and kept, not run
)

// Class is how urgent a Task is. One class is worth 120 s of waiting, so nothing starves.
type Class int16

// ClassStep is what one class is worth; the database's rank has it too.
const ClassStep = 120 * time.Second

// The classes, most urgent first.
const (
	Critical Class = iota
	High
	Normal
	Low
)

var classNames = [...]string{"critical", "high", "normal", "low"}

// String gives the class's name on the wire.
func (c Class) String() string {
	if c < Critical || c > Low {
		return "invalid"
	}
	return classNames[c]
}

// ParseClass reads a class's name on the wire; ok is false for an unknown one.
func ParseClass(name string) (c Class, ok bool) {
	for i, n := range classNames {
		if n == name {
			return Class(i), true
		}
	}
	return Normal, false
}

// Kind is the name of what is done, with its defaults. Most of them can be set per submit.
type Kind struct {
	Name        string // label-valid, at most 40 characters
	Description string
	Executor    Executor
	Queue       string
	// Lane is a template of `{namespace}`, `{name}` and `{params.FIELD}`; empty means no order.
	Lane       string
	Mode       Mode
	OnConflict OnConflict
	Supersedes []string // kinds that ConflictReplace ends
	Spec       Spec
	// InlineOK says that the control plane has a handler of it inside, so that it can run as ExecutorInline.
	InlineOK bool
	// Params is a JSON Schema of the parameters; empty accepts any object.
	Params json.RawMessage
	// Secrets names parameters that take only a reference to a key of a Secret.
	Secrets []string
}

// Spec is how a Task runs: the kind's defaults with the submit's wishes laid over them, stored with the Task so that
// a later change of the kind does not change a Task that is already accepted.
type Spec struct {
	Image          string            `json:"image,omitempty"`
	ServiceAccount string            `json:"service_account,omitempty"`
	Requests       map[string]string `json:"requests,omitempty"` // resource name → quantity
	Limits         map[string]string `json:"limits,omitempty"`
	NodeSelector   map[string]string `json:"node_selector,omitempty"`
	Pod            Pod               `json:"pod,omitzero"`
	Objects        []Object          `json:"objects,omitempty"` // a kind's names are templates as its lane is
	Idempotent     bool              `json:"idempotent"`
	Retry          Retry             `json:"retry"`
	QueueDeadline  Seconds           `json:"queue_deadline,omitempty"` // submit → claim; 0 means none
	StartDeadline  Seconds           `json:"start_deadline"`           // launch → handler at work
	Capacity       Seconds           `json:"capacity_deadline"`        // the same, while no node has room
	RunDeadline    Seconds           `json:"run_deadline"`             // handler at work → end
	Grace          Seconds           `json:"grace"`                    // SIGTERM → SIGKILL
	FenceAfter     Seconds           `json:"fence_after"`              // silence after which a runner kills its handler
	Weight         float64           `json:"weight,omitempty"`         // of a child, its share of its parent's progress; 0: 1
	Inline         bool              `json:"inline_ok,omitempty"`      // it may run in the control plane's own process
}

// Defaults of a Spec, used where a kind says nothing.
const (
	DefaultStartDeadline Seconds = 2 * 60
	DefaultCapacity      Seconds = 60 * 60
	DefaultRunDeadline   Seconds = 60 * 60
	DefaultGrace         Seconds = 30
	DefaultFenceAfter    Seconds = 10 * 60
	// HandOverMargin is added to FenceAfter and Grace before a lane is handed on without proof of an end.
	HandOverMargin Seconds = 30
	// Lease is how long a runner counts as seen alive after a heartbeat.
	Lease Seconds = 30
	// HeartbeatEvery is how often a runner beats.
	HeartbeatEvery Seconds = 10
)

// DefaultSpec is the Spec of a kind that says nothing.
func DefaultSpec() Spec {
	return Spec{
		Retry: DefaultRetry(), StartDeadline: DefaultStartDeadline, Capacity: DefaultCapacity,
		RunDeadline: DefaultRunDeadline, Grace: DefaultGrace, FenceAfter: DefaultFenceAfter,
	}
}
