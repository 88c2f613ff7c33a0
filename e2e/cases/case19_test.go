package cases

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// After a long stop the schedule never resumes. Nothing is shrunk: the clock is the test's.
func TestCase19(t *testing.T) {
	replay(t, 19, "after 14 hours off and ten restarts each schedule goes on by its policy; the misses are listed", func(t *testing.T) {
		w := newTimed(t, "2026-06-01T12:00:30Z", rig.Options{Env: map[string]string{"SLIPWAY_UPKEEP_NAMESPACE": "slipway-system"}})
		replica := w.Replicas[0]
		minute := w.made("minute", map[string]any{"cron": "* * * * *"})
		hour := w.made("hour", map[string]any{"cron": "0 * * * *"})
		night := w.made("night", map[string]any{"cron": "0 3 * * *"})
		six := w.made("six", map[string]any{"every": "6h"})
		every := w.made("every", map[string]any{"cron": "0 * * * *", "missed": "all", "up_to": 5, "overlap": "queue"})
		recent := w.made("recent", map[string]any{"cron": "0 * * * *", "missed": "within", "within": 2 * 3600, "overlap": "allow"})
		never := w.made("never", map[string]any{"cron": "0 * * * *", "missed": "skip"})
		w.restart(replica, func() { w.Advance(t, 14*time.Hour) }) // to 02:00:30
		w.settled()
		const off = "after fourteen hours off"
		w.wantTold(off, minute, "1 fired, 839 skipped")
		w.wantTold(off, hour, "1 fired, 13 skipped")
		w.wantTold(off, night, "")
		w.wantTold(off, six, "1 fired, 1 skipped")
		w.wantTold(off, every, "5 fired, 9 missed")
		w.wantTold(off, recent, "2 fired, 12 missed")
		w.wantTold(off, never, "1 fired, 13 skipped") // that of 02:00 is half a minute late, and no miss
		for _, f := range w.ledger(hour.ID) {
			if f.Outcome != "fired" && f.Why == "" {
				t.Errorf("no reason: %+v", f)
			}
		}
		for range 10 {
			w.restart(replica, func() { w.Advance(t, time.Hour) })
			w.settled()
		}
		const restarts = "after ten restarts"
		w.wantTold(restarts, minute, "11 fired, 1429 skipped")
		w.wantTold(restarts, hour, "11 fired, 13 skipped")
		w.wantTold(restarts, night, "1 fired")
		w.wantTold(restarts, six, "3 fired, 1 skipped") // 06:00:30 and 12:00:30: its rhythm is from the database
		t.Run("an expression that is changed during a stop owes nothing", func(t *testing.T) { changedDuringAStop(w.in(t), replica, hour) })
		t.Run("nothing is made up for time spent disabled", func(t *testing.T) { disabledForADay(w.in(t), replica, hour) })
		t.Run("a clock that is set back repeats nothing, and forward misses nothing", func(t *testing.T) { clockBackAndForward(w.in(t), every) })
		w.nothingTwice()
		if status, page, err := replica.Get(t.Context(), "/docs/missed-runs"); err != nil || status != 200 || !strings.Contains(page, "| `latest` (default) |") {
			t.Errorf("the page on missed runs: %d %.100s, %v", status, page, err)
		}
		// Slipway's own upkeep has gone on beside them.
		own := w.Value(t, `SELECT string_agg(s.name || ' ' || (SELECT count(*) > 12 FROM slipway.tasks t WHERE t.schedule = s.id AND t.state = 'succeeded'), ', ' ORDER BY s.name)
			FROM slipway.schedules s WHERE s.namespace = 'slipway-system' AND s.broken = ''`)
		if own != "slipway-check true, slipway-retention true" {
			t.Errorf("upkeep: %s", own)
		}
		t.Run("a replica that is frozen over fourteen hours and wakes goes on", func(t *testing.T) { frozenOver(w.in(t), replica, night) })
		// A week and more later what had ended by then is gone, but for the last success of each schedule.
		rig.Eventually(t, "what is not kept any longer to be gone", func(context.Context) (bool, error) {
			left := w.Value(t, `SELECT count(*)::text FROM slipway.tasks t WHERE t.ended_at < slipway.now() - interval '7 days' AND EXISTS
				(SELECT 1 FROM slipway.tasks n WHERE n.schedule = t.schedule AND n.state = 'succeeded' AND n.ended_at > t.ended_at)`)
			if left != "0" {
				return false, fmt.Errorf("%s are left", left)
			}
			return true, nil
		})
	})
}

// changedDuringAStop changes a row as another replica would while this one is off.
func changedDuringAStop(w timed, replica *rig.Replica, s api.Schedule) {
	before := w.told(s.ID)
	other := w.AddReplica(w, nil)
	other.WaitReady(w)
	w.Gate.Skip(replica.Address)
	replica.Stop(w)
	other.Freeze(w) // nobody fires
	w.Advance(w, 5*time.Hour)
	other.Wake(w)
	w.patch(s.ID, `{"cron":"30 * * * *"}`)
	w.settled()
	replica.Start(w)
	replica.WaitReady(w)
	w.Gate.Skip()
	other.Stop(w)
	now := w.get(s.ID)
	if now.NextAt.Minute() != 30 {
		w.Errorf("next at %v", now.NextAt)
	}
	// The woken one may have fired the newest under the old rule before it was changed: one catch-up at most.
	if after := w.told(s.ID); after != "11 fired, 1 missed, 17 skipped" && after != "12 fired, 17 skipped" {
		w.Errorf("before %s, after %s", before, after)
	}
}

func disabledForADay(w timed, replica *rig.Replica, s api.Schedule) {
	if now := w.patch(s.ID, `{"enabled":false}`); now.Enabled || !now.NextAt.IsZero() {
		w.Errorf("disabled: %+v", now)
	}
	before := w.told(s.ID)
	w.restart(replica, func() { w.Advance(w, 24*time.Hour) })
	w.patch(s.ID, `{"enabled":true}`)
	w.settled()
	w.wantTold("for a day disabled", s, before)
	w.on(time.Hour)
	if after := w.told(s.ID); after == before {
		w.Errorf("enabled again it did not fire: %s", after)
	}
}

func clockBackAndForward(w timed, s api.Schedule) {
	before, at := w.told(s.ID), w.Clock(w)
	w.on(-3 * time.Hour)
	holdsFor(w.T, 3*time.Second, "nothing to be repeated", func(context.Context) (bool, error) { return w.told(s.ID) == before, nil })
	w.on(2*time.Hour + 59*time.Minute)
	w.wantTold("while the clock catches up", s, before)
	w.SetClock(w, at.Add(2*time.Hour))
	w.settled()
	last := w.ledger(s.ID)
	if n := len(last); last[n-1].Outcome != "fired" || last[n-2].Outcome != "fired" || last[n-1].At.Sub(last[n-2].At) != time.Hour {
		w.Errorf("two hours on, the last lines are %+v", last[n-2:])
	}
}

func frozenOver(w timed, replica *rig.Replica, s api.Schedule) {
	w.SetClock(w, instant(w.T, "2026-06-10T02:59:59Z"))
	w.settled()
	before := len(w.ledger(s.ID))
	replica.Freeze(w)
	w.Advance(w, 14*time.Hour)
	replica.Wake(w)
	w.settled()
	all := w.ledger(s.ID)
	if len(all) != before+1 || all[before].Outcome != "fired" || all[before].At.Hour() != 3 {
		w.Errorf("it has %d lines, had %d; the last is %+v", len(all), before, all[len(all)-1])
	}
}
