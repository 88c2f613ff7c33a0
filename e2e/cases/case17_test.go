package cases

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// The spring change swallows a run. Nothing is shrunk; its siblings are the autumn change, zones that change at midnight or
// by half an hour, and a day that a zone left out. That all zones are right is a test of package schedule.
func TestCase17(t *testing.T) {
	replay(t, 17, "a run in the gap of a clock change fires once right after it; preview, next and fire agree", func(t *testing.T) {
		w := newTimed(t, "2026-01-01T00:00:00Z", rig.Options{})
		for _, change := range []struct {
			zone, from, to string
			rules          map[string][]string // all instants that fire, in UTC
		}{
			{"America/Los_Angeles", "2026-03-07T20:00:00Z", "2026-03-08T20:00:00Z", map[string][]string{
				"0 2 * * *": {"08 10:00"}, "30 2 * * *": {"08 10:00"}, "0 3 * * *": {"08 10:00"}, "*/15 2 * * *": nil,
				"30 1-3 * * *": {"08 09:30", "08 10:00", "08 10:30"},
			}},
			{"Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", map[string][]string{
				"0 2 * * *": {"29 01:00"}, "30 2 * * *": {"29 01:00"}, "0 3 * * *": {"29 01:00"}, "*/15 2 * * *": nil,
			}},
			{"America/Los_Angeles", "2026-10-31T20:00:00Z", "2026-11-01T20:00:00Z", map[string][]string{
				"30 1 * * *": {"01 08:30"}, "*/30 1 * * *": {"01 08:00", "01 08:30", "01 09:00", "01 09:30"},
			}},
			{"Africa/Cairo", "2026-04-23T12:00:00Z", "2026-04-24T12:00:00Z", map[string][]string{"0 0 * * *": {"23 22:00"}, "30 0 * * 5": {"23 22:00"}}},
			{"Australia/Lord_Howe", "2026-10-03T06:00:00Z", "2026-10-04T06:00:00Z", map[string][]string{"15 2 * * *": {"03 15:30"}, "0 2 * * *": {"03 15:30"}}},
		} {
			w.SetClock(t, instant(t, change.from))
			made := map[string]api.Schedule{}
			for rule := range change.rules {
				made[rule] = w.made(rig.Name("dst"), map[string]any{"cron": rule, "zone": change.zone, "missed": "all", "up_to": 100, "overlap": "allow"})
			}
			hourly := w.made(rig.Name("hourly"), map[string]any{"cron": "0 * * * *", "zone": change.zone, "missed": "all", "up_to": 100, "overlap": "allow"})
			foreseen := w.walk(append(slices.Collect(maps.Values(made)), hourly), hourly.ID, instant(t, change.to))
			for rule, want := range change.rules {
				var got []string
				for _, f := range w.ledger(made[rule].ID) {
					if f.Outcome == "fired" {
						got = append(got, f.At.UTC().Format("02 15:04"))
					}
					if !strings.Contains(f.Nominal, change.zone) {
						t.Errorf("%s in %s: no zone is told in %q", rule, change.zone, f.Nominal)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s in %s fired at %v, want %v", rule, change.zone, got, want)
				}
				w.agrees(made[rule], foreseen[made[rule].ID])
			}
			if n := w.fired(hourly.ID); n != 24 {
				t.Errorf("hourly in %s: %d fires in a day of 24 real hours", change.zone, n)
			}
			w.agrees(hourly, foreseen[hourly.ID])
			for _, s := range append(slices.Collect(maps.Values(made)), hourly) {
				w.user.Must(t, http.MethodDelete, "/v1/schedules/"+s.ID, nil, http.StatusNoContent)
			}
		}
	})
}

// walk moves the clock to each instant that the previews foresee until to, but for those of one schedule, which makes up
// for them, and holds the stored next times against it.
func (w timed) walk(all []api.Schedule, but string, to time.Time) map[string][]string {
	w.Helper()
	foreseen, stops := map[string][]string{}, map[time.Time]bool{to: true}
	for _, s := range all {
		p := decoded[api.SchedulePreview](w.T, w.user.Must(w, http.MethodGet, "/v1/schedules/"+s.ID+"/preview?n=50", nil, http.StatusOK))
		for _, i := range p.Items {
			if i.At.After(to) {
				continue
			}
			foreseen[s.ID] = append(foreseen[s.ID], fmt.Sprintf("%s %v %s", i.At.UTC().Format(time.RFC3339), i.Fires, i.Nominal))
			if s.ID != but {
				stops[i.At.UTC()] = true
			}
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(stops), time.Time.Compare) {
		for _, s := range all {
			now := w.get(s.ID)
			if s.ID != but && !now.NextAt.IsZero() && now.NextAt.Before(at) {
				w.Errorf("%s is due at %v, and its preview says %v", s.Cron, now.NextAt, at)
			}
		}
		w.SetClock(w, at)
		w.settled()
	}
	return foreseen
}

// agrees holds a ledger against what the preview foresaw.
func (w timed) agrees(s api.Schedule, foreseen []string) {
	w.Helper()
	var got []string
	for _, f := range w.ledger(s.ID) {
		got = append(got, fmt.Sprintf("%s %v %s", f.At.UTC().Format(time.RFC3339), f.Outcome == "fired", f.Nominal))
	}
	if !slices.Equal(got, foreseen) {
		w.Errorf("%s in %s: foreseen\n%s\nand what came of it\n%s", s.Cron, s.Zone, strings.Join(foreseen, "\n"), strings.Join(got, "\n"))
	}
}
