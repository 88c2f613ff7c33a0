package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"slipway.dev/slipway/pkg/task"
)

// Errors that callers tell apart.
var (
	// ErrNotFound says that there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrStale says that the (attempt, fence) of a write is not the current one, or that the Attempt has ended: the
	// write changed nothing.
	ErrStale = errors.New("stale attempt or fence")
	// ErrOtherPod says that another pod won the start of the Attempt.
	ErrOtherPod = errors.New("another pod has started this attempt")
	// ErrChanged says that a stop or a report came in after the Attempt was judged: look again.
	ErrChanged = fmt.Errorf("%w: a stop or a report came in meanwhile", ErrStale)
	// ErrStopped says that the Attempt was asked to stop before it started.
	ErrStopped = fmt.Errorf("%w: it was asked to stop", ErrStale)
	// ErrUnavailable says that the database cannot be reached or does not answer in time; trying again can help.
	ErrUnavailable = errors.New("database unavailable")
	// ErrPooler says that a transaction pooler stands between us and the database.
	ErrPooler = errors.New("the database is behind a transaction pooler, which keeps no session state: connect to PostgreSQL directly, or pool by session")
	// ErrSchema says that schema and binary do not fit.
	ErrSchema = errors.New("database schema and binary do not fit")
)

// ConflictReason says why a submit was refused as conflicting.
type ConflictReason string

// Why a submit conflicts.
const (
	ConflictLaneBusy   ConflictReason = "lane_busy"               // on_conflict is reject and TaskID is in the lane
	ConflictBody       ConflictReason = "idempotency_body"        // the key was used with another body
	ConflictInProgress ConflictReason = "idempotency_in_progress" // the first request with the key has not ended yet
	ConflictEpoch      ConflictReason = "epoch"                   // TaskID is open in the same lanes, cut into another number of parts
	ConflictFired      ConflictReason = "fired"                   // the schedule has a Task for this instant already
)

// Conflict is one item of a batch that cannot be taken.
type Conflict struct {
	Item   int // index in the batch; -1: the batch as a whole
	TaskID string
	Reason ConflictReason
}

// ConflictError refuses a batch: nothing of it was stored. The first conflict is embedded, All holds at most 20.
type ConflictError struct {
	Conflict
	All []Conflict
}

func (e *ConflictError) Error() string {
	if e.TaskID == "" {
		return fmt.Sprintf("conflict: %s", e.Reason)
	}
	return fmt.Sprintf("conflict: %s with task %s", e.Reason, e.TaskID)
}

func conflict(all ...Conflict) error {
	const most = 20
	return &ConflictError{Conflict: all[0], All: all[:min(len(all), most)]}
}

// FullError refuses a batch because a namespace has too much waiting.
type FullError struct {
	Namespace, Queue string
	Limit            int
	RetryAfter       time.Duration
}

func (e *FullError) Error() string {
	return fmt.Sprintf("namespace %s has %d tasks waiting in queue %s", e.Namespace, e.Limit, e.Queue)
}

// EndedError says that a Task is in a terminal state already.
type EndedError struct {
	ID    string
	State task.State
}

func (e *EndedError) Error() string { return fmt.Sprintf("task %s has ended: %s", e.ID, e.State) }

// HinderReason says why a Task cannot be changed or deleted.
type HinderReason string

// Why a Task cannot be changed or deleted.
const (
	HinderClaimed   HinderReason = "claimed"   // it runs
	HinderNotEnded  HinderReason = "not_ended" // only ended ones are deleted
	HinderDependent HinderReason = "dependent" // ID waits for it
	HinderChild     HinderReason = "child"     // ID is its child and has not ended
	HinderParent    HinderReason = "parent"    // ID is its parent and has not ended
	HinderClosing   HinderReason = "closing"   // its Job is not closed in the cluster yet
	HinderFree      HinderReason = "not_held"  // nothing holds the lane
	HinderComposite HinderReason = "composite" // ID, which holds the lane, is composite: it has no Attempt
)

// HinderedError says which Task is in the way of a change; it may be the very one.
type HinderedError struct {
	ID     string
	State  task.State
	Reason HinderReason
}

func (e *HinderedError) Error() string { return fmt.Sprintf("hindered by task %s: %s", e.ID, e.Reason) }

// FieldError refuses one field of a batch; Pointer is a JSON pointer into its items.
type FieldError struct {
	Pointer string
	Reason  string
}

// FieldErrors refuse a batch: nothing of it was stored.
type FieldErrors []FieldError

func (e FieldErrors) Error() string {
	parts := make([]string, len(e))
	for i, f := range e {
		parts[i] = f.Pointer + ": " + f.Reason
	}
	return strings.Join(parts, "; ")
}

// SQLSTATEs that matter here.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	cachedPlanChanged    = "0A000" // after a migration under load, once per statement and connection
	uniqueViolation      = "23505"
	queryCanceled        = "57014"
)

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func constraint(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.ConstraintName
	}
	return ""
}

// transient reports whether running the same transaction again can succeed at once.
func transient(err error) bool {
	switch sqlState(err) {
	case serializationFailure, deadlockDetected, lockNotAvailable, cachedPlanChanged:
		return true
	}
	return errors.Is(err, errLaneGone)
}

// unreachable reports whether err is trouble of the connection or the server, not of the statement.
func unreachable(err error) bool {
	switch code := sqlState(err); {
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "57P"), strings.HasPrefix(code, "53"):
		return true
	case code == "25006", code == queryCanceled, code == lockNotAvailable, code == "25P03": // read-only, time-outs
		return true
	case code == cachedPlanChanged: // a migration under load; the next try makes a new plan
		return true
	case code != "":
		return false
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, net.ErrClosed) ||
		pgconn.SafeToRetry(err) || strings.Contains(err.Error(), "conn closed") ||
		strings.Contains(err.Error(), "closed pool")
}

// classify marks trouble of the connection, so that callers can tell it from a refusal.
func classify(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, ErrUnavailable):
		return err
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return err
	case unreachable(err):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
