package reconcile

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"slipway.dev/slipway/pkg/task"
)

func TestClosingIsTriedUntilItSucceeds(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		r.Follow(1)
		w.shows(1, ended(0))
		w.set(func() { w.closeErr = errors.New("conflict") })
		r.Look(1)
		time.Sleep(10 * time.Second)
		w.see(func() {
			if !w.attempts[1].ClosedAt.IsZero() || w.closes[1] < 3 {
				t.Errorf("closed at %v after %d tries", w.attempts[1].ClosedAt, w.closes[1])
			}
		})
		w.set(func() { w.closeErr = nil })
		time.Sleep(3 * time.Second)
		w.see(func() {
			if w.attempts[1].ClosedAt.IsZero() {
				t.Error("never closed")
			}
		})
	})
}

func TestAJobThatComesAfterTheEndIsClosedAtOnce(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Leased)
		w.set(func() {
			a := w.attempts[1]
			a.State, a.ClosedAt = task.Finished, time.Now() // canceled while its create was under way
		})
		r.Follow(1)
		r.Look(1)
		w.see(func() {
			if w.closes[1] != 1 {
				t.Errorf("closed %d times", w.closes[1])
			}
		})
	})
}

func TestLaunchingIsLeftToDispatch(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Leased)
		w.set(func() { w.seen[1] = task.Seen{}; w.attempts[1].Wait, w.attempts[1].WaitNote = task.WaitQuota, "full" })
		r.Follow(1)
		time.Sleep(time.Minute)
		w.see(func() {
			if len(w.verdicts)+len(w.halts)+w.dryRuns != 0 || w.attempts[1].WaitNote != "full" {
				t.Errorf("touched a claim that waits: %v %v %+v", w.verdicts, w.halts, w.attempts[1])
			}
			if w.reads[1] > 60 {
				t.Errorf("%d reads in a minute", w.reads[1])
			}
		})
	})
}

func TestOrphansAreRemovedAndTheClosedAreClosedAgain(t *testing.T) {
	old := 2 * time.Minute
	prepare := func(w *world) {
		w.add(1, task.Started)
		w.shows(1, running())
		w.add(2, task.Started)
		w.attempts[2].State, w.attempts[2].ClosedAt = task.Finished, time.Now()
		w.traces = []task.Trace{
			{Attempt: 1, Fence: 101, Age: old},
			{Attempt: 2, Fence: 102, Age: old},
			{Attempt: 3, Fence: 103, Age: old},
			{Attempt: 1, Fence: 99, Age: old},
			{Attempt: 4, Fence: 104, Age: time.Second},
		}
	}
	reconciling(t, prepare, func(t *testing.T, w *world, _ *Reconciler) {
		w.see(func() {
			if len(w.removed) != 0 || w.closes[2] != 1 {
				t.Errorf("the first pass removed %+v and closed %v", w.removed, w.closes)
			}
			w.traces = slices.DeleteFunc(w.traces, func(t task.Trace) bool { return t.Attempt == 2 })
		})
		time.Sleep(70 * time.Second)
		w.see(func() {
			if len(w.removed) != 2 || w.removed[0].Attempt != 3 || w.removed[1].Fence != 99 {
				t.Errorf("removed %+v", w.removed)
			}
			if w.closes[2] != 1 || w.closes[1] != 0 {
				t.Errorf("closed %v", w.closes)
			}
		})
	})
}

func TestAfterARestoreTheFenceIsRaisedAndTheFirstPassOnlyLists(t *testing.T) {
	prepare := func(w *world) {
		w.fenceHere, w.fenceThere = 10, 500
		w.traces = []task.Trace{{Attempt: 3, Fence: 103, Age: time.Hour}}
	}
	reconciling(t, prepare, func(t *testing.T, w *world, r *Reconciler) {
		select {
		case <-r.Ready():
		default:
			t.Error("not ready")
		}
		w.see(func() {
			if w.fenceHere != 500 || len(w.removed) != 0 {
				t.Errorf("fence %d, removed %v", w.fenceHere, w.removed)
			}
		})
		time.Sleep(70 * time.Second)
		w.see(func() {
			if len(w.removed) != 1 {
				t.Errorf("removed %v in the second pass", w.removed)
			}
		})
	})
}

func TestADoubtComparesTheFencesAgainAndTheNextPassOnlyLists(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, _ *Reconciler) {
		w.set(func() {
			w.fenceHere, w.fenceThere = 600, 500 // another replica has moved them past already
			w.traces = []task.Trace{{Attempt: 3, Fence: 103, Age: time.Hour}}
		})
		w.doubts <- struct{}{}
		removed := func() (n int) {
			w.see(func() { n = len(w.removed) })
			return n
		}
		time.Sleep(70 * time.Second)
		if n := removed(); n != 0 {
			t.Errorf("removed %d in the first pass", n)
		}
		time.Sleep(70 * time.Second)
		if n := removed(); n != 1 {
			t.Errorf("removed %d in the second pass", n)
		}
		w.set(func() { w.fenceHere = 10 })
		w.doubts <- struct{}{}
		time.Sleep(time.Second)
		w.see(func() {
			if w.fenceHere != 500 {
				t.Errorf("the fence is at %d", w.fenceHere)
			}
		})
	})
}

func TestFencesThatTheClusterShowedBeforeARestoreAreComparedAnew(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, _ *Reconciler) {
		w.set(func() {
			w.fenceHere, w.fenceThere = 500, 500
			// More was claimed and launched, and then the database was restored.
			w.meanwhile = func() { w.fenceThere, w.fenceHere, w.lineage = 600, 400, "restored" }
		})
		w.doubts <- struct{}{}
		time.Sleep(5 * time.Second)
		w.see(func() {
			if w.fenceHere != 600 {
				t.Errorf("the fence is at %d, and the cluster knows %d", w.fenceHere, w.fenceThere)
			}
		})
	})
}

func TestASweepThatADoubtOvertakesOnlyLists(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, _ *Reconciler) {
		w.set(func() {
			w.traces = []task.Trace{{Attempt: 3, Fence: 103, Age: time.Hour}}
			w.asked = func() { w.doubts <- struct{}{}; time.Sleep(time.Second) } // compared by the time of the answer
		})
		time.Sleep(70 * time.Second)
		w.see(func() {
			if len(w.removed) != 0 {
				t.Errorf("removed %v in the first pass after a doubt", w.removed)
			}
		})
		time.Sleep(70 * time.Second)
		w.see(func() {
			if len(w.removed) != 1 {
				t.Errorf("removed %v in the second pass", w.removed)
			}
		})
	})
}

func TestNothingIsReadyBeforeTheFencesAreCompared(t *testing.T) {
	reconciling(t, func(w *world) { w.dbDown = true }, func(t *testing.T, w *world, r *Reconciler) {
		time.Sleep(time.Minute)
		select {
		case <-r.Ready():
			t.Error("ready without a database")
		default:
		}
		w.set(func() { w.dbDown = false })
		time.Sleep(20 * time.Second)
		select {
		case <-r.Ready():
		default:
			t.Error("never ready")
		}
	})
}

func TestManyOpenAttemptsAreLookedAtAtAPace(t *testing.T) {
	const many = 4000
	reconciling(t, nil, func(t *testing.T, w *world, _ *Reconciler) {
		for id := range int64(many) {
			w.add(id+1, task.Started)
			w.shows(id+1, running())
		}
		total := func() (n int) {
			w.see(func() {
				for _, reads := range w.reads {
					n += reads
				}
			})
			return n
		}
		before := total()
		time.Sleep(2 * time.Minute)
		if rate := float64(total()-before) / 120; rate > 1.2*looksASecond {
			t.Errorf("%.0f reads a second of %d attempts", rate, many)
		}
	})
}

func TestTheEndOfARunWaitsForTheLookUnderWay(t *testing.T) {
	w := newWorld()
	w.add(1, task.Started)
	r := New(Config{
		Reader: w, Ender: w, Noter: w, Ledger: w, Sight: w, Hand: w, Remains: w, Tails: w, ClusterFence: w.clusterFence,
		Wakes: w.wakes, Synced: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Errorf("ending before the cache is filled: %v", err)
	}
}
