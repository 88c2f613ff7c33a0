package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/pkg/handler/internal/protocol"
	"slipway.dev/slipway/pkg/task"
)

var errDown = errors.New("connection refused")

// fakePlane is a control plane that answers as the test says and writes down what it was told, with the time since the
// bubble began.
type fakePlane struct {
	grant  protocol.Grant
	starts func(n int) error
	beats  func(n int) (protocol.Answer, error)
	finish func(n int, f protocol.Finish) error

	mu       sync.Mutex
	began    time.Time
	startN   int
	beatAt   []time.Duration
	progress []any
	finished []protocol.Finish
	finishAt []time.Duration
}

func newPlane() *fakePlane {
	return &fakePlane{began: time.Now(), grant: protocol.Grant{
		TaskID: "t-1", Kind: "test", Namespace: "demo", Params: json.RawMessage(`{}`), SessionKey: "key",
		Run: 3600, Grace: 20, Heartbeat: 10, FenceAfter: 60, AttemptNumber: 2,
	}}
}

func (f *fakePlane) Start(ctx context.Context) (protocol.Grant, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.startN++
	if f.starts != nil {
		if err := f.starts(f.startN); err != nil {
			return protocol.Grant{}, err
		}
	}
	return f.grant, ctx.Err()
}

func (f *fakePlane) Beat(ctx context.Context, progress any) (protocol.Answer, error) {
	f.mu.Lock()
	f.beatAt = append(f.beatAt, time.Since(f.began))
	f.progress = append(f.progress, progress)
	n := len(f.beatAt)
	f.mu.Unlock()
	if f.beats == nil {
		return protocol.Answer{}, ctx.Err()
	}
	return f.beats(n)
}

func (f *fakePlane) Finish(ctx context.Context, end protocol.Finish) error {
	f.mu.Lock()
	f.finished = append(f.finished, end)
	f.finishAt = append(f.finishAt, time.Since(f.began))
	n := len(f.finished)
	f.mu.Unlock()
	if f.finish == nil {
		return ctx.Err()
	}
	return f.finish(n, end)
}

// bench is a runner with a fake control plane, inside a synctest bubble.
type bench struct {
	*runner
	plane    *fakePlane
	term     func() // SIGTERM
	messages []string
	out      bytes.Buffer
	log      bytes.Buffer
}

func newBench(t *testing.T, h Handler) *bench {
	t.Helper()
	b := &bench{plane: newPlane()}
	told, cancel := context.WithCancelCause(t.Context())
	b.term = func() { cancel(&termination{at: time.Now()}) }
	b.runner = &runner{
		plane: b.plane, id: protocol.Identity{Attempt: 7, Fence: 41, PodUID: "pod"}, handlers: map[string]Handler{"test": h},
		told: told, message: func(text string) { b.messages = append(b.messages, text) },
		logf:   func(format string, args ...any) { fmt.Fprintf(&b.log, format+"\n", args...) },
		stdout: &b.out, stderr: &b.out, startWithin: startWithin,
	}
	t.Cleanup(func() { cancel(nil) })
	return b
}

// last gives the termination message that a kubelet would read.
func (b *bench) last(t *testing.T) task.Termination {
	t.Helper()
	if len(b.messages) == 0 {
		t.Fatal("there is no termination message")
	}
	m, ok := task.ParseTermination(b.messages[len(b.messages)-1])
	if !ok {
		t.Fatalf("the termination message %q is not ours", b.messages[len(b.messages)-1])
	}
	return m
}

func (b *bench) report(t *testing.T) protocol.Finish {
	t.Helper()
	if len(b.plane.finished) == 0 {
		t.Fatal("nothing was reported")
	}
	return b.plane.finished[len(b.plane.finished)-1]
}

func succeed(context.Context, Task) (any, error) { return map[string]int{"n": 1}, nil }

// untilStopped works until it is told to stop and then gives up.
func untilStopped(ctx context.Context, _ Task) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestSuccessIsReportedAndStandsInTheTerminationMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, succeed)
		if code := b.run(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		want := []string{"v1 7 41 started -", "v1 7 41 succeeded -"}
		if strings.Join(b.messages, "|") != strings.Join(want, "|") {
			t.Errorf("messages %q, want %q", b.messages, want)
		}
		if r := b.report(t); r.Outcome != task.OutcomeSucceeded || string(r.Result) != `{"n":1}` {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestTheStartedMessageIsWrittenBeforeTheHandlerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.handlers["test"] = func(context.Context, Task) (any, error) {
			return nil, fmt.Errorf("messages: %d", len(b.messages))
		}
		b.run()
		if got := b.report(t).Message; got != "messages: 1" {
			t.Errorf("the handler saw %q", got)
		}
	})
}

func TestAnUnreachableControlPlaneEndsWith122AfterTheBoundAndNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(context.Context, Task) (any, error) { t.Error("the handler ran"); return nil, nil })
		b.plane.starts = func(int) error { return errDown }
		began := time.Now()
		if code := b.run(); code != task.ExitUnreachable {
			t.Errorf("exit code %d, want %d", code, task.ExitUnreachable)
		}
		if took := time.Since(began); took > startWithin || took < startWithin-longestPause*2 {
			t.Errorf("gave up after %v, want just under %v", took, startWithin)
		}
		if n := b.plane.startN; n < 6 || n > 20 {
			t.Errorf("tried %d times", n)
		}
		if m := b.messages[len(b.messages)-1]; !strings.Contains(m, "could not be reached") || !strings.Contains(m, "connection refused") {
			t.Errorf("message %q does not tell why", m)
		}
	})
}

func TestAStartIsTriedAgainUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, succeed)
		b.plane.starts = func(n int) error {
			if n < 4 {
				return fmt.Errorf("start: %w", &protocol.RefusedError{Status: 503})
			}
			return nil
		}
		if code := b.run(); code != 0 || b.plane.startN != 4 {
			t.Errorf("exit code %d after %d tries", code, b.plane.startN)
		}
	})
}

func TestAStaleStartEndsWith121HavingTouchedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(context.Context, Task) (any, error) { t.Error("the handler ran"); return nil, nil })
		b.plane.starts = func(int) error { return fmt.Errorf("start: %w", protocol.ErrStale) }
		if code := b.run(); code != task.ExitGateRefused {
			t.Errorf("exit code %d, want %d", code, task.ExitGateRefused)
		}
		if b.plane.startN != 1 || len(b.plane.finished) != 0 {
			t.Errorf("%d starts, %d reports", b.plane.startN, len(b.plane.finished))
		}
		if _, ours := task.ParseTermination(b.messages[0]); ours {
			t.Errorf("message %q reads as an end", b.messages[0])
		}
	})
}

func TestAStartThatIsRefusedForGoodIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, succeed)
		b.plane.starts = func(int) error { return fmt.Errorf("start: %w", &protocol.RefusedError{Status: 404}) }
		if code := b.run(); code != task.ExitUnreachable || b.plane.startN != 1 {
			t.Errorf("exit code %d after %d tries", code, b.plane.startN)
		}
	})
}

func TestSIGTERMWhileAskingForTheStartEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, succeed)
		b.plane.starts = func(int) error { return errDown }
		time.AfterFunc(3*time.Second, b.term)
		began := time.Now()
		if code := b.run(); code != task.ExitUnreachable || time.Since(began) != 3*time.Second {
			t.Errorf("exit code %d after %v", code, time.Since(began))
		}
	})
}

func TestHeartbeatsGoEveryTenSecondsWithTheNewestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(_ context.Context, t Task) (any, error) {
			for i := range int64(35) {
				t.Progress(i, 35, "steps")
				time.Sleep(time.Second)
			}
			return nil, nil
		})
		b.run()
		if got := fmt.Sprint(b.plane.beatAt); got != "[10s 20s 30s]" {
			t.Errorf("beats at %s", got)
		}
		for i, p := range b.plane.progress {
			got, _ := p.(Progress)
			if want := int64(10 * (i + 1)); got.Done < want-1 || got.Done > want || got.Total != 35 {
				t.Errorf("beat %d carried %+v", i, got)
			}
		}
	})
}

func TestProgressThatWasNotTakenTravelsWithTheNextBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(_ context.Context, t Task) (any, error) {
			t.Progress(1, 2, "half")
			time.Sleep(25 * time.Second)
			return nil, nil
		})
		b.plane.beats = func(n int) (protocol.Answer, error) {
			if n == 1 {
				return protocol.Answer{}, errDown
			}
			return protocol.Answer{}, nil
		}
		b.run()
		if len(b.plane.progress) < 2 || b.plane.progress[1] != any(Progress{Done: 1, Total: 2, Message: "half"}) {
			t.Errorf("beats carried %+v", b.plane.progress)
		}
	})
}

func TestACancelReachesTheHandlerThroughTheHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		b := newBench(t, func(ctx context.Context, _ Task) (any, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil, ctx.Err()
		})
		b.plane.beats = func(n int) (protocol.Answer, error) { return protocol.Answer{Cancel: n == 2}, nil }
		began := time.Now()
		if code := b.run(); code != 1 || time.Since(began) != 20*time.Second {
			t.Errorf("exit code %d after %v", code, time.Since(began))
		}
		if !errors.Is(cause, ErrCanceled) {
			t.Errorf("the handler was told %v", cause)
		}
		if r := b.report(t); r.Outcome != task.OutcomeCanceled || r.Reason != task.ReasonCanceled {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestTheRunDeadlineRunsOnTheRunnersOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, untilStopped)
		b.plane.grant.Run = 33
		began := time.Now()
		b.run()
		if took := time.Since(began); took != 33*time.Second {
			t.Errorf("stopped after %v", took)
		}
		if r := b.report(t); r.Outcome != task.OutcomeTimedOut || r.Reason != task.ReasonRunDeadline {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestTheHeartbeatsAnswerMovesTheRunDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, untilStopped)
		b.plane.grant.Run = 15
		left := task.Seconds(100)
		b.plane.beats = func(n int) (protocol.Answer, error) {
			if n == 1 {
				return protocol.Answer{Left: &left}, nil
			}
			return protocol.Answer{}, nil
		}
		began := time.Now()
		b.run()
		if took := time.Since(began); took != 110*time.Second {
			t.Errorf("stopped after %v", took)
		}
	})
}

func TestTheFenceTimeCountsFromTheSendOfTheLastAcknowledgedBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, untilStopped)
		b.plane.beats = func(n int) (protocol.Answer, error) {
			if n > 2 {
				return protocol.Answer{}, errDown
			}
			time.Sleep(3 * time.Second) // the answer's way does not count
			return protocol.Answer{}, nil
		}
		b.plane.finish = func(int, protocol.Finish) error { return errDown }
		began := time.Now()
		if code := b.run(); code != 1 {
			t.Errorf("exit code %d", code)
		}
		took := time.Since(began)
		if took < 80*time.Second || took > 80*time.Second+fencedFinish {
			t.Errorf("gone after %v, want the second beat at 20s + 60s, and at most %v to report", took, fencedFinish)
		}
		if m := b.last(t); m.Outcome != task.OutcomeLost || m.Reason != task.ReasonHeartbeat {
			t.Errorf("message %+v", m)
		}
	})
}

func TestFailedHeartbeatsAreRepeatedSoonerThanTheNextOneWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(context.Context, Task) (any, error) { time.Sleep(20 * time.Second); return nil, nil })
		b.plane.beats = func(n int) (protocol.Answer, error) {
			if n == 1 {
				return protocol.Answer{}, errDown
			}
			return protocol.Answer{}, nil
		}
		b.run()
		if len(b.plane.beatAt) < 2 || b.plane.beatAt[1] > 12*time.Second {
			t.Errorf("beats at %v", b.plane.beatAt)
		}
	})
}

func TestAStaleHeartbeatStopsTheHandlerAtOnceAndReportsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var killed time.Duration
		began := time.Now()
		b := newBench(t, func(ctx context.Context, t Task) (any, error) {
			<-ctx.Done()
			<-t.Overdue
			killed = time.Since(began)
			return nil, context.Cause(ctx)
		})
		b.plane.beats = func(int) (protocol.Answer, error) {
			return protocol.Answer{}, fmt.Errorf("heartbeat: %w", protocol.ErrStale)
		}
		if code := b.run(); code != 1 || killed != 10*time.Second {
			t.Errorf("exit code %d, killed after %v", code, killed)
		}
		if len(b.plane.finished) != 0 {
			t.Errorf("reported %+v", b.plane.finished)
		}
		if m := b.last(t); m.Outcome != task.OutcomeLost || m.Reason != ReasonStale {
			t.Errorf("message %+v", m)
		}
	})
}

func TestAHandlerThatFinishesItsWorkAfterSIGTERMHasSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(ctx context.Context, _ Task) (any, error) {
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			return "done", nil
		})
		time.AfterFunc(time.Second, b.term)
		if code := b.run(); code != 0 || b.report(t).Outcome != task.OutcomeSucceeded {
			t.Errorf("exit code %d, reported %+v", code, b.report(t))
		}
	})
}

func TestAHandlerThatStopsOnSIGTERMIsLostNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := 143
		b := newBench(t, func(ctx context.Context, _ Task) (any, error) {
			<-ctx.Done()
			return nil, &Failure{Reason: task.ReasonSignal, Message: "ended by signal 15", ExitCode: &code}
		})
		time.AfterFunc(time.Second, b.term)
		if got := b.run(); got != 143 {
			t.Errorf("exit code %d", got)
		}
		r := b.report(t)
		if r.Outcome != task.OutcomeLost || r.Reason != task.ReasonTerminated || !strings.Contains(r.Message, "signal 15") {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestAHandlerThatDoesNotStopIsLeftBeforeTheKubeletKillsThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overdue := make(chan time.Duration, 1)
		release := make(chan struct{})
		defer close(release)
		began := time.Now()
		b := newBench(t, func(_ context.Context, t Task) (any, error) {
			<-t.Overdue
			overdue <- time.Since(began)
			<-release
			return nil, nil
		})
		time.AfterFunc(100*time.Second, b.term)
		b.run()
		if at := <-overdue; at != 120*time.Second { // SIGTERM at 100 s, grace 20 s
			t.Errorf("overdue after %v", at)
		}
		if took := time.Since(began); took >= 125*time.Second {
			t.Errorf("gone after %v", took)
		}
		if r := b.report(t); r.Outcome != task.OutcomeLost || !strings.Contains(r.Message, "did not stop") {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestSIGTERMAfterACancelNeitherLengthensTheGracePeriodNorChangesTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var overdue time.Duration
		began := time.Now()
		b := newBench(t, func(_ context.Context, t Task) (any, error) {
			<-t.Overdue
			overdue = time.Since(began)
			return nil, errors.New("killed")
		})
		b.plane.beats = func(int) (protocol.Answer, error) { return protocol.Answer{Cancel: true}, nil } // at 10 s
		time.AfterFunc(12*time.Second, b.term)
		b.run()
		if overdue != 30*time.Second {
			t.Errorf("overdue after %v", overdue)
		}
		if r := b.report(t); r.Outcome != task.OutcomeCanceled {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestAReportIsRepeatedUpToTheFenceTimeAndTheMessageStandsAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, succeed)
		b.plane.finish = func(n int, _ protocol.Finish) error {
			if m := b.last(t); m.Outcome != task.OutcomeSucceeded {
				t.Errorf("message %+v at report %d", m, n)
			}
			return errDown
		}
		began := time.Now()
		if code := b.run(); code != 0 {
			t.Errorf("exit code %d: a report that nobody takes does not change the outcome", code)
		}
		if took := time.Since(began); took < 50*time.Second || took > 60*time.Second {
			t.Errorf("tried for %v, want about the fence time of 60s", took)
		}
	})
}

func TestSIGTERMDuringTheReportEndsItBeforeTheKubeletKillsThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, succeed)
		b.plane.finish = func(int, protocol.Finish) error { return errDown }
		time.AfterFunc(5*time.Second, b.term)
		began := time.Now()
		b.run()
		if took := time.Since(began); took >= 30*time.Second || took < 20*time.Second {
			t.Errorf("tried for %v, want a little less than 5s + 20s + 5s", took)
		}
	})
}

func TestAReportThatIsStaleIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, succeed)
		b.plane.finish = func(int, protocol.Finish) error { return fmt.Errorf("finish: %w", protocol.ErrStale) }
		if code := b.run(); code != 0 || len(b.plane.finished) != 1 {
			t.Errorf("exit code %d after %d reports", code, len(b.plane.finished))
		}
	})
}

func TestAReportThatIsRefusedGoesAgainWithoutResultAndLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(_ context.Context, t Task) (any, error) {
			_, _ = t.Stdout.Write([]byte("hello\n"))
			return "value", nil
		})
		b.plane.finish = func(n int, _ protocol.Finish) error {
			if n == 1 {
				return fmt.Errorf("finish: %w", &protocol.RefusedError{Status: 413, Text: "too large"})
			}
			return nil
		}
		b.run()
		if len(b.plane.finished) != 2 {
			t.Fatalf("%d reports", len(b.plane.finished))
		}
		if first := b.plane.finished[0]; string(first.LogTail) != "hello\n" || string(first.Result) != `"value"` {
			t.Errorf("first report %+v", first)
		}
		second := b.plane.finished[1]
		if second.Result != nil || second.LogTail != nil || second.Outcome != task.OutcomeSucceeded || !strings.Contains(second.Message, "too large") {
			t.Errorf("second report %+v", second)
		}
	})
}

func TestAPanicIsAFailureWithTheReasonPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(context.Context, Task) (any, error) { panic("out of cheese") })
		if code := b.run(); code != 1 {
			t.Errorf("exit code %d", code)
		}
		if r := b.report(t); r.Outcome != task.OutcomeFailed || r.Reason != task.ReasonPanic || r.Message != "panic: out of cheese" {
			t.Errorf("reported %+v", r)
		}
		if !strings.Contains(b.out.String(), "goroutine") {
			t.Error("the log lacks the stack")
		}
	})
}

func TestAKindWithoutAHandlerIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, succeed)
		b.plane.grant.Kind = "other"
		b.run()
		if r := b.report(t); r.Outcome != task.OutcomeRejected || r.Reason != task.ReasonUnknownKind {
			t.Errorf("reported %+v", r)
		}
	})
}
