package handler

import (
	"cmp"
	"context"
	"errors"
	"time"

	"slipway.dev/slipway/pkg/handler/internal/protocol"
	"slipway.dev/slipway/pkg/task"
)

// watch attends one running handler: it beats, and it stops the handler on a cancel, on SIGTERM, at the run deadline,
// at the fence time, and at once where the control plane has given the Attempt up. One goroutine, attend, owns it.
type watch struct {
	r     *runner
	grant protocol.Grant

	lastGood time.Time // when the last acknowledged call was sent
	cause    error     // why the handler was told to stop; the first reason stays
	cancel   context.CancelCauseFunc
	overdue  chan struct{}
	progress chan Progress // holds at most the newest value

	beat     *time.Timer // the next heartbeat is due
	fence    *time.Timer // too long without an acknowledged heartbeat
	deadline *time.Timer // of the run; nil where there is none
	killAt   *time.Timer // the grace period is over; nil while nothing stops it
	killTime time.Time
	abandon  <-chan time.Time // after the kill: the process does not wait any longer

	answers chan beatResult // of the one heartbeat that is under way
	flying  bool
	pauses  pauses
	silent  bool // heartbeats fail, and that has been said
}

type beatResult struct {
	sent   time.Time
	answer protocol.Answer
	err    error
}

func newWatch(r *runner, g protocol.Grant, sent time.Time) *watch {
	g.Grace = positive(g.Grace, task.DefaultGrace)
	g.Heartbeat = positive(g.Heartbeat, task.HeartbeatEvery)
	g.FenceAfter = positive(g.FenceAfter, task.DefaultFenceAfter)
	w := &watch{
		r: r, grant: g, lastGood: sent,
		overdue:  make(chan struct{}),
		progress: make(chan Progress, 1),
		answers:  make(chan beatResult, 1),
		beat:     time.NewTimer(firstBeat(g)),
		fence:    time.NewTimer(time.Until(sent.Add(g.FenceAfter.Duration()))),
		pauses:   newPauses(min(longestPause, g.Heartbeat.Duration())),
	}
	if g.Run > 0 {
		w.deadline = time.NewTimer(time.Until(sent.Add(g.Run.Duration())))
	}
	return w
}

// firstBeat is how long the first heartbeat waits: where it is held it is what hears a cancel, and comes soon. What ends
// before it has cost no call more.
func firstBeat(g protocol.Grant) time.Duration {
	if g.Hold > 0 {
		return min(time.Second, g.Heartbeat.Duration())
	}
	return g.Heartbeat.Duration()
}

func positive(given, otherwise task.Seconds) task.Seconds {
	if given > 0 {
		return given
	}
	return otherwise
}

// attend runs the handler to its end, or until the process may not wait for it any longer.
func (w *watch) attend() ending {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	w.cancel = cancel
	done := make(chan ending, 1)
	go func() { done <- w.r.work(ctx, w.task()) }()

	calls, hangUp := context.WithCancel(context.Background())
	defer w.landBeat()
	defer hangUp()
	told := w.r.told.Done()
	for {
		select {
		case end := <-done:
			end.cause = w.cause
			return end
		case <-told:
			told = nil
			w.stopBy(ErrTerminated, w.termAt().Add(w.grace()))
		case <-timerC(w.deadline):
			w.stopBy(ErrDeadline, time.Now().Add(w.grace()))
		case <-w.fence.C:
			w.fenced()
		case <-timerC(w.killAt):
			close(w.overdue)
			w.killAt = nil
			w.abandon = time.After(reapWithin)
		case <-w.abandon:
			return ending{cause: w.cause, silent: true}
		case <-w.beat.C:
			w.sendBeat(calls)
		case b := <-w.answers:
			w.hear(b)
		}
	}
}

func (w *watch) task() Task {
	return Task{
		ID: w.grant.TaskID, Kind: w.grant.Kind, Namespace: w.grant.Namespace, Attempt: w.grant.AttemptNumber, Params: w.grant.Params,
		Stdout: w.r.tail.stream(w.r.stdout), Stderr: w.r.tail.stream(w.r.stderr), Dir: w.r.dir,
		Overdue: w.overdue, OnProgress: w.setProgress,
	}
}

// setProgress replaces what waits for the next heartbeat. It is called by the handler's goroutines.
func (w *watch) setProgress(p Progress) {
	for {
		select {
		case w.progress <- p:
			return
		default:
		}
		select {
		case <-w.progress:
		default:
		}
	}
}

// stopBy tells the handler to stop and sets the end of its grace period; a second reason can only bring that nearer.
func (w *watch) stopBy(cause error, kill time.Time) {
	if w.cause == nil {
		w.cause = cause
		w.cancel(cause)
	} else if w.killAt == nil || !kill.Before(w.killTime) {
		return // the grace period is over already, or ends earlier than this reason asks
	}
	w.killTime = kill
	w.killAt = time.NewTimer(time.Until(kill))
}

// fenced stops the handler where the fence time is over. Its grace period began then: a process that was frozen for
// longer kills its handler as soon as it wakes, since somebody else may hold the lane by now.
func (w *watch) fenced() bool {
	at := w.lastGood.Add(w.grant.FenceAfter.Duration())
	if time.Now().Before(at) {
		return false
	}
	w.stopBy(ErrFenced, at.Add(cmp.Or(w.r.fenceGrace, w.grace())))
	return true
}

func (w *watch) sendBeat(ctx context.Context) {
	if w.fenced() {
		return // it woke too late: nothing goes before that
	}
	var progress any
	select {
	case p := <-w.progress:
		progress = p
	default:
	}
	w.flying = true
	sent := time.Now()
	go func() {
		answer, err := w.r.plane.Beat(ctx, progress, w.grant.Hold.Duration())
		if p, ok := progress.(Progress); ok && err != nil {
			select { // what was not taken waits for the next one, unless there is newer
			case w.progress <- p:
			default:
			}
		}
		w.answers <- beatResult{sent: sent, answer: answer, err: err}
	}()
}

// landBeat waits for a heartbeat that is under way; its call has been canceled.
func (w *watch) landBeat() {
	if w.flying {
		<-w.answers
	}
	w.beat.Stop()
	w.fence.Stop()
}

// hear acts on the answer to a heartbeat.
func (w *watch) hear(b beatResult) {
	w.flying = false
	if errors.Is(b.err, protocol.ErrStale) {
		// Somebody else may hold the lane by now: no grace.
		w.stopBy(ErrStale, time.Now())
		return
	}
	if b.err != nil {
		if !w.silent {
			w.r.logf("a heartbeat failed, trying on: %v", b.err)
		}
		w.silent = true
		w.beat.Reset(w.pauses.after(b.err))
		return
	}
	w.silent = false
	w.pauses = newPauses(min(longestPause, w.grant.Heartbeat.Duration()))
	w.lastGood = b.sent
	w.fence.Reset(time.Until(b.sent.Add(w.grant.FenceAfter.Duration())))
	w.beat.Reset(time.Until(b.sent.Add(w.grant.Heartbeat.Duration())))
	if left := b.answer.Left; left != nil && w.deadline != nil {
		w.deadline.Reset(time.Until(b.sent.Add(left.Duration())))
	}
	if b.answer.Cancel {
		w.stopBy(ErrCanceled, time.Now().Add(w.grace()))
	}
}

func (w *watch) grace() time.Duration { return w.grant.Grace.Duration() }

// termAt is when SIGTERM came.
func (w *watch) termAt() time.Time {
	var t *termination
	if errors.As(context.Cause(w.r.told), &t) {
		return t.at
	}
	return time.Now()
}

// lastWord is until when a pod that was told to stop may try to report: a little before the kubelet kills it.
func (w *watch) lastWord() time.Time {
	return w.termAt().Add(w.grace() + reportWithin)
}

// finishBy is until when to try to report.
func (w *watch) finishBy(report task.Report) time.Time {
	if report.Reason == task.ReasonHeartbeat && errors.Is(w.cause, ErrFenced) {
		return time.Now().Add(fencedFinish)
	}
	by := w.lastGood.Add(w.grant.FenceAfter.Duration())
	if soon := time.Now().Add(longestPause); by.Before(soon) {
		by = soon
	}
	return by
}

func timerC(t *time.Timer) <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.C
}
