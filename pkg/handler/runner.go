package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"slipway.dev/slipway/pkg/handler/internal/protocol"
	"slipway.dev/slipway/pkg/task"
)

// Bounds of a runner. The times that a Task may set come with the answer to start.
const (
	startWithin  = time.Minute     // for start to be answered, below the shortest default start deadline of 2 min
	firstPause   = time.Second     // between two tries of a call; doubles
	longestPause = 8 * time.Second // cap of the doubling, jitter of a fifth aside
	reapWithin   = 2 * time.Second // after the grace period, for the handler to have killed its processes
	fencedFinish = 5 * time.Second // the one last try to report of a runner that has fenced itself
	// reportWithin is what a runner has for the report after the grace period of its handler: the pod is made with 5 s
	// more than the Task's grace period.
	reportWithin = 4500 * time.Millisecond
)

// plane is the control plane as a runner sees it.
type plane interface {
	Start(ctx context.Context) (protocol.Grant, error)
	// Beat may wait with its answer for a cancel, for as long as hold.
	Beat(ctx context.Context, progress any, hold time.Duration) (protocol.Answer, error)
	Finish(ctx context.Context, f protocol.Finish) error
}

// runner carries one Attempt from start to its report.
type runner struct {
	plane       plane
	id          protocol.Identity
	handlers    map[string]Handler
	told        context.Context // canceled by SIGTERM, with a *termination as its cause
	message     func(string)    // writes the termination message
	logf        func(format string, args ...any)
	stdout      io.Writer
	stderr      io.Writer
	dir         string
	startWithin time.Duration
	secrets     map[string]string // values by parameter
	gate        bool              // only ask for the start
	fenceGrace  time.Duration     // of a handler that is stopped at the fence time; 0: that of its Task

	tail tail
}

// run gives the exit code of the process.
func (r *runner) run() int {
	grant, sent, code := r.start()
	if code != 0 {
		return code
	}
	if r.gate {
		return 0
	}
	r.note(task.TerminationStarted, task.ReasonNone, "")
	w := newWatch(r, grant, sent)
	end := w.attend()
	report := conclude(end)
	// First the message: it outlives this process even if the report finds nobody to take it.
	r.note(report.Outcome, report.Reason, report.Message)
	if end.cause != nil && report.Outcome != task.OutcomeSucceeded {
		r.logf("stopped: %s", report.Message)
	}
	if !errors.Is(end.cause, ErrStale) {
		r.finish(w, report)
	}
	return exitCode(report)
}

func (r *runner) note(outcome task.Outcome, reason task.Reason, text string) {
	r.message(task.Termination{Attempt: r.id.Attempt, Fence: r.id.Fence, Outcome: outcome, Reason: reason, Text: text}.String())
}

// start asks until the control plane grants or refuses the start, or the time for it is over. Before it is granted
// nothing has run, so each way out has an exit code of its own and a message in plain words.
func (r *runner) start() (g protocol.Grant, sent time.Time, code int) {
	ctx, cancel := context.WithTimeout(r.told, r.startWithin)
	defer cancel()
	for pauses := newPauses(longestPause); ; {
		sent = time.Now()
		g, err := r.plane.Start(ctx)
		if err == nil {
			return g, sent, 0
		}
		if errors.Is(err, protocol.ErrStale) {
			r.giveUp("the control plane refused the start: " + err.Error())
			return g, sent, task.ExitGateRefused
		}
		var refused *protocol.RefusedError
		if errors.As(err, &refused) && refused.Final() {
			r.giveUp("the control plane refused the start: " + err.Error())
			return g, sent, task.ExitUnreachable
		}
		if !pauses.wait(ctx, err) {
			why := fmt.Sprintf("the control plane could not be reached within %v (does a NetworkPolicy stand between?): %v", r.startWithin, err)
			if r.told.Err() != nil {
				why = "the pod was stopped before the control plane answered: " + err.Error()
			}
			r.giveUp(why)
			return g, sent, task.ExitUnreachable
		}
	}
}

func (r *runner) giveUp(why string) {
	r.logf("%s; nothing has run", why)
	r.message(cleanText(why, 1024))
}

// finish reports until somebody took it, the Attempt is known to be given up, or the pod may not live any longer: up
// to the fence time after the last good heartbeat, or, once SIGTERM has come, until shortly before the kubelet's kill.
func (r *runner) finish(w *watch, report task.Report) {
	ctx, cancel := context.WithDeadline(context.Background(), w.finishBy(report))
	defer cancel()
	// SIGTERM shortens it; the deadline above still holds.
	release := context.AfterFunc(r.told, func() { time.AfterFunc(time.Until(w.lastWord()), cancel) })
	defer release()
	f := protocol.Finish{
		Outcome: report.Outcome, Reason: report.Reason, Message: report.Message, Result: report.Result,
		ExitCode: report.ExitCode, RetryAfter: report.RetryAfter, LogTail: r.tail.bytes(),
	}
	for pauses := newPauses(longestPause); ; {
		err := r.plane.Finish(ctx, f)
		if err == nil || errors.Is(err, protocol.ErrStale) {
			return
		}
		var refused *protocol.RefusedError
		if errors.As(err, &refused) && refused.Final() {
			if f.Result == nil && f.LogTail == nil {
				r.logf("the report was refused: %v", err)
				return
			}
			// Better the bare outcome than none.
			f.Message = sentence(f.Message, "the full report was refused: "+err.Error())
			f.Result, f.LogTail = nil, nil
			continue
		}
		if !pauses.wait(ctx, err) {
			r.logf("the report found nobody to take it; the termination message has it: %v", err)
			return
		}
	}
}

// termination is the cause with which runner.told is canceled: SIGTERM, and when it came.
type termination struct{ at time.Time }

func (t *termination) Error() string { return "SIGTERM" }

// work runs the handler of the granted kind and catches its panic.
func (r *runner) work(ctx context.Context, t Task) (end ending) {
	h, known := r.handlers[t.Kind]
	if !known {
		h, known = r.handlers[AnyKind]
	}
	if !known {
		return ending{err: Permanent(fmt.Errorf("this image has no handler for kind %q", t.Kind), task.ReasonUnknownKind)}
	}
	params, err := resolved(t.Params, r.secrets)
	if err != nil {
		return ending{err: Permanent(err, ReasonParams)}
	}
	t.Params = params
	defer func() {
		if p := recover(); p != nil {
			_, _ = fmt.Fprintf(t.Stderr, "panic: %v\n%s", p, debug.Stack()) // a broken log cannot be reported anywhere
			end = ending{err: &Failure{Reason: task.ReasonPanic, Message: fmt.Sprintf("panic: %v", p)}}
		}
	}()
	result, err := h(ctx, t)
	return ending{result: result, err: err}
}

// pauses are the waits between two tries: doubling, with jitter, and at least what the other side asked for.
type pauses struct {
	next, longest time.Duration
}

func newPauses(longest time.Duration) pauses {
	return pauses{next: min(firstPause, longest), longest: longest}
}

// after gives the next wait.
func (p *pauses) after(err error) time.Duration {
	d := p.next
	p.next = min(2*p.next, p.longest)
	var refused *protocol.RefusedError
	if errors.As(err, &refused) {
		d = max(d, min(refused.RetryAfter, p.longest))
	}
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // jitter is no secret
}

// wait sleeps before the next try; false means that ctx is over first.
func (p *pauses) wait(ctx context.Context, err error) bool {
	timer := time.NewTimer(p.after(err))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
