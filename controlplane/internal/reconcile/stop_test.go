package reconcile

import (
	"testing"
	"time"

	"slipway.dev/slipway/pkg/task"
)

func TestFortyStopsAtOnceReachTheClusterTogether(t *testing.T) {
	const many = 40
	prepare := func(w *world) {
		w.slow = time.Second
		for id := range int64(many) {
			w.add(id+1, task.Started)
			w.shows(id+1, running())
		}
	}
	reconciling(t, prepare, func(t *testing.T, w *world, r *Reconciler) {
		for id := range int64(many) {
			r.Follow(id + 1)
		}
		time.Sleep(5 * time.Second)
		w.set(func() {
			for id := range int64(many) {
				a := w.attempts[id+1]
				a.Stop, a.StopAt = task.StopCancel, time.Now()
			}
		})
		for id := range int64(many) {
			r.Look(id + 1)
		}
		time.Sleep(1100 * time.Millisecond)
		w.see(func() {
			if len(w.halts) != many {
				t.Errorf("%d of %d were told after the time of one", len(w.halts), many)
			}
		})
	})
}
