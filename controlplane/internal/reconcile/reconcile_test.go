package reconcile

import (
	"encoding/json"
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

func TestWhatRunsOnBesideEndedWorkHasTheGraceAndIsStopped(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		r.Follow(1)
		p := podIn("Running", task.SeenContainer{Terminated: &task.Terminated{}})
		p.Containers = append(p.Containers, task.SeenContainer{Name: "mesh", Running: true})
		w.shows(1, p)
		r.Look(1)
		time.Sleep(29 * time.Second)
		w.see(func() {
			if w.attempts[1].Stop != task.StopEnded || len(w.halts[1]) != 0 {
				t.Errorf("stop %q, halts %v", w.attempts[1].Stop, w.halts[1])
			}
		})
		time.Sleep(3 * time.Second)
		w.see(func() {
			if len(w.halts[1]) == 0 || w.halts[1][0] > 2*time.Second {
				t.Errorf("halts %v", w.halts[1])
			}
		})
		p.Phase, p.Reason, p.Containers[1].Running = "Failed", "DeadlineExceeded", false
		w.shows(1, p)
		r.Look(1)
		w.see(func() {
			if v := w.verdicts[1]; v.Outcome != task.OutcomeSucceeded {
				t.Errorf("judged %+v", v)
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

func TestAPodThatTookTheLastRoomItselfIsNotRefused(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Launched)
		w.set(func() {
			w.refusal = &task.Refusal{Cause: task.RefusedQuota, Message: "no room"}
			w.onDryRun = func() { w.seen[1] = task.Seen{Job: w.seen[1].Job, Pods: []task.SeenPod{running()}} }
		})
		r.Follow(1)
		time.Sleep(10 * time.Second)
		w.see(func() {
			if w.dryRuns != 1 || w.attempts[1].Stop != task.StopNone {
				t.Errorf("%d dry runs, stop %q", w.dryRuns, w.attempts[1].Stop)
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

func TestManyJobsWithoutAPodAreAskedAboutOnce(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		for id := range int64(50) {
			w.add(id+1, task.Launched)
			r.Follow(id + 1)
		}
		time.Sleep(4 * time.Second)
		w.see(func() {
			if w.dryRuns == 0 || w.dryRuns > 16 || w.lives > 0 {
				t.Errorf("%d dry runs and %d live looks at 50 jobs of one template", w.dryRuns, w.lives)
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
		p.Node, p.Unschedulable, p.Waited = "node", "", 50*time.Minute
		w.shows(1, p)
		r.Look(1)
		w.see(func() {
			if w.waits[1] != "" || w.attempts[1].WaitNote != "" {
				t.Errorf("has a node, and waits for %q: %q", w.waits[1], w.attempts[1].WaitNote)
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

func TestWorkWhosePodSomebodyDeletedSaysThatItStops(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		r.Follow(1)
		pod := running()
		pod.Deleting = true
		w.shows(1, pod)
		r.Look(1)
		time.Sleep(time.Second)
		w.see(func() {
			if w.waits[1] != task.WaitStop || !strings.HasPrefix(w.attempts[1].WaitNote, "waiting for attempt") || len(w.halts[1]) != 0 {
				t.Errorf("waits for %q: %q, halted after %v", w.waits[1], w.attempts[1].WaitNote, w.halts[1])
			}
		})
	})
}
