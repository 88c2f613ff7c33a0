package loop

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryRunsAtOnceThenAtEachTickAndWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var runs atomic.Int32
		wake, done := NewWake(), make(chan struct{})
		go func() {
			defer close(done)
			Every(ctx, time.Minute, wake.C(), func(context.Context) { runs.Add(1) })
		}()
		expect := func(when string, want int32) {
			synctest.Wait()
			if got := runs.Load(); got != want {
				t.Fatalf("%s: got %d runs, want %d", when, got, want)
			}
		}
		expect("at once", 1)
		time.Sleep(67 * time.Second) // a minute and a tenth
		expect("after a tick", 2)
		wake.Call()
		expect("after a wake", 3)
		cancel()
		<-done
	})
}

func TestAWakeDuringWorkIsServedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var runs atomic.Int32
		wake, done := NewWake(), make(chan struct{})
		go func() {
			defer close(done)
			Every(ctx, time.Hour, wake.C(), func(context.Context) {
				runs.Add(1)
				time.Sleep(time.Second)
			})
		}()
		time.Sleep(500 * time.Millisecond)
		for range 5 {
			wake.Call()
		}
		time.Sleep(10 * time.Second)
		if got := runs.Load(); got != 2 {
			t.Fatalf("five wakes during work: got %d runs, want 2", got)
		}
		cancel()
		<-done
	})
}

func TestJitterStaysWithinItsShare(t *testing.T) {
	for range 1000 {
		if d := Jitter(time.Second, 0.1); d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Fatalf("got %v", d)
		}
	}
}

func TestTogetherEndsAllWithTheFirst(t *testing.T) {
	wrong := errors.New("wrong")
	ended := false
	err := Together(t.Context(),
		func(context.Context) error { return wrong },
		func(ctx context.Context) error {
			<-ctx.Done()
			ended = true
			return nil
		})
	if !errors.Is(err, wrong) || !ended {
		t.Fatalf("got %v, ended %v", err, ended)
	}
}

func TestTogetherTurnsAPanicIntoAnError(t *testing.T) {
	err := Together(t.Context(), func(context.Context) error { panic("oh") })
	if err == nil || !strings.Contains(err.Error(), "panic: oh") {
		t.Fatalf("got %v", err)
	}
}

// probe records what a Keyed does and how much of it at the same time.
type probe struct {
	mu      sync.Mutex
	runs    map[string]int
	busy    map[string]bool
	overlap bool
	took    time.Duration
	again   time.Duration
}

func (p *probe) do(_ context.Context, k string) time.Duration {
	p.mu.Lock()
	p.overlap = p.overlap || p.busy[k]
	p.busy[k] = true
	p.runs[k]++
	p.mu.Unlock()
	time.Sleep(p.took)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[k] = false
	return p.again
}

func (p *probe) count(k string) int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[k]
}

func keyed(t *testing.T, p *probe, f func(q *Keyed[string])) {
	t.Helper()
	p.runs, p.busy = map[string]int{}, map[string]bool{}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q, done := NewKeyed(4, p.do), make(chan struct{})
		go func() {
			defer close(done)
			_ = q.Run(ctx) // it never fails
		}()
		f(q)
		cancel()
		<-done
	})
	if p.overlap {
		t.Error("one key was worked on twice at the same time")
	}
}

func TestAKeyAddedOftenRunsOnce(t *testing.T) {
	p := &probe{took: time.Second}
	keyed(t, p, func(q *Keyed[string]) {
		q.Add("a")
		synctest.Wait() // at work now
		for range 100 {
			q.Add("a")
			q.Add("b")
		}
		time.Sleep(10 * time.Second)
		if got := p.count("a"); got != 2 {
			t.Errorf("added while at work: got %d runs, want 2", got)
		}
		if got := p.count("b"); got > 2 { // once, and once more for what came while it was at work
			t.Errorf("added a hundred times: got %d runs, want at most 2", got)
		}
		if q.Len() != 0 {
			t.Errorf("%d keys are kept after their work", q.Len())
		}
	})
}

func TestTheEarliestDelayCounts(t *testing.T) {
	p := &probe{}
	keyed(t, p, func(q *Keyed[string]) {
		q.AddAfter("a", time.Minute)
		q.AddAfter("a", time.Second)
		q.AddAfter("a", time.Hour)
		time.Sleep(2 * time.Second)
		if got := p.count("a"); got != 1 {
			t.Errorf("after the earliest delay: got %d runs, want 1", got)
		}
		time.Sleep(2 * time.Hour)
		if got := p.count("a"); got != 1 {
			t.Errorf("the later delays ran too: %d runs", got)
		}
	})
}

func TestWorkForgetsAnOlderDelay(t *testing.T) {
	p := &probe{}
	keyed(t, p, func(q *Keyed[string]) {
		q.AddAfter("a", time.Minute)
		q.Add("a")
		time.Sleep(time.Hour)
		if got := p.count("a"); got != 1 {
			t.Errorf("got %d runs, want 1", got)
		}
	})
}

func TestAKeyComesBackWhenItsWorkAsksForIt(t *testing.T) {
	p := &probe{again: time.Minute}
	keyed(t, p, func(q *Keyed[string]) {
		q.Add("a")
		time.Sleep(10*time.Minute + time.Second)
		if got := p.count("a"); got != 11 {
			t.Errorf("got %d runs, want 11", got)
		}
	})
}

func TestDifferentKeysRunSideBySide(t *testing.T) {
	p := &probe{took: time.Minute}
	keyed(t, p, func(q *Keyed[string]) {
		for _, k := range []string{"a", "b", "c", "d"} {
			q.Add(k)
		}
		time.Sleep(time.Second)
		if p.count("a")+p.count("b")+p.count("c")+p.count("d") != 4 {
			t.Error("four keys do not use four workers")
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestNothingIsAddedAfterTheEnd(t *testing.T) {
	p := &probe{}
	var after *Keyed[string]
	keyed(t, p, func(q *Keyed[string]) { after = q })
	after.Add("a")
	after.AddAfter("a", time.Millisecond)
	if len(after.queue) != 0 {
		t.Error("a key was queued after the end")
	}
}

func TestOfManyLikeEventsOneAMinuteIsToldAndTheOthersAreCounted(t *testing.T) {
	var s Sparing
	now := time.Unix(1_700_000_000, 0)
	told, held := 0, 0
	for range 150 { // one a second
		if n, pass := s.Pass(now); pass {
			told, held = told+1, held+n
		}
		now = now.Add(time.Second)
	}
	if told != 3 || held != 118 {
		t.Errorf("%d of 150 were told, with %d held back before them; want 3 and 118", told, held)
	}
}
