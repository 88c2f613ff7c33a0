package reconcile

import (
	"testing"
	"time"

	"slipway.dev/slipway/pkg/task"
)

func TestTheLogOfARunnerThatWasKilledIsKeptBeforeItsPodIsLetGo(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		w.set(func() { w.logs[1] = "last words\n" })
		r.Follow(1)
		w.shows(1, ended(137))
		r.Look(1)
		w.see(func() {
			if w.kept[1] != "last words\n" || w.closes[1] != 1 {
				t.Errorf("kept %q, closed %d times", w.kept[1], w.closes[1])
			}
		})
	})
}

func TestALogThatTheRunnerSentIsNotReadAgain(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		w.set(func() { w.attempts[1].Report = &task.Report{Outcome: task.OutcomeSucceeded, At: time.Now()} })
		w.add(2, task.Launched)
		r.Follow(1)
		r.Follow(2)
		w.shows(1, ended(0))
		w.shows(2, ended(121))
		r.Look(1)
		r.Look(2)
		time.Sleep(time.Second)
		w.see(func() {
			if len(w.tailed) != 0 || len(w.verdicts) == 0 {
				t.Errorf("read %v, judged %v", w.tailed, w.verdicts)
			}
		})
	})
}

func TestTheLogOfAPodThatIsBeingDeletedIsFollowed(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		ends := make(chan struct{})
		w.add(1, task.Started)
		w.set(func() { w.logs[1], w.logEnds = "to the end\n", ends })
		r.Follow(1)
		p := running()
		p.Deleting = true
		w.shows(1, p)
		r.Look(1)
		time.Sleep(20 * time.Second) // several looks
		w.see(func() {
			if len(w.tailed) != 1 || !w.tailed[0] {
				t.Errorf("read %v, want one that follows", w.tailed)
			}
		})
		p = ended(143)
		p.Deleting = true
		w.shows(1, p)
		close(ends)
		r.Look(1)
		w.see(func() {
			if w.kept[1] != "to the end\n" || w.closes[1] != 1 || len(w.tailed) != 1 {
				t.Errorf("kept %q, closed %d times, read %v", w.kept[1], w.closes[1], w.tailed)
			}
		})
	})
}

func TestALogThatDoesNotEndKeepsNoAttemptOpen(t *testing.T) {
	reconciling(t, nil, func(t *testing.T, w *world, r *Reconciler) {
		w.add(1, task.Started)
		w.set(func() { w.logs[1], w.logEnds = "half\n", make(chan struct{}) })
		r.Follow(1)
		p := running()
		p.Deleting = true
		w.shows(1, p)
		r.Look(1)
		w.see(func() {})
		p = ended(143)
		p.Deleting = true
		w.shows(1, p)
		r.Look(1)
		time.Sleep(tailTime + time.Second)
		w.see(func() {
			if w.kept[1] != "half\n" || w.closes[1] != 1 {
				t.Errorf("kept %q, closed %d times", w.kept[1], w.closes[1])
			}
		})
	})
}
