package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// shows sets what the cluster has of an Attempt beside its Job.
func (w *world) shows(id int64, pods ...task.SeenPod) {
	w.set(func() { w.seen[id] = task.Seen{Job: &task.SeenJob{Name: "job", UID: "uid"}, Pods: pods} })
}

func TestThePodsEndIsTheTasksEndAtOnceAndEverythingIsClosed(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		r.Follow(1)
		w.shows(1, ended(3))
		r.Look(1)
		w.see(func() {
			v := w.verdicts[1]
			if v.Outcome != task.OutcomeFailed || v.Reason != task.ReasonExitCode {
				t.Fatalf("judged %+v", v)
			}
			if w.closes[1] != 1 || w.attempts[1].ClosedAt.IsZero() {
				t.Errorf("closed %d times, recorded %v", w.closes[1], w.attempts[1].ClosedAt)
			}
			var e record
			if err := json.Unmarshal(w.evidence[1], &e); err != nil || e.Rule != v.Rule || len(e.Pods) != 1 || *e.Pods[0].Containers[0].ExitCode != 3 || e.Source != "cache" {
				t.Errorf("evidence %s, %v", w.evidence[1], err)
			}
			if w.lives != 0 {
				t.Errorf("%d live reads on the straight line", w.lives)
			}
		})
		// The closing itself makes events; nobody asks the database again for them.
		var before int
		w.see(func() { before = w.reads[1] })
		r.Look(1)
		r.Look(1)
		time.Sleep(5 * time.Minute)
		w.see(func() {
			if w.reads[1] != before {
				t.Errorf("read %d times after its end", w.reads[1]-before)
			}
		})
	})
}

func TestAnothersAttemptIsLookedAtThreeSecondsLater(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		w.shows(1, ended(0))
		r.Look(1)
		time.Sleep(2 * time.Second)
		w.see(func() {
			if w.reads[1] != 0 {
				t.Error("looked at once")
			}
		})
		time.Sleep(1500 * time.Millisecond)
		w.see(func() {
			if len(w.verdicts) != 1 {
				t.Error("not looked at after all")
			}
		})
	})
}

func TestResyncFindsWhatNoEventTold(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, _ *Reconciler) {
		w.add(1, task.Started)
		w.shows(1, ended(0))
		w.add(2, task.Started)
		w.set(func() { w.attempts[2].State = task.Finished }) // finished by a replica that died before it closed
		time.Sleep(25 * time.Second)
		w.see(func() {
			if w.verdicts[1].Outcome != task.OutcomeSucceeded {
				t.Error("the end was not found")
			}
			if w.attempts[2].ClosedAt.IsZero() {
				t.Error("the finished one was not closed")
			}
		})
	})
}

func TestWhatRestsOnAnAbsenceIsReadFromTheServer(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Launched)
		r.Follow(1)
		w.set(func() { w.behind[1] = task.Seen{} }) // the cache is empty, the server has a running pod
		w.shows(1, running())
		r.Look(1)
		w.see(func() {
			if len(w.verdicts) != 0 || w.lives == 0 {
				t.Errorf("judged %v after %d live reads", w.verdicts, w.lives)
			}
		})
		w.set(func() { w.seen[1] = task.Seen{} })
		w.set(func() { w.attempts[1].Pods = nil })
		r.Look(1)
		w.see(func() {
			if v := w.verdicts[1]; v.Outcome != task.OutcomeLost || v.Reason != task.ReasonDeleted {
				t.Errorf("judged %+v", v)
			}
		})
	})
}

func TestASilentClusterDecidesNothing(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Launched)
		r.Follow(1)
		w.set(func() { w.apiDown = true; w.seen[1] = task.Seen{} })
		r.Look(1)
		time.Sleep(3 * time.Minute)
		w.see(func() {
			if len(w.verdicts) != 0 || len(w.closes) != 0 {
				t.Errorf("judged %v without an answer", w.verdicts)
			}
			if w.reads[1] > 120 {
				t.Errorf("%d reads in three minutes", w.reads[1])
			}
		})
		w.set(func() { w.apiDown = false })
		time.Sleep(10 * time.Second)
		w.see(func() {
			if len(w.verdicts) != 1 {
				t.Error("not judged once the cluster answered")
			}
		})
	})
}

func TestADatabaseThatIsAwayIsWaitedFor(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		r.Follow(1)
		w.shows(1, ended(0))
		w.set(func() { w.dbDown = true })
		r.Look(1)
		time.Sleep(time.Minute)
		w.set(func() { w.dbDown = false })
		time.Sleep(3 * time.Second)
		w.see(func() {
			if w.verdicts[1].Outcome != task.OutcomeSucceeded {
				t.Error("the end was not stored")
			}
		})
	})
}

func TestACancelHaltsUntilThePodHasEnded(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		r.Follow(1)
		w.shows(1, running())
		r.Look(1)
		w.see(func() {})
		w.set(func() { a := w.attempts[1]; a.Stop, a.StopAt = task.StopCancel, time.Now() })
		w.wakes <- 1
		w.see(func() {
			if len(w.halts[1]) != 1 || w.halts[1][0] != 0 {
				t.Fatalf("halts %v", w.halts[1])
			}
		})
		time.Sleep(5*time.Second + 500*time.Millisecond)
		w.see(func() {
			if n := len(w.halts[1]); n < 5 || n > 7 {
				t.Errorf("halted %d times in 5.5 s", n)
			}
			if last := w.halts[1][len(w.halts[1])-1]; last < 4*time.Second {
				t.Errorf("the last halt says %v", last)
			}
			if len(w.verdicts) != 0 {
				t.Error("canceled while it runs")
			}
		})
		w.shows(1, ended(143))
		r.Look(1)
		w.see(func() {
			if w.verdicts[1].Outcome != task.OutcomeCanceled {
				t.Errorf("judged %+v", w.verdicts[1])
			}
		})
	})
}

func TestTheRunDeadlineStopsOnTheSecond(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		w.set(func() { tk := w.tasks[1]; tk.Spec.RunDeadline = 100; w.tasks[1] = tk })
		r.Follow(1)
		w.shows(1, running())
		r.Look(1)
		time.Sleep(99 * time.Second)
		w.see(func() {
			if w.attempts[1].Stop != task.StopNone {
				t.Error("stopped early")
			}
		})
		time.Sleep(1100 * time.Millisecond)
		w.see(func() {
			if w.attempts[1].Stop != task.StopRunDeadline || len(w.halts[1]) == 0 {
				t.Errorf("stop %q, halts %v", w.attempts[1].Stop, w.halts[1])
			}
		})
	})
}

func TestAJobWithoutAPodIsAskedWhyAndQuotaGivesItBack(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Launched)
		w.set(func() {
			w.refusal = &task.Refusal{Cause: task.RefusedQuota, Message: "no room"}
			w.onHalt = func(id int64) { w.seen[id] = task.Seen{} }
		})
		r.Follow(1)
		time.Sleep(4 * time.Second)
		w.see(func() {
			v := w.verdicts[1]
			if v.Outcome != task.OutcomeLost || v.Reason != task.ReasonQuota || v.Spends != task.SpendsNothing {
				t.Errorf("judged %+v after %d dry runs, halts %v", v, w.dryRuns, w.halts[1])
			}
		})
	})
}

func TestAPodThatWouldBeTakenIsNotAskedAboutWithoutEnd(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Launched)
		r.Follow(1)
		time.Sleep(100 * time.Second)
		w.see(func() {
			if w.dryRuns < 3 || w.dryRuns > 25 {
				t.Errorf("%d dry runs in 100 s", w.dryRuns)
			}
		})
		time.Sleep(30 * time.Second)
		w.see(func() {
			if w.attempts[1].Stop != task.StopStartDeadline {
				t.Errorf("stop %q after the start deadline", w.attempts[1].Stop)
			}
		})
	})
}

func TestWaitingForCapacityIsShown(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Launched)
		r.Follow(1)
		p := task.SeenPod{UID: "pod", Name: "p", Created: time.Now(), Phase: "Pending", Unschedulable: "0/3 nodes are available"}
		w.shows(1, p)
		r.Look(1)
		w.see(func() {
			if w.waits[1] != task.WaitCapacity || !strings.Contains(w.attempts[1].WaitNote, "0/3 nodes") {
				t.Errorf("waits for %q: %q", w.waits[1], w.attempts[1].WaitNote)
			}
		})
		time.Sleep(50 * time.Minute)
		w.see(func() {
			if w.attempts[1].Stop != task.StopNone {
				t.Error("stopped while it waits for capacity")
			}
		})
	})
}

func TestEveryBoundPodIsNoted(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Launched)
		r.Follow(1)
		one, other := running(), running()
		other.UID = "other"
		w.shows(1, one, other)
		r.Look(1)
		w.see(func() {
			if len(w.attempts[1].Pods) != 2 {
				t.Fatalf("noted %+v", w.attempts[1].Pods)
			}
		})
		end := ended(1)
		end.UID = "other"
		w.shows(1, one, end)
		r.Look(1)
		w.see(func() {
			if p := w.attempts[1].Pods; p[0].Ended || !p[1].Ended {
				t.Errorf("noted %+v", p)
			}
		})
	})
}

func TestTheWinnersOwnPodCostsNoNote(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		r.Follow(1)
		w.shows(1, running())
		r.Look(1)
		w.see(func() {
			if len(w.attempts[1].Pods) != 0 {
				t.Errorf("noted %+v", w.attempts[1].Pods)
			}
		})
	})
}

func TestAFinishThatCameTooLateIsFollowedByAnotherLook(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		r.Follow(1)
		w.shows(1, ended(0))
		w.set(func() { w.stale = 3 })
		r.Look(1)
		time.Sleep(time.Second)
		w.see(func() {
			if w.verdicts[1].Outcome != task.OutcomeSucceeded || w.attempts[1].ClosedAt.IsZero() {
				t.Errorf("judged %+v", w.verdicts[1])
			}
		})
	})
}

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
		Reader: w, Ender: w, Noter: w, Ledger: w, Sight: w, Hand: w, Remains: w, ClusterFence: w.clusterFence,
		Wakes: w.wakes, Synced: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Errorf("ending before the cache is filled: %v", err)
	}
}
