package dispatch

import (
	"testing"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// addInline queues n Tasks that may run inline.
func (w *world) addInline(queue, namespace string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range n {
		w.next++
		c := claimOf(w.next, namespace)
		c.Task.Name = "inline"
		w.queued[queue] = append(w.queued[queue], c)
	}
}

func (w *world) ranInline() int { return get(w, func() int { return len(w.inline) }) }

func down(cause task.RefusalCause) func(*world) {
	return func(w *world) { w.launchErr = refuse(cause) }
}

func up(w *world) { w.set(func() { w.launchErr = nil }) }

func TestWhatMayRunInlineDoesOnceNoJobCouldBeLaunchedForAWhileAndNotBefore(t *testing.T) {
	dispatchingInline(t, with(3, down(task.RefusedUnavailable)), 4, func(t *testing.T, w *world, d *Dispatcher) {
		time.Sleep(defaultAfter - time.Second)
		w.addInline("q", "shop", 1)
		time.Sleep(500 * time.Millisecond)
		if n := w.ranInline(); n != 0 || d.Breaker().Open() {
			t.Fatalf("%d ran inline, %+v", n, d.Breaker())
		}
		time.Sleep(time.Second)
		w.add("q", "shop", 1)
		w.addInline("q", "shop", 10)
		time.Sleep(3 * time.Second)
		if n := w.ranInline(); n < 10 || !d.Breaker().Everywhere { // the first one may have been claimed before, to try with
			t.Fatalf("%d of 10 ran inline, %+v", n, d.Breaker())
		}
		if why, paused := d.Paused("any"); !paused || why == "" {
			t.Error("nothing says that launches are paused")
		}
		if n := get(w, func() int { return len(w.queued["q"]) }); n != 1 {
			t.Errorf("%d are queued: what needs a Job was claimed while none could be launched", n)
		}
	})
}

func TestWhatWasClaimedForAJobBeforeTheFallbackRunsInlineAfterIt(t *testing.T) {
	change := func(w *world) {
		w.launchErr = refuse(task.RefusedUnavailable)
		for id := range int64(6) {
			c := claimOf(id+1, "shop")
			c.Task.Spec.Inline = id%2 == 0
			w.overdue = append(w.overdue, c)
		}
	}
	dispatchingInline(t, with(0, change), 4, func(t *testing.T, w *world, _ *Dispatcher) {
		time.Sleep(defaultAfter - time.Second)
		if n := w.ranInline(); n != 0 {
			t.Fatalf("%d ran inline before", n)
		}
		time.Sleep(5 * time.Second)
		if n := w.ranInline(); n != 3 {
			t.Errorf("%d ran inline, want the 3 that may", n)
		}
	})
}

func TestADryRunThatPassesEndsTheFallbackEvenWhereNothingIsLaunched(t *testing.T) {
	dispatchingInline(t, with(3, down(task.RefusedUnavailable)), 4, func(t *testing.T, w *world, d *Dispatcher) {
		time.Sleep(defaultAfter + 2*time.Second)
		if !d.Breaker().Everywhere {
			t.Fatal("the breaker is closed")
		}
		up(w)
		time.Sleep(longestPause + 2*time.Second)
		if d.Breaker().Open() || w.logged("jobs can be launched again") != 1 || w.logged("no job can be launched") != 1 {
			t.Fatalf("%+v", d.Breaker())
		}
		w.add("q", "shop", 5)
		time.Sleep(2 * time.Second)
		if n := get(w, func() int { return len(w.recorded) }); n < 5 || w.ranInline() != 0 {
			t.Errorf("%d have a Job, %d ran inline", n, w.ranInline())
		}
	})
}

func TestANamespaceThatTakesNoJobsFallsBackAloneAndAFullQuotaDoesNot(t *testing.T) {
	for cause, open := range map[task.RefusalCause]int{task.RefusedUnknown: 1, task.RefusedQuota: 0} {
		dispatchingInline(t, with(5, down(cause)), 4, func(t *testing.T, _ *world, d *Dispatcher) {
			time.Sleep(defaultAfter + 5*time.Second)
			if b := d.Breaker(); len(b.Namespaces) != open || b.Everywhere {
				t.Errorf("%s: %+v", cause, b)
			}
		})
	}
}

func TestWithoutAHandlerNothingFallsBack(t *testing.T) {
	dispatchingInline(t, with(3, down(task.RefusedUnavailable)), -1, func(t *testing.T, _ *world, d *Dispatcher) {
		time.Sleep(defaultAfter + 5*time.Second)
		if d.Breaker().Open() {
			t.Error("the breaker is open")
		}
	})
}

func TestAnInlineAttemptWithoutAPlaceWaitsAndSaysSo(t *testing.T) {
	change := func(w *world) {
		c := claimOf(1, "shop")
		c.Attempt.Executor = task.ExecutorInline
		w.overdue = []Claim{c}
	}
	dispatchingInline(t, with(0, change), 0, func(t *testing.T, w *world, _ *Dispatcher) {
		waits := get(w, func() []wait { return w.waits[1] })
		if len(waits) == 0 || waits[0].why != task.WaitCap || get(w, func() int { return w.launches[1] }) != 0 {
			t.Errorf("waits %+v", waits)
		}
	})
	dispatchingInline(t, with(0, change), 1, func(t *testing.T, w *world, _ *Dispatcher) {
		if w.ranInline() != 1 || get(w, func() int { return w.launches[1] }) != 0 {
			t.Error("an overdue one was not taken")
		}
	})
}
