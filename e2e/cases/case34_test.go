package cases

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// False and zero cannot be saved. Nothing is shrunk; the patches go to three replicas.
func TestCase34(t *testing.T) {
	replay(t, 34, "absent, null and zero are three things; no change is lost; disabled fires no more", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API, Replicas: 3, Env: map[string]string{"SLIPWAY_INLINE_KINDS": "command.run"}})
		r.Exec(t, "INSERT INTO slipway.kind_switches (kind, executor, actor, changed_at) VALUES ('command.run', 'inline', 'test', slipway.now())")
		w := timed{t, r, r.User(t, r.Namespace())}
		w.zeroesAreSaved()
		w.nothingIsLost()
		w.disabledFiresNoMore()
	})
}

func (w timed) zeroesAreSaved() {
	full := map[string]any{
		"every": "1h", "missed": "all", "up_to": 7, "overlap": "queue", "spread": 9, "window": 120, "description": "words", "owner": "team",
		"labels": map[string]string{"a": "1", "b": "2"}, "expect_success_within": 7200,
	}
	made := w.made("zeroes", full)
	type check struct {
		patch string
		ok    func(api.Schedule) bool
	}
	for _, c := range []check{
		{`{}`, func(s api.Schedule) bool {
			return s.Revision == 1 && s.Description == "words" && s.UpTo == 7 && s.Enabled
		}},
		{`{"enabled":false}`, func(s api.Schedule) bool { return !s.Enabled && s.NextAt.IsZero() && s.Description == "words" }},
		{`{"description":""}`, func(s api.Schedule) bool { return s.Description == "" && s.Owner == "team" && !s.Enabled }},
		{`{"spread":0,"window":0,"expect_success_within":0}`, func(s api.Schedule) bool {
			return s.Spread == 0 && s.Window == 0 && s.ExpectSuccessWithin == 0 && s.UpTo == 7
		}},
		{`{"enabled":true,"labels":{"a":null,"c":""}}`, func(s api.Schedule) bool {
			_, a := s.Labels["a"]
			c, has := s.Labels["c"]
			return s.Enabled && !s.NextAt.IsZero() && !a && has && c == "" && s.Labels["b"] == "2"
		}},
		{`{"missed":null,"up_to":null,"overlap":null,"owner":null}`, func(s api.Schedule) bool {
			return s.Missed == "latest" && s.UpTo == 0 && s.Overlap == "forbid" && s.Owner == "" && s.Every == "1h"
		}},
		{`{"template":{"spec":{"retry":{"attempts":1},"queue_deadline":0},"name":""}}`, func(s api.Schedule) bool {
			return s.Template.Spec.Retry.Attempts != nil && *s.Template.Spec.Retry.Attempts == 1 && s.Template.Kind == "command.run"
		}},
	} {
		now := w.patch(made.ID, c.patch)
		if again := w.get(made.ID); !c.ok(now) || !c.ok(again) {
			w.Errorf("%s: answered %+v, then %+v", c.patch, now, again)
		}
	}
	before := w.get(made.ID)
	for _, replica := range w.Replicas {
		w.restart(replica, func() {})
	}
	if after := w.get(made.ID); after.Revision != before.Revision || after.Owner != "" || after.Spread != 0 || !after.Enabled {
		w.Errorf("after a restart: %+v, before %+v", after, before)
	}
	for body, field := range map[string]string{
		`{"template":null}`: "/template", `{"every":null}`: "/cron", `{"enabled":0}`: "/enabled", `{"up_to":0,"missed":"all"}`: "/up_to",
		`{"spread":-1}`: "/spread", `{"retries":0}`: "/retries", `{"template":{"kind":null}}`: "/template/kind",
	} {
		a := w.user.Must(w, http.MethodPatch, "/v1/schedules/"+made.ID, body, http.StatusBadRequest, http.StatusUnprocessableEntity)
		if p := decodeProblem(w.T, a); len(p.Errors) == 0 || p.Errors[0].Pointer != field {
			w.Errorf("%s: %s, want %s", body, a.Body, field)
		}
	}
}

// nothingIsLost sends two patches of different fields at once, two hundred times, while the row fires.
func (w timed) nothingIsLost() {
	made := w.made("busy", map[string]any{"every": "1s", "overlap": "allow"})
	for n := range 200 {
		var group sync.WaitGroup
		for i, field := range []string{"description", "owner"} {
			via := w.user.Via(w.Replicas[(n+i)%len(w.Replicas)].Address)
			group.Go(func() {
				a, err := via.Do(w.Context(), http.MethodPatch, "/v1/schedules/"+made.ID, fmt.Sprintf(`{"%s":"%d"}`, field, n))
				if err != nil || a.Status != http.StatusOK {
					w.Errorf("patch %d of %s: %d %s, %v", n, field, a.Status, a.Body, err)
				}
			})
		}
		group.Wait()
		if now := w.get(made.ID); now.Description != fmt.Sprint(n) || now.Owner != fmt.Sprint(n) {
			w.Fatalf("after patch %d: description %q, owner %q", n, now.Description, now.Owner)
		}
	}
	rig.Eventually(w, "it to have fired", func(context.Context) (bool, error) { return w.fired(made.ID) > 2, nil })
	now := w.get(made.ID)
	if now.Revision != 401 || now.LastTask == "" || now.LastFireAt.IsZero() {
		w.Errorf("%+v", now)
	}
	// One of two who edit the same thing is told.
	tag := fmt.Sprintf(`"%d"`, now.Revision)
	var lost, won int
	var mu sync.Mutex
	var group sync.WaitGroup
	for n := range 6 {
		via := w.user.Via(w.Replicas[n%len(w.Replicas)].Address)
		group.Go(func() {
			a, err := via.Do(w.Context(), http.MethodPatch, "/v1/schedules/"+made.ID, fmt.Sprintf(`{"owner":"editor %d"}`, n), "If-Match", tag)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && a.Status == http.StatusOK:
				won++
			case err == nil && a.Status == http.StatusPreconditionFailed:
				lost++
			default:
				w.Errorf("an edit: %d %s, %v", a.Status, a.Body, err)
			}
		})
	}
	group.Wait()
	if won != 1 || lost != 5 {
		w.Errorf("%d of six editors won, %d were told", won, lost)
	}
}

// disabledFiresNoMore disables a schedule that fires each second, again and again, and looks at what fires afterwards.
func (w timed) disabledFiresNoMore() {
	made := w.made("switched", map[string]any{"every": "1s", "overlap": "allow"})
	for n := range 5 {
		via := w.user.Via(w.Replicas[n%len(w.Replicas)].Address)
		before := w.fired(made.ID)
		rig.Eventually(w, "it to fire", func(context.Context) (bool, error) { return w.fired(made.ID) > before, nil })
		time.Sleep(time.Duration(n) * 170 * time.Millisecond) // into the next second
		via.Must(w, http.MethodPatch, "/v1/schedules/"+made.ID, `{"enabled":false}`, http.StatusOK)
		then := w.fired(made.ID) // its answer came after every fire that was under way
		holdsFor(w.T, 2500*time.Millisecond, "no fire of what is disabled", func(context.Context) (bool, error) { return w.fired(made.ID) == then, nil })
		via.Must(w, http.MethodPatch, "/v1/schedules/"+made.ID, `{"enabled":true}`, http.StatusOK)
	}
}
