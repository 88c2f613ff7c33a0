package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"slipway.dev/slipway/pkg/handler/internal/protocol"
	"slipway.dev/slipway/pkg/task"
)

// The runner protocol, for who speaks it inside one process.
type (
	// Grant is the answer to a start: what to run, and the numbers to keep to.
	Grant = protocol.Grant
	// Answer is the answer to a heartbeat.
	Answer = protocol.Answer
	// Finish is how a handler ended.
	Finish = protocol.Finish
	// Plane takes what a runner says. An error that wraps ErrRefused means that the Attempt is not, or no longer, its own.
	Plane = plane
)

var (
	// ErrRefused is the answer to a runner that does not hold its Attempt.
	ErrRefused = protocol.ErrStale
	// ErrOutlived says that a handler has not returned although its time was over. It still runs, and only the end of the
	// process ends it.
	ErrOutlived = errors.New("a handler did not return in its time")
)

// Bounds of a handler in a process that it shares.
const (
	inlineStart = 10 * time.Second // for the start to be answered
	// What a handler has between being told to stop at the fence time and reapWithin before the end of its process.
	inlineFenceGrace = 3 * time.Second
)

// Inline is one Attempt that runs in a process that it shares with others: as [Main] runs it, without a pod, a signal or
// an exit of its own.
type Inline struct {
	Plane          Plane
	Attempt, Fence int64
	Handlers       map[string]Handler
	Dir            string // an empty folder for what is handed over as files
	Logf           func(format string, args ...any)
}

// Run carries the Attempt from its start to its report. When ctx is done the handler is told to stop, with the grace
// period of the grant. The error is ErrOutlived, or nil: whatever else happened was reported, or is for others to find out.
//
//nolint:contextcheck // ctx tells the runner to stop: what it does until its report is done outlives it
func (in Inline) Run(ctx context.Context) error {
	told, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	release := context.AfterFunc(ctx, func() { cancel(&termination{at: time.Now()}) })
	defer release()
	r := &runner{
		plane: in.Plane, id: protocol.Identity{Attempt: in.Attempt, Fence: in.Fence}, handlers: in.Handlers, told: told,
		message: func(string) {}, logf: in.Logf, stdout: io.Discard, stderr: io.Discard, dir: in.Dir,
		startWithin: inlineStart, fenceGrace: inlineFenceGrace,
	}
	grant, sent, code := r.start()
	if code != 0 {
		return nil // it is somebody else's, or is started anew
	}
	w := newWatch(r, grant, sent)
	end := w.attend()
	if end.silent {
		return fmt.Errorf("attempt %d of kind %s: %w", in.Attempt, grant.Kind, ErrOutlived)
	}
	if report := conclude(end); !errors.Is(end.cause, ErrStale) {
		r.finish(w, report)
	}
	return nil
}

// InlineGrant gives the numbers that a runner inside the control plane keeps to.
func InlineGrant(t task.Task, a task.Attempt) Grant {
	return Grant{
		TaskID: t.ID, Kind: t.Kind, Namespace: t.Namespace, Params: t.Params, AttemptNumber: a.Number,
		Run: t.Spec.RunDeadline, Grace: max(min(t.Spec.Grace, task.InlineGrace), 1), Heartbeat: task.InlineBeat,
		Hold: task.InlineBeat, FenceAfter: task.InlineCancelAfter,
	}
}
