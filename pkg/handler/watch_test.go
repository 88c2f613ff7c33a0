package handler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/pkg/handler/internal/protocol"
	"slipway.dev/slipway/pkg/task"
)

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

func TestACancelIsHeardAtOnceWhereHeartbeatsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, untilStopped)
		b.plane.grant.Hold = 10
		b.plane.stop = 17*time.Second + 1
		began := time.Now()
		b.run()
		if took := time.Since(began); took != b.plane.stop {
			t.Errorf("stopped after %v, asked at %v", took, b.plane.stop)
		}
		if got := fmt.Sprint(b.plane.beatAt, b.plane.held); got != "[1s 11s] [10s 10s]" {
			t.Errorf("beats at and held for %s", got)
		}
		if r := b.report(t); r.Outcome != task.OutcomeCanceled {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestAHeldHeartbeatDelaysNeitherTheEndNorTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(context.Context, Task) (any, error) {
			time.Sleep(15 * time.Second)
			return nil, nil
		})
		b.plane.grant.Hold = 10
		began := time.Now()
		if code := b.run(); code != 0 || time.Since(began) != 15*time.Second {
			t.Errorf("exit code %d after %v", code, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, untilStopped)
		b.plane.grant.Hold = 10
		b.plane.beats = func(n int) (protocol.Answer, error) {
			time.Sleep(10 * time.Second)
			if n > 1 {
				return protocol.Answer{}, errDown
			}
			return protocol.Answer{}, nil
		}
		b.plane.finish = func(int, protocol.Finish) error { return errDown }
		began := time.Now()
		b.run()
		if took := time.Since(began); took < 61*time.Second || took > 61*time.Second+fencedFinish {
			t.Errorf("fenced after %v, the last good beat was sent at 1s", took)
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
