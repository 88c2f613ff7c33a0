package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// What the edge needs of the rest. Errors: those of pkg/task and those below; anything else is answered as 500 and
// logged.
type (
	// Gate says who is calling and whether they may.
	Gate interface {
		User(ctx context.Context, token string) (auth.Identity, error)
		Runner(ctx context.Context, token string) (auth.Identity, error)
		May(ctx context.Context, id auth.Identity, a auth.Access) error
	}

	// Submitter stores Tasks: all of a Submission, or nothing. It refuses by *ConflictError, *RefusedError or
	// *FullError.
	Submitter interface {
		Submit(ctx context.Context, s Submission) ([]Accepted, error)
		// Repeated answers what an earlier Submission with the same keys was answered; ok is false where there was
		// none. It is asked for requests that would be refused today.
		Repeated(ctx context.Context, s Submission) (done []Accepted, ok bool, err error)
	}

	// Finder reads Tasks. ErrBadPosition refuses a cursor.
	Finder interface {
		Find(ctx context.Context, id string) (task.Task, View, error)
		// Foresee estimates the start of a queued Task, as Find gave it.
		Foresee(ctx context.Context, t task.Task, v View) (task.Forecast, error)
		List(ctx context.Context, f Filter) (Page, error)
	}

	// Picker finds the Tasks of a change of many.
	Picker interface {
		// Pick names the Tasks that match, the oldest first, at most so many.
		Pick(ctx context.Context, f Filter, rule PickRule, most int) ([]Picked, error)
		// Load reads Tasks in the order of their ids; one that is gone is left out.
		Load(ctx context.Context, ids []string) ([]task.Task, error)
		// Pinned gives what an earlier request with the same key kept; a *ConflictError where that was another request.
		Pinned(ctx context.Context, p Pin) (all []Picked, ok bool, err error)
		// Keep keeps which Tasks a request is about, and gives what another with the same key has kept meanwhile.
		Keep(ctx context.Context, p Pin, all []Picked) ([]Picked, error)
	}

	// History reads what happened to a Task. ErrBadPosition refuses a position.
	History interface {
		Attempts(ctx context.Context, taskID string) ([]task.Attempt, error)
		Events(ctx context.Context, taskID, after string, limit int) ([]task.Event, error)
	}

	// Canceler cancels Tasks; an *EndedError says that there is nothing to cancel.
	Canceler interface {
		Cancel(ctx context.Context, id, by, note string) (task.Task, error)
	}

	// Holder keeps queued Tasks from running. It refuses by *HinderedError and *EndedError.
	Holder interface {
		Hold(ctx context.Context, id, by, reason string) error
		Unhold(ctx context.Context, id, by string) error
	}

	// Editor changes queued Tasks and deletes ended ones. It refuses by *HinderedError and *EndedError.
	Editor interface {
		Change(ctx context.Context, id, by string, c Change) error
		Delete(ctx context.Context, id, by string) error
	}

	// Queues reads and changes queues.
	Queues interface {
		Queues(ctx context.Context) ([]QueueView, error)
		ChangeQueue(ctx context.Context, c QueueChange) error
	}

	// Switches says where kinds run, whatever each Task says; an empty executor takes a switch away.
	Switches interface {
		KindSwitches(ctx context.Context) (map[string]Switched, error)
		SwitchKind(ctx context.Context, kind string, to Switched) error
	}

	// Standing reads what stands in lanes and queues.
	Standing interface {
		Lane(ctx context.Context, key string) (LaneView, error)
		Limits(ctx context.Context, namespace string) ([]LimitView, error)
	}

	// Storage keeps the limits of storage, by namespace, and what open Tasks have reserved of them.
	Storage interface {
		// StorageLimits reads those that there are.
		StorageLimits(ctx context.Context, namespaces []string) (map[string]StorageBound, error)
		Reservations(ctx context.Context, namespace string) ([]ReservationView, error)
		// SetStorageLimit sets one; nil takes it away.
		SetStorageLimit(ctx context.Context, namespace string, bytes *int64, by string) error
	}

	// Freezer lets nothing begin in some place for a while. task.ErrNotFound says that no such freeze is in force.
	Freezer interface {
		Freezes(ctx context.Context) ([]FreezeView, error)
		Freeze(ctx context.Context, f FreezeView, d time.Duration) (FreezeView, error)
		Thaw(ctx context.Context, id int64, by string) error
	}

	// Lanes compares lanes with their Tasks, and takes one from its holder; a *HinderedError says that it has none.
	Lanes interface {
		CheckLanes(ctx context.Context, after string, limit int) (CheckView, error)
		RepairLane(ctx context.Context, key, by string) ([]DifferenceView, error)
		ForceRelease(ctx context.Context, key, by, reason string) (Released, error)
	}

	// Logs opens the log of an Attempt; a *MissingLogError says why there is none.
	Logs interface {
		Open(ctx context.Context, a task.Attempt, want LogRequest) (LogStream, error)
	}

	// Runners stores what runners say.
	Runners interface {
		Start(ctx context.Context, r Start) (task.Task, task.Attempt, error)
		Beat(ctx context.Context, b Beat) (BeatAnswer, error)
		Report(ctx context.Context, r Report) error
	}

	// Pods says whether a pod carries the labels of an Attempt; task.ErrNotFound where it does not.
	Pods interface {
		Carries(ctx context.Context, pod auth.Identity, attempt, fence int64) error
	}
)

// Submission is one request for Tasks.
type Submission struct {
	Caller string
	Key    string // idempotency key of the whole; empty: none, or one per item
	Hash   []byte
	Items  []Item
	DryRun bool // decide everything, store nothing
}

// Change is what to change of a queued Task.
type Change struct {
	Class *task.Class
	Move  bool      // whether RunAt counts
	RunAt time.Time // zero: at once
}

// Item is one Task of a Submission.
type Item struct {
	Task       task.Task
	OnConflict task.OnConflict
	Supersedes []string
	Key        string
	Hash       []byte
	After      []string
	RunIf      string
	RunAt      time.Time
	Delay      time.Duration
	Once       bool // not where the Task that it repeats was submitted again before
	Children   []Item
	// Free says that the caller names the program that runs, which takes the right to create Jobs.
	Free bool
	// Growth is what it wants of the storage of its namespace; Storage is what the claims there had, where there is a limit.
	Growth  *task.Growth
	Storage *task.StorageUse
}

// PickRule says which Tasks a change of many can be about.
type PickRule int

// The rules.
const (
	PickEnded PickRule = iota // ended, and not submitted again yet
	PickOpen                  // not ended, and not asked to stop yet
)

// Picked is a Task that a change of many is about.
type Picked struct{ ID, Namespace, Kind string }

// Pin is the idempotency key of a change of many.
type Pin struct {
	Caller, Key string
	Hash        []byte
}

// QueueView is a line of Tasks with its limits and what stands in it.
type QueueView struct {
	Name         string
	Cap          int
	NamespaceCap int
	MaxQueued    int
	Rate         float64 // 0: no limit
	Burst        float64
	Paused       bool
	Draining     bool
	Note         string
	Queued       int
	Running      int
}

// QueueChange changes one queue; Do gets it as it is, under its lock, and may be called again.
type QueueChange struct {
	Name, Verb, By string
	Do             func(*QueueView)
}

// Switched is where a kind runs from now on, and who said so.
type Switched struct {
	Executor   task.Executor
	Percent    int // of the lanes; 0 in a change: all of them
	By, Reason string
	At         time.Time
}

// LaneView is what stands under one key.
type LaneView struct {
	Key, Queue, Namespace, Kind string
	Fence                       int64
	Holder, Head                string
	Queued                      int
	Wait                        task.WaitReason
	WaitNote, WaitsFor          string
	Line                        []PlaceView
}

// PlaceView is a Task that waits in a lane.
type PlaceView struct {
	ID, Kind  string
	Class     task.Class
	Mode      task.Mode
	Absorbed  int
	Held      bool
	CreatedAt time.Time
}

// DifferenceView is one thing that a lane shows otherwise than its Tasks say.
type DifferenceView struct {
	Lane, Field    string
	Shown, Derived string
	Repaired       bool
}

// CheckView is what a comparison of some lanes found.
type CheckView struct {
	Checked     int
	Differences []DifferenceView
	Next        string
}

// Released is the end of the Attempt that a lane was taken from.
type Released struct {
	TaskID      string
	State       task.State
	Outcome     task.Outcome
	Reason      task.Reason
	Number      int
	Fence       int64
	MayStillRun []string
}

// FreezeView lets nothing begin where it holds.
type FreezeView struct {
	ID               int64
	Namespace, Queue string // empty: every one
	Actor, Reason    string
	CreatedAt        time.Time
	ExpiresAt        time.Time
}

// LimitView is what a namespace may use of a queue, and what it uses.
type LimitView struct {
	Queue                        string
	Cap, NamespaceCap, MaxQueued int
	Queued, Running              int
}

// StorageBound is how many bytes the claims of a namespace may ask for together.
type StorageBound struct {
	Bytes int64
	At    time.Time // when it was read, by the database
}

// ReservationView is what an open Task has reserved of a limit of storage.
type ReservationView struct {
	Task, Claim string
	Bytes       int64
}

// Accepted is what became of an Item.
type Accepted struct {
	Task   task.Task
	Result api.BatchItemResult
}

// View is the finer view of a Task.
type View struct {
	Phase    task.Phase
	Wait     task.WaitReason
	WaitNote string
	Holder   string
	Attempt  *task.Attempt
	Progress json.RawMessage

	// Of a single read:
	After    []string // what it was to run after
	RunIf    string
	Children []Listed // in the order in which they were given
}

// Filter narrows a list.
type Filter struct {
	Namespace, Kind, Queue, Lane, Cursor string
	State                                task.State
	Reason                               task.Reason
	Labels                               map[string]string
	CreatedAfter, CreatedBefore          time.Time
	EndedAfter, EndedBefore              time.Time
	Limit                                int
}

// Page is one page of a list.
type Page struct {
	Items []Listed
	Next  string
}

// Listed is a Task on a page.
type Listed struct {
	Task task.Task
	View View
}

// LogRequest says which part of a log is wanted.
type LogRequest struct {
	Follow bool
	Tail   int // lines; 0: all
}

// LogStream is an open log.
type LogStream struct {
	Body   io.ReadCloser
	Source string // live or kept
}

// Start is a pod's wish to begin an Attempt.
type Start struct {
	Attempt, Fence int64
	Pod            auth.Identity
}

// Beat is a heartbeat.
type Beat struct {
	Attempt, Fence int64
	PodUID         string
	Progress       json.RawMessage
	Hold           <-chan struct{} // done when the answer must not wait for a stop any longer; nil: it does not wait
}

// BeatAnswer is what a runner hears.
type BeatAnswer struct {
	Cancel bool
	Left   time.Duration
}

// Report is a runner's word about its end.
type Report struct {
	Attempt, Fence int64
	PodUID         string
	Report         task.Report
	Tail           []byte
}
