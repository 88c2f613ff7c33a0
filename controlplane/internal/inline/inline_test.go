package inline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("the database is away")

// books are the database of a test.
type books struct {
	mu      sync.Mutex
	holders map[int64]string // of each Attempt, by holder
	beats   []time.Time
	down    bool
	cancel  bool
	reports map[int64]task.Report
	tails   map[int64]string

	outlived [][2]string
}

func newBooks() *books {
	return &books{holders: map[int64]string{}, reports: map[int64]task.Report{}, tails: map[int64]string{}}
}

func (b *books) Start(_ context.Context, h Hold) (task.Task, task.Attempt, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if by := b.holders[h.Attempt]; by != "" && by != h.Holder {
		return task.Task{}, task.Attempt{}, fmt.Errorf("start: %w", task.ErrOtherPod)
	}
	b.holders[h.Attempt] = h.Holder
	spec := task.DefaultSpec()
	spec.RunDeadline = task.InlineMost
	return task.Task{ID: "t", Kind: "test", Spec: spec}, task.Attempt{ID: h.Attempt, Number: 1}, nil
}

func (b *books) Beat(context.Context, Hold, json.RawMessage, <-chan struct{}) (bool, time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return false, 0, errDown
	}
	b.beats = append(b.beats, time.Now())
	return b.cancel, time.Minute, nil
}

func (b *books) Report(_ context.Context, h Hold, r task.Report, tail []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return errDown
	}
	b.reports[h.Attempt], b.tails[h.Attempt] = r, string(tail)
	return nil
}

func (b *books) Outlived(_ context.Context, ours, but string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return errDown
	}
	b.outlived = append(b.outlived, [2]string{ours, but})
	return nil
}

func (b *books) report(attempt int64) task.Report {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reports[attempt]
}

func (b *books) goDown() time.Time {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = true
	return b.beats[len(b.beats)-1]
}

// pooled runs a Pool of two places in a bubble of time; f gets what ends it and how it ended.
func pooled(t *testing.T, h handler.Handler, f func(t *testing.T, b *books, p *Pool, stop func(), ended <-chan error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBooks()
		p := New(Config{Books: b, Handlers: map[string]handler.Handler{"test": h}, Replica: "a", Places: 2, Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		synctest.Wait()
		f(t, b, p, stop, ended)
	})
}

func attempt(id int64) task.Attempt {
	return task.Attempt{ID: id, Fence: 100 + id, Kind: "test", TaskID: "t"}
}

func TestAnInlineHandlerIsReportedWithItsResultAndTheEndOfItsLog(t *testing.T) {
	h := func(_ context.Context, t handler.Task) (any, error) {
		t.Progress(1, 2, "half")
		_, err := fmt.Fprintln(t.Stdout, "hello from inside")
		return map[string]int{"n": 1}, err
	}
	pooled(t, h, func(t *testing.T, b *books, p *Pool, stop func(), ended <-chan error) {
		if !p.Take(attempt(1)) {
			t.Fatal("not taken")
		}
		if r := b.report(1); r.Outcome != task.OutcomeSucceeded || string(r.Result) != `{"n":1}` || b.tails[1] != "hello from inside\n" {
			t.Errorf("reported %+v, log %q", r, b.tails[1])
		}
		stop()
		if err := <-ended; err != nil || p.Take(attempt(2)) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestAReplicaThatCannotStoreABeatFor20sCancelsItsHandlers(t *testing.T) {
	told := make(chan time.Time, 1)
	h := func(ctx context.Context, _ handler.Task) (any, error) {
		<-ctx.Done()
		told <- time.Now()
		return nil, context.Cause(ctx)
	}
	pooled(t, h, func(t *testing.T, b *books, p *Pool, stop func(), ended <-chan error) {
		told = make(chan time.Time, 1) // of this bubble
		p.Take(attempt(1))
		time.Sleep(10 * time.Second)
		last := b.goDown()
		time.Sleep(task.InlineCancelAfter.Duration() - time.Since(last) - time.Second)
		synctest.Wait()
		if len(told) > 0 {
			t.Fatal("told too early")
		}
		time.Sleep(time.Minute)
		if after := (<-told).Sub(last); after != task.InlineCancelAfter.Duration() {
			t.Errorf("told after %v", after)
		}
		select {
		case err := <-ended:
			t.Errorf("ended with %v although its handler had returned", err)
		default:
		}
		stop()
		<-ended
	})
}

func TestAReplicaExitsAfter25sWhereAHandlerHasNotReturned(t *testing.T) {
	release := make(chan struct{})
	h := func(context.Context, handler.Task) (any, error) {
		<-release // deaf
		return nil, nil
	}
	pooled(t, h, func(t *testing.T, b *books, p *Pool, _ func(), ended <-chan error) {
		release = make(chan struct{}) // of this bubble
		p.Take(attempt(1))
		time.Sleep(10 * time.Second)
		last := b.goDown()
		err := <-ended
		if after := time.Since(last); !errors.Is(err, handler.ErrOutlived) || after != task.InlineExitAfter.Duration() {
			t.Errorf("ended with %v after %v", err, after)
		}
		if r := b.report(1); r.Outcome != "" {
			t.Errorf("reported %+v although the handler still runs", r)
		}
		close(release)
	})
}

func TestAHandlerThatOutlivesACancelEndsTheReplicaToo(t *testing.T) {
	release := make(chan struct{})
	h := func(context.Context, handler.Task) (any, error) { <-release; return nil, nil }
	pooled(t, h, func(t *testing.T, b *books, p *Pool, _ func(), ended <-chan error) {
		release = make(chan struct{})
		b.cancel = true
		p.Take(attempt(1))
		began := time.Now()
		err := <-ended
		if took := time.Since(began); !errors.Is(err, handler.ErrOutlived) || took > (task.InlineBeat+task.InlineGrace).Duration()+2*time.Second {
			t.Errorf("ended with %v after %v", err, took)
		}
		close(release)
	})
}

func TestTheEndOfAReplicaTellsItsHandlersAndIsReportedAsALoss(t *testing.T) {
	h := func(ctx context.Context, _ handler.Task) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
	pooled(t, h, func(t *testing.T, b *books, p *Pool, stop func(), ended <-chan error) {
		p.Take(attempt(1))
		synctest.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if r := b.report(1); r.Outcome != task.OutcomeLost || r.Reason != task.ReasonTerminated {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestAnAttemptThatAnotherProcessHoldsIsNotRun(t *testing.T) {
	ran := false
	h := func(context.Context, handler.Task) (any, error) { ran = true; return nil, nil }
	pooled(t, h, func(t *testing.T, b *books, p *Pool, stop func(), ended <-chan error) {
		b.holders[1] = "inline/b/other"
		p.Take(attempt(1))
		if r := b.report(1); ran || r.Outcome != "" || p.Room() != 2 {
			t.Errorf("ran %v, reported %+v, room %d", ran, r, p.Room())
		}
		stop()
		<-ended
	})
}

func TestAnAttemptThatIsTakenAgainBeforeItsEndIsStoredDoesNotRunTwice(t *testing.T) {
	runs := 0
	h := func(context.Context, handler.Task) (any, error) { runs++; return nil, nil }
	pooled(t, h, func(t *testing.T, b *books, p *Pool, stop func(), ended <-chan error) {
		p.Take(attempt(1))
		if r := b.report(1); r.Outcome != task.OutcomeSucceeded {
			t.Fatalf("reported %+v", r)
		}
		p.Take(attempt(1)) // a list of claims without a start was read before, and is used now
		synctest.Wait()
		stop()
		if err := <-ended; err != nil || runs != 1 {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}

func TestPlacesAreBoundedAndNothingIsTakenTwice(t *testing.T) {
	var mu sync.Mutex
	running, most, runs := 0, 0, 0
	h := func(context.Context, handler.Task) (any, error) {
		mu.Lock()
		running, runs = running+1, runs+1
		most = max(most, running)
		mu.Unlock()
		time.Sleep(time.Second)
		mu.Lock()
		running--
		mu.Unlock()
		return nil, nil
	}
	pooled(t, h, func(t *testing.T, _ *books, p *Pool, stop func(), ended <-chan error) {
		taken := 0
		for id := range int64(6) {
			for range 2 {
				if p.Take(attempt(id + 1)) {
					taken++
				}
			}
		}
		if taken != 8 || p.Room() != 0 { // four of them, each asked for twice
			t.Errorf("%d taken, room %d", taken, p.Room())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if most != 2 || runs != 4 || p.Room() != 2 {
			t.Errorf("%d at once, %d runs, room %d", most, runs, p.Room())
		}
		stop()
		<-ended
	})
}

func TestAProcessTellsOnceWhatItsPodsEarlierOnesHeldHasEndedAndNothingOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBooks()
		b.down = true
		p := New(Config{Books: b, Replica: "a", Pod: "uid-1", Log: slog.New(slog.DiscardHandler), Handlers: map[string]handler.Handler{
			"test": func(context.Context, handler.Task) (any, error) { return nil, nil },
		}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(10 * time.Second)
		b.mu.Lock()
		b.down = false
		b.mu.Unlock()
		time.Sleep(time.Minute)
		p.Take(attempt(1))
		synctest.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(b.outlived) != 1 || b.outlived[0][0] != "inline/a/uid-1/" {
			t.Fatalf("told %q", b.outlived)
		}
		if holder, own := b.holders[1], b.outlived[0][1]; !strings.HasPrefix(holder, own) || !strings.HasPrefix(own, "inline/a/uid-1/") || own == "inline/a/uid-1/" {
			t.Errorf("%q holds an attempt, and all but %q have ended", holder, own)
		}
	})
	pooled(t, nil, func(t *testing.T, b *books, _ *Pool, stop func(), ended <-chan error) {
		stop()
		if err := <-ended; err != nil || len(b.outlived) > 0 {
			t.Errorf("without a pod: %v, told %q", err, b.outlived)
		}
	})
}
