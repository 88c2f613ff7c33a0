package handler

import (
	"errors"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// Failure is an error with a machine-readable Reason and, where a process was the work, its exit code.
type Failure struct { //nolint:errname // it is the handler's own word: handler.Failure
	Reason   task.Reason
	Message  string
	ExitCode *int
}

// Error gives the message, or the reason where there is none.
func (f *Failure) Error() string {
	if f.Message == "" {
		return string(f.Reason)
	}
	return f.Message
}

// Permanent marks err as one that no repetition can mend: the Task ends as rejected, whatever budget is left.
func Permanent(err error, reason task.Reason) error {
	return &permanentError{err: err, reason: reason}
}

// RetryAfter marks err as one to be tried again after d, in place of the kind's back-off. The number of tries stays
// that of the kind.
func RetryAfter(err error, d time.Duration) error {
	return &retryAfterError{err: err, after: d}
}

type permanentError struct {
	err    error
	reason task.Reason
}

func (p *permanentError) Error() string { return p.err.Error() }
func (p *permanentError) Unwrap() error { return p.err }

type retryAfterError struct {
	err   error
	after time.Duration
}

func (r *retryAfterError) Error() string { return r.err.Error() }
func (r *retryAfterError) Unwrap() error { return r.err }

// What context.Cause gives a handler that has to stop.
var (
	ErrCanceled   = errors.New("the task was canceled")
	ErrDeadline   = errors.New("the run deadline has passed")
	ErrTerminated = errors.New("the pod is being stopped")
	ErrFenced     = errors.New("no heartbeat was acknowledged for too long")
	ErrStale      = errors.New("the control plane has given this attempt up")
)
