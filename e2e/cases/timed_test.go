package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// timed is a Slipway on the test's clock. What its schedules submit runs in the replicas and is over at once.
type timed struct {
	*testing.T
	*rig.Rig
	user *rig.User
}

func newTimed(t *testing.T, at string, o rig.Options) timed {
	t.Helper()
	o.Profile, o.Clock = local.API, instant(t, at)
	o.Env = maps.Clone(o.Env)
	if o.Env == nil {
		o.Env = map[string]string{}
	}
	o.Env["SLIPWAY_INLINE_KINDS"] = "command.run"
	r := rig.New(t, o)
	r.Exec(t, "INSERT INTO slipway.kind_switches (kind, executor, actor, changed_at) VALUES ('command.run', 'inline', 'test', slipway.now())")
	return timed{t, r, r.User(t, r.Namespace())}
}

// in is the same in a part of a test.
func (w timed) in(t *testing.T) timed {
	w.T = t
	return w
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// body is a schedule that runs `true`; more are further fields.
func (w timed) body(name string, more map[string]any) map[string]any {
	out := map[string]any{
		"namespace": w.Namespace(), "name": name, "template": map[string]any{
			"kind": "command.run", "params": map[string]any{"command": []string{"true"}}, "spec": map[string]any{"idempotent": true, "run_deadline": 30},
		},
	}
	maps.Copy(out, more)
	return out
}

func (w timed) made(name string, more map[string]any) api.Schedule {
	w.Helper()
	return decoded[api.Schedule](w.T, w.user.Must(w, http.MethodPost, "/v1/schedules", w.body(name, more), http.StatusCreated))
}

func (w timed) get(id string) api.Schedule {
	w.Helper()
	return decoded[api.Schedule](w.T, w.user.Must(w, http.MethodGet, "/v1/schedules/"+id, nil, http.StatusOK))
}

func (w timed) patch(id, body string) api.Schedule {
	w.Helper()
	return decoded[api.Schedule](w.T, w.user.Must(w, http.MethodPatch, "/v1/schedules/"+id, body, http.StatusOK))
}

// ledger is that of a schedule, the oldest line first.
func (w timed) ledger(id string) []api.Fire {
	w.Helper()
	var all []api.Fire
	for cursor := ""; ; {
		page := decoded[api.FirePage](w.T, w.user.Must(w, http.MethodGet, "/v1/schedules/"+id+"/fires?limit=500"+cursor, nil, http.StatusOK))
		all = append(all, page.Items...)
		if page.Next == "" {
			slices.Reverse(all)
			return all
		}
		cursor = "&cursor=" + page.Next
	}
}

// told counts the lines of a ledger by outcome, as `1 fired, 839 skipped`.
func (w timed) told(id string) string {
	w.Helper()
	n := map[string]int{}
	for _, f := range w.ledger(id) {
		n[f.Outcome]++
	}
	var words []string
	for _, outcome := range slices.Sorted(maps.Keys(n)) {
		words = append(words, fmt.Sprintf("%d %s", n[outcome], outcome))
	}
	return strings.Join(words, ", ")
}

func (w timed) wantTold(when string, s api.Schedule, want string) {
	w.Helper()
	if got := w.told(s.ID); got != want {
		w.Errorf("%s: %s has %q in its ledger, want %q", when, s.Name, got, want)
	}
}

// settled waits until nothing is due and what fired has ended.
func (w timed) settled() { w.settledBut("") }

// settledBut is the same, but for one Task.
func (w timed) settledBut(id string) {
	w.Helper()
	rig.Eventually(w, "all that is due to have fired and ended", func(context.Context) (bool, error) {
		left := w.Value(w, `SELECT (SELECT count(*) FROM slipway.schedules WHERE next_at <= slipway.now() AND broken = '')
			|| ' due, ' || (SELECT count(*) FROM slipway.tasks WHERE state IN ('queued', 'running') AND id::text <> '`+id+`') || ' open'`)
		if left != "0 due, 0 open" {
			return false, fmt.Errorf("%s", left)
		}
		return true, nil
	})
}

// on moves the clock and waits for what comes of it.
func (w timed) on(d time.Duration) {
	w.Helper()
	w.Advance(w, d)
	w.settled()
}

// nothingTwice wants each Task of a schedule to be one line of its ledger, and to have run once.
func (w timed) nothingTwice() {
	w.Helper()
	for what, query := range map[string]string{
		"tasks without a line of the ledger": `SELECT count(*) FROM slipway.tasks t WHERE t.schedule IS NOT NULL AND NOT EXISTS
			(SELECT 1 FROM slipway.schedule_fires f WHERE f.task = t.id AND f.at = t.fire_at AND f.outcome = 'fired')`,
		"lines of the ledger without their task": `SELECT count(*) FROM slipway.schedule_fires f WHERE f.outcome = 'fired' AND NOT EXISTS
			(SELECT 1 FROM slipway.tasks t WHERE t.id = f.task AND t.fire_at = f.at)`,
		"tasks that were not well at their first attempt": `SELECT count(*) FROM slipway.tasks t WHERE t.schedule IS NOT NULL AND (t.state, t.attempts) <> ('succeeded', 1)`,
	} {
		if n := w.Value(w, strings.Replace(query, "count(*)", "count(*)::text", 1)); n != "0" {
			w.Errorf("%s %s", n, what)
		}
	}
}

func (w timed) restart(p *rig.Replica, between func()) {
	w.Helper()
	p.Stop(w)
	between()
	p.Start(w)
	p.WaitReady(w)
}

func decoded[T any](t *testing.T, a rig.Answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.Body, &v); err != nil {
		t.Fatalf("read %s: %v", a.Body, err)
	}
	return v
}
