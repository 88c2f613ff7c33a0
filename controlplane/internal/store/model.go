package store

import (
	"encoding/json"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// Batch is one submit: a single Task is a batch of one. All of it is stored, or nothing.
type Batch struct {
	Caller string // user name; owner of the idempotency keys
	Key    string // idempotency key of the whole batch; empty: none
	Hash   []byte // of the request's canonical form, compared where Key was seen before
	Items  []Item
	DryRun bool // decide everything, store nothing
}

// Item is one Task to be stored.
type Item struct {
	// Task holds what the submit asks for: Kind, Namespace, Name, Lane, Mode, Queue, Class, Executor, Params, Spec,
	// Labels, RetryOf. ID may be set so that other items can name it in After; it is made here where empty.
	Task       task.Task
	OnConflict task.OnConflict // empty: queue
	Supersedes []string        // kinds that ConflictReplace ends
	Key        string          // idempotency key of this item, where Batch.Key is empty
	Hash       []byte
	After      []string // ids of Tasks, of this batch or earlier, that must end first
	RunIf      RunIf    // empty: AllSucceeded
	Children   []Item   // makes it composite; at most 100, and none of them has children
	RunAt      time.Time
	Delay      time.Duration // from the database's now on; used where RunAt is zero
	Once       bool          // not where the Task in RetryOf was submitted again before; the answer is that one, Repeated
	Schedule   string        // id of the schedule that fired it, with FireAt
	FireAt     time.Time
	By         string // who the Task says made it; empty: the caller

	// Growth is what the Task wants of the storage of its namespace; nil: nothing. Storage is what the claims there had; nil:
	// they were not read, because the namespace has no limit.
	Growth  *task.Growth
	Storage *task.StorageUse
}

// RunIf says which ends of the Tasks in After let a Task run.
type RunIf string

// When a Task that waits for others may run.
const (
	AllSucceeded RunIf = "all_succeeded"
	AllFinished  RunIf = "all_finished"
)

// EnqueueResult says what became of an Item.
type EnqueueResult string

// What became of an Item.
const (
	Created   EnqueueResult = "created"
	Repeated  EnqueueResult = "repeated"  // its idempotency key was seen before; Task is the one of then, as it is now
	Coalesced EnqueueResult = "coalesced" // absorbed by the lane's tail, which is Task
)

// Enqueued is the answer to one Item, in the order of the batch.
type Enqueued struct {
	Task   task.Task
	Result EnqueueResult
}

// Claimed is a Task with the Attempt that was just made for it.
type Claimed struct {
	Task    task.Task
	Attempt task.Attempt
}

// ClaimResult is what a claim took, and when to look again.
type ClaimResult struct {
	Claims  []Claimed
	Parents int             // composite Tasks that became running; they need no launch
	More    bool            // the limit was reached: claim again at once
	Blocked task.WaitReason // what keeps the rest of the queue from running, where one thing does
	NextIn  time.Duration   // when the next claim can find something without a wake-up; 0: nothing known
}

// Ending carries what is stored with the end of an Attempt besides the verdict.
type Ending struct {
	Evidence json.RawMessage // what was seen, for `slipway explain`
}

// FinishResult is what the end of an Attempt made of its Task.
type FinishResult struct {
	Task       task.Task
	Move       task.Move
	LostInARow int // Attempts up to this one that infrastructure trouble ended, none of another end between them
}

// StartRequest is a runner's ask to begin.
type StartRequest struct {
	Attempt, Fence        int64
	PodUID, PodName, Node string
	// Inline is asked by a replica that runs the Attempt itself; PodUID then names its process.
	Inline bool
}

// BeatRequest is a heartbeat.
type BeatRequest struct {
	Attempt, Fence int64
	PodUID         string
	Progress       json.RawMessage // nil leaves the stored one
	// Hold is done when the answer must not wait for a stop any longer; nil: it is given as soon as the beat is stored.
	Hold <-chan struct{}
}

// BeatAnswer is what a runner is told with its heartbeat.
type BeatAnswer struct {
	Cancel bool          // a stop is stored: end now
	Left   time.Duration // of the run deadline, from when the beat was stored
}

// ReportRequest is a runner's word about the end of its handler.
type ReportRequest struct {
	Attempt, Fence int64
	PodUID         string
	Report         task.Report // At is set here
	Tail           []byte      // the end of the log
}

// AttemptStanding is what the orphan sweep needs of an Attempt.
type AttemptStanding struct {
	Open   bool // not finished
	Closed bool
	Fence  int64
}

// Queue is a named line with its caps and what stands in it.
type Queue struct {
	Name         string
	Cap          int
	NamespaceCap int
	MaxQueued    int     // per namespace
	Rate         float64 // launches a second; 0: no limit
	Burst        float64
	Paused       bool
	Draining     bool
	Note         string
	Queued       int
	Running      int // live Attempts
}

// Lane is what stands under one key.
type Lane struct {
	Key, Queue, Namespace, Kind string
	Fence                       int64  // of the last claim
	Holder, Head                string // ids; Head is the first queued Task
	Queued                      int    // counted up to 10,001
	Wait                        task.WaitReason
	WaitNote, WaitsFor          string
	Line                        []LanePlace // the first of those that wait, in the order in which they will run
}

// LanePlace is a Task that waits in a lane.
type LanePlace struct {
	ID, Kind  string
	Class     task.Class
	Mode      task.Mode
	Absorbed  int
	Held      bool
	CreatedAt time.Time
}

// Limit is what a namespace may use of a queue, and what it uses.
type Limit struct {
	Queue                        string
	Cap, NamespaceCap, MaxQueued int
	Queued, Running              int
}

// Freeze stops all launches of a namespace, a queue or everything until it expires or is ended.
type Freeze struct {
	ID        int64
	Namespace string // empty: every one
	Queue     string // empty: every one
	Actor     string
	Reason    string
	CreatedAt time.Time
	ExpiresAt time.Time
}

// View is the finer view of a Task, computed on every read.
type View struct {
	Phase    task.Phase
	Wait     task.WaitReason
	WaitNote string
	HolderID string        // the Task that is in the way, where there is one
	Attempt  *task.Attempt // the latest; nil: none was made
	Progress json.RawMessage
	Parent   string
	After    []string // Tasks that it waits for and that have not ended
	RunAt    time.Time

	// Of a single read:
	Needs    []string // all Tasks that it was to run after
	RunIf    RunIf
	Children []Viewed // in the order in which they were given

	stopping bool // the holder of its lane is being stopped
}

// Viewed is a Task with its finer view.
type Viewed struct {
	Task task.Task
	View View
}

// ListFilter narrows a list of Tasks; empty fields do not filter.
type ListFilter struct {
	Namespaces    []string // nil: all
	Kind          string
	State         task.State
	Reason        task.Reason
	Lane          string
	Queue         string
	Parent        string // id
	Labels        map[string]string
	CreatedAfter  time.Time
	CreatedBefore time.Time
	EndedAfter    time.Time
	EndedBefore   time.Time
	Cursor        string // Page.Next of the page before
	Limit         int    // 1 to 500; 0: 50
}

// Page is one page of a list, newest first.
type Page struct {
	Tasks []task.Task
	Views []View // one per Task, without what only a single read gives
	Next  string // empty: that was all
}
