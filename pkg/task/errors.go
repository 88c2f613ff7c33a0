package task

import "errors"

// What a guarded write or a read by id can answer; whoever implements one wraps these.
var (
	// ErrNotFound means that there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrStale means that the Attempt has ended or its fence has passed on: nothing was changed.
	ErrStale = errors.New("the attempt has ended or its fence has passed on")
	// ErrOtherPod means that another pod of the same Attempt won start.
	ErrOtherPod = errors.New("another pod of the attempt has started")
	// ErrTaken means that a Job of the wanted name exists and is not this Attempt's: it is never touched.
	ErrTaken = errors.New("the job's name is taken by another")
	// ErrUnavailable means that the database or the cluster could not be reached: nothing is known, try again.
	ErrUnavailable = errors.New("unavailable")
)
