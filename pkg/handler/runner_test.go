package handler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/pkg/handler/internal/protocol"
	"slipway.dev/slipway/pkg/task"
)

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
