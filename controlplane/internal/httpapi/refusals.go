package httpapi

import (
	"errors"
	"fmt"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// What the ports refuse with; problemOf makes an answer of each.

// ErrWrongPod says that a pod asks for an Attempt that is not its own.
var ErrWrongPod = errors.New("the pod does not carry the labels of this attempt")

// Reasons of a Conflict.
const (
	ConflictLaneBusy   = "lane_busy"
	ConflictEpoch      = "epoch"
	ConflictBody       = "idempotency_body"
	ConflictInProgress = "idempotency_in_progress"
)

// Conflict is one item in conflict with what is there.
type Conflict struct {
	Item                int // index in the Submission; -1: the whole
	Task, State, Reason string
}

// ConflictError refuses a Submission.
type ConflictError struct{ Conflicts []Conflict }

func (e *ConflictError) Error() string { return fmt.Sprintf("%d conflicts", len(e.Conflicts)) }

// ItemError is what is wrong with one item; Pointer begins at the item.
type ItemError struct {
	Item            int
	Pointer, Reason string
}

// RefusedError refuses a Submission by rules of the store.
type RefusedError struct{ Items []ItemError }

func (e *RefusedError) Error() string { return fmt.Sprintf("%d fields refused", len(e.Items)) }

// ErrBadPosition says that a cursor or a position in a stream is not one of ours.
var ErrBadPosition = errors.New("the cursor is not one of ours")

// HinderedError says which Task is in the way of a change; it may be the very one. Reason is one of hinderTexts.
type HinderedError struct {
	Task   string
	State  task.State
	Reason string
}

func (e *HinderedError) Error() string { return "hindered: " + e.Reason }

// EndedError says that a Task has ended.
type EndedError struct {
	ID    string
	State task.State
}

func (e *EndedError) Error() string { return "the task has ended" }

// FullError says that too much is waiting.
type FullError struct {
	Namespace, Queue string
	RetryAfter       time.Duration
}

func (e *FullError) Error() string { return "too much is waiting" }

// HastyError says that the caller asks faster than he may.
type HastyError struct{ RetryAfter time.Duration }

func (e *HastyError) Error() string { return "too many requests" }

// MissingLogError says why an Attempt has no log.
type MissingLogError struct{ Reason, Message string }

func (e *MissingLogError) Error() string { return e.Reason }
