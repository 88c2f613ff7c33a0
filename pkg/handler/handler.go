package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"slipway.dev/slipway/pkg/task"
)

// Handler does the work of one kind. A nil error means that all of it is done; result is then stored as JSON. An error
// is a failure that may be tried again, unless it is made by [Permanent]. When ctx is canceled the handler has its
// grace period to come to an end; [context.Cause] tells why. Returning nil after that still means that it is done.
type Handler func(ctx context.Context, t Task) (result any, err error)

// Task is what a Handler is given.
type Task struct {
	ID        string // of the Task, as its user sees it
	Kind      string
	Namespace string
	Attempt   int             // number of this try, from 1
	Params    json.RawMessage // with the values of secret parameters in their places

	// Stdout and Stderr go to the pod's log unchanged; the end of both is kept with the Attempt.
	Stdout, Stderr io.Writer
	// Dir is a folder for what is handed over as files: result.json and progress.
	Dir string
	// Overdue is closed when the grace period is over: what still runs has to be killed now, the process is about to
	// exit. Handlers without processes of their own need not look at it.
	Overdue <-chan struct{}
	// OnProgress receives what Progress is told. Main sets it; a test may.
	OnProgress func(Progress)
}

// Progress is how far a handler has come.
type Progress struct {
	Done    int64  `json:"done"`
	Total   int64  `json:"total"`
	Message string `json:"message,omitempty"`
}

// maxProgress bounds the message of a Progress, in bytes.
const maxProgress = 200

// Decode reads the parameters into a struct. What it does not know, it refuses: a misspelled parameter ends the Task
// at once instead of being ignored.
func (t Task) Decode(into any) error {
	params := t.Params
	if len(bytes.TrimSpace(params)) == 0 {
		params = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(params))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return Permanent(fmt.Errorf("read the parameters: %w", err), ReasonParams)
	}
	return nil
}

// Progress says how far the work is; total 0 means unknown. It never blocks and may be called as often as one likes:
// the newest value travels with the next heartbeat.
func (t Task) Progress(done, total int64, message string) {
	if t.OnProgress != nil {
		t.OnProgress(Progress{Done: done, Total: total, Message: cleanText(message, maxProgress)})
	}
}

// Reasons that this package gives beside those of pkg/task.
const (
	ReasonParams task.Reason = "invalid_params" // the parameters are not what the handler takes
	ReasonResult task.Reason = "invalid_result" // the result is no JSON, or larger than can be kept
	ReasonStale  task.Reason = "stale"          // the control plane has given this Attempt up
)
