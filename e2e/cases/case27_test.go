package cases

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// A time column without zone shifts every due time. Shrunk: of retry delays, leases and retention one of each is looked at;
// the whole suite does not run again under other zones.
func TestCase27(t *testing.T) {
	replay(t, 27, "due times, delays, leases and retention are the same instants whatever the zones of process and database", func(t *testing.T) {
		inUTC := instantsOf(t, nil)
		elsewhere := instantsOf(t, []string{"Asia/Tokyo", "America/Denver"})
		if inUTC != elsewhere {
			t.Errorf("in UTC:\n%s\nin Tokyo and Denver, on a database in Berlin:\n%s", inUTC, elsewhere)
		}
	})
}

// instantsOf runs a day of schedules, delays and ends on replicas in the given zones, and tells every instant of it.
func instantsOf(t *testing.T, zones []string) string {
	t.Helper()
	w := newTimed(t, "2026-03-28T20:00:30.123456Z", rig.Options{}) // clocks change in Berlin that night
	if len(zones) > 0 {
		w.Exec(t, "ALTER DATABASE slipway SET timezone = 'Europe/Berlin'; ALTER ROLE CURRENT_USER SET timezone = 'Europe/Berlin'")
		w.Replicas[0].Stop(t)
		w.Replicas[0].Start(t, map[string]string{"TZ": zones[0]})
		second := w.AddReplica(t, map[string]string{"TZ": zones[1]})
		w.Replicas[0].WaitReady(t)
		second.WaitReady(t)
	}
	zoneless := w.Value(t, `SELECT coalesce(string_agg(table_name || '.' || column_name, ', '), '') FROM information_schema.columns
		WHERE table_schema = 'slipway' AND data_type IN ('timestamp without time zone', 'time without time zone')`)
	if zoneless != "" {
		t.Errorf("columns without zone: %s", zoneless)
	}
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	made := []api.Schedule{
		w.made("night", map[string]any{"cron": "30 2 * * *", "zone": "Europe/Berlin"}),
		w.made("hour", map[string]any{"cron": "0 * * * *", "missed": "all", "up_to": 100, "overlap": "queue"}),
		w.made("five", map[string]any{"every": "5h"}),
		w.made("dark", map[string]any{
			"cron": "0 * * * *", "zone": "Asia/Tokyo", "missed": "all", "up_to": 100, "overlap": "queue",
			"blackouts": []map[string]any{{"cron": "0 12 * * *", "zone": "America/Denver", "for": 4 * 3600}},
		}),
	}
	delayed := w.user.Submit(t, map[string]any{
		"kind": "command.run", "namespace": w.Namespace(), "params": map[string]any{"command": []string{"false"}}, "delay": 3600,
		"spec": map[string]any{"idempotent": true, "run_deadline": 30, "retry": map[string]any{"attempts": 2, "backoff": 600, "cap": 600}},
	})
	say("delayed until %s", text(delayed.RunAt))
	for range 18 {
		w.Advance(t, time.Hour)
		w.settledBut(delayed.ID)
	}
	for _, s := range made {
		now := w.get(s.ID)
		say("%s next %s last %s", s.Name, text(now.NextAt), text(now.LastFireAt))
		for _, f := range w.ledger(s.ID) {
			say("%s %s %s %s", text(f.At), f.Outcome, f.Nominal, text(f.NotedAt))
			if f.Task != "" {
				ran := w.user.Task(t, f.Task)
				say("  created %s started %s ended %s", text(ran.CreatedAt), text(ran.StartedAt), text(ran.EndedAt))
			}
		}
	}
	ended := w.user.Await(t, delayed.ID)
	for _, a := range w.user.Attempts(t, delayed.ID) {
		say("attempt %d claimed %s finished %s", a.Number, text(a.ClaimedAt), text(a.FinishedAt))
	}
	say("ended %s as %s", text(ended.EndedAt), ended.State)
	say("leases of %s", w.Value(t, `SELECT coalesce(string_agg((lease_until - beat_at)::text, ', '), 'none') FROM slipway.leases`))
	a := w.user.Must(t, http.MethodGet, "/v1/tasks?created_after=2026-03-29T10:00:00Z&limit=500&namespace="+w.Namespace(), nil, http.StatusOK)
	say("%d tasks of the last hours", len(decoded[api.TaskPage](t, a).Items))
	w.nothingTwice()
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func text(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.UTC().Format(time.RFC3339Nano)
}
