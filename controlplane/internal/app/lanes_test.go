package app

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// claims takes what may begin and gives it by the id of its Task.
func (w *town) claims(limit int) map[string]store.Claimed {
	w.Helper()
	got, err := w.store.Claim(w.Context(), "default", limit)
	if err != nil {
		w.Fatal(err)
	}
	all := map[string]store.Claimed{}
	for _, c := range got.Claims {
		all[c.Task.ID] = c
	}
	return all
}

func (w *town) ends(c store.Claimed) {
	w.Helper()
	v := task.Verdict{Outcome: task.OutcomeSucceeded, Spends: task.SpendsRetry, Started: true}
	if _, err := w.store.Finish(w.Context(), c.Attempt.ID, c.Attempt.Fence, v, store.Ending{}); err != nil {
		w.Fatal(err)
	}
}

// waits checks what a Task waits for.
func (w *town) waits(id, reason, note string) {
	w.Helper()
	got := must[api.Task](w, w.send("ada", "GET", "/v1/tasks/"+id, ""), 200)
	if got.Waiting == nil || got.Waiting.Reason != reason || got.Waiting.Note != note {
		w.Errorf("%s waits for %+v, want %s %q", id, got.Waiting, reason, note)
	}
}

func (w *town) submits(n int, extra string) (ids []string) {
	w.Helper()
	for range n {
		ids = append(ids, must[api.Task](w, w.send("ada", "POST", "/v1/tasks", `{`+extra+hello[1:]), 201).ID)
	}
	return ids
}

func TestEveryLimitOfAQueueHoldsAndSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		set          string // PATCH of the queue
		claimed      int
		reason, note string
	}{
		"cap":           {`{"cap":2}`, 2, "cap", ""},
		"namespace cap": {`{"ns_cap":1}`, 1, "cap", ""},
		"rate":          {`{"rate":0.001,"burst":1}`, 1, "rate", ""},
		"no cap at all": {`{"cap":0}`, 0, "cap", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown(t)
			must[api.Queue](w, w.send("bob", "PATCH", "/v1/queues/default", tc.set), 200)
			ids := w.submits(4, "")
			if got := w.claims(20); len(got) != tc.claimed {
				t.Fatalf("%d were claimed, want %d", len(got), tc.claimed)
			}
			w.waits(ids[3], tc.reason, tc.note)
			must[api.Queue](w, w.send("bob", "PATCH", "/v1/queues/default", `{"cap":null,"ns_cap":null,"rate":null}`), 200)
			if got := w.claims(20); len(got) != 4-tc.claimed {
				t.Errorf("%d were claimed once nothing was in the way, want %d", len(got), 4-tc.claimed)
			}
		})
	}
}

func TestStopsOfAQueueLetNothingBeginAndWhatRunsGoesOn(t *testing.T) {
	for _, stop := range []string{"pause", "drain"} {
		w := newTown(t)
		running := w.submits(1, "")[0]
		c := w.claims(20)[running]
		ids := w.submits(2, "")
		must[api.Queue](w, w.send("bob", "POST", "/v1/queues/default/"+stop, `{"note":"moving"}`), 200)
		if got := w.claims(20); len(got) != 0 {
			t.Fatalf("%s: %d were claimed", stop, len(got))
		}
		w.waits(ids[0], "paused", "moving")
		w.ends(c)
		must[api.Task](w, w.send("ada", "POST", "/v1/tasks/"+ids[1]+"/cancel", ""), 200) // a cancel passes
		must[api.Queue](w, w.send("bob", "POST", "/v1/queues/default/resume", ""), 200)
		if got := w.claims(20); len(got) != 1 {
			t.Errorf("%s: %d were claimed after it", stop, len(got))
		}
	}
}

func TestAFreezeHoldsLaunchesBackSaysWhoAndWhyAndEndsByHandOrByItself(t *testing.T) {
	for name, tc := range map[string]struct {
		where     string
		elsewhere bool // whether another namespace goes on
	}{
		"namespace":          {`"namespace":"shop",`, true},
		"queue":              {`"queue":"default",`, false},
		"queue of namespace": {`"queue":"default","namespace":"shop",`, true},
		"everything":         {``, false},
		"another queue":      {`"queue":"volume",`, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown(t)
			running := w.submits(1, "")[0]
			c := w.claims(20)[running]
			made := must[api.Freeze](w, w.send("bob", "POST", "/v1/freezes", `{`+tc.where+`"reason":"moving storage","seconds":3600}`), 201)
			if made.Actor != "bob" || made.ExpiresAt.Sub(made.CreatedAt) != time.Hour {
				t.Errorf("made %+v", made)
			}
			ids := w.submits(2, "")
			if name == "another queue" {
				if got := w.claims(20); len(got) != 2 {
					t.Errorf("%d of a queue that is not frozen were claimed", len(got))
				}
				return
			}
			if got := w.claims(20); len(got) != 0 {
				t.Fatalf("%d were claimed", len(got))
			}
			w.waits(ids[0], "frozen", "bob: moving storage")
			w.ends(c) // what runs goes on
			must[api.Task](w, w.send("ada", "POST", "/v1/tasks/"+ids[1]+"/cancel", ""), 200)
			other := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", strings.ReplaceAll(hello, `"shop"`, `"bank"`)), 201)
			if _, went := w.claims(20)[other.ID]; went != tc.elsewhere {
				t.Errorf("in another namespace a task was claimed: %v", went)
			}
			if all := must[api.FreezeList](w, w.send("ada", "GET", "/v1/freezes", ""), 200); len(all.Items) != 1 || all.Items[0].ID != made.ID {
				t.Errorf("in force: %+v", all.Items)
			}
			must[struct{}](w, w.send("bob", "DELETE", fmt.Sprint("/v1/freezes/", made.ID), ""), 204)
			must[api.Problem](w, w.send("bob", "DELETE", fmt.Sprint("/v1/freezes/", made.ID), ""), 404)
			if _, went := w.claims(20)[ids[0]]; !went {
				t.Error("nothing was claimed after the thaw")
			}
			page := must[api.AuditPage](w, w.send("bob", "GET", "/v1/audit?resource=freezes", ""), 200)
			if len(page.Items) != 2 || page.Items[0].Verb != "thaw" || page.Items[1].Verb != "freeze" || page.Items[1].Actor != "bob" {
				t.Errorf("audit %+v", page.Items)
			}
		})
	}
}

func TestANamespaceThatHasTooMuchWaitingIsToldSoAndOthersAreNot(t *testing.T) {
	w := newTown(t)
	must[api.Queue](w, w.send("bob", "PATCH", "/v1/queues/default", `{"max_queued":2}`), 200)
	w.submits(2, "")
	refused := w.send("ada", "POST", "/v1/tasks", hello)
	if p := must[api.Problem](w, refused, 429); refused.Header().Get("Retry-After") == "" || !strings.Contains(p.Detail, "shop") {
		t.Errorf("%+v %v", p, refused.Header())
	}
	must[api.Task](w, w.send("ada", "POST", "/v1/tasks", strings.ReplaceAll(hello, `"shop"`, `"bank"`)), 201)
}

func TestOnConflictDecidesWhatASubmitMeetsInItsLane(t *testing.T) {
	file := `
kinds:
- {name: stop, image: x, command: [stop], lane: "branch:{namespace}/{params.name}", on_conflict: replace, supersedes: [start, observe]}
- {name: start, image: x, command: [start], lane: "branch:{namespace}/{params.name}", on_conflict: reject}
- {name: observe, image: x, command: [look], lane: "branch:{namespace}/{params.name}", mode: latest}
`
	own, err := kinds.Read("kinds.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	all, err := kinds.WithBuiltIn(own...)
	if err != nil {
		t.Fatal(err)
	}
	w := townOver(t, pgtest.New(t), all)
	submit := func(kind, extra string) string {
		return `{"kind":"` + kind + `","namespace":"shop","params":{"name":"b"}` + extra + `}`
	}
	start := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", submit("start", "")), 201)
	if p := must[api.Problem](w, w.send("ada", "POST", "/v1/tasks", submit("start", "")), 409); p.Task != start.ID {
		t.Errorf("in the way: %+v", p)
	}
	look := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", submit("observe", "")), 201)
	again := w.send("ada", "POST", "/v1/tasks", submit("observe", ""))
	if same := must[api.Task](w, again, 200); same.ID != look.ID || same.Absorbed != 1 || again.Header().Get("Slipway-Coalesced") != "true" {
		t.Errorf("absorbed: %+v", same)
	}
	queued := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", submit("start", `,"on_conflict":"queue"`)), 201)
	key := "/v1/lanes?key=" + url.QueryEscape("branch:shop/b")
	lane := must[api.LaneState](w, w.send("ada", "GET", key, ""), 200)
	if len(lane.Line) != 3 || lane.Line[0].Task != start.ID || lane.Line[1].Task != look.ID || lane.Line[1].Absorbed != 1 || lane.Line[2].Task != queued.ID || lane.Line[2].Position != 3 {
		t.Errorf("line %+v", lane.Line)
	}
	stop := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", submit("stop", "")), 201)
	for _, id := range []string{start.ID, look.ID, queued.ID} {
		if gone := must[api.Task](w, w.send("ada", "GET", "/v1/tasks/"+id, ""), 200); gone.State != "canceled" || gone.Reason != "superseded" || gone.Message != "replaced by task "+stop.ID {
			t.Errorf("replaced: %s %s %q", gone.State, gone.Reason, gone.Message)
		}
	}
	if lane = must[api.LaneState](w, w.send("ada", "GET", key, ""), 200); len(lane.Line) != 1 || lane.Head != stop.ID {
		t.Errorf("lane %+v", lane)
	}
	for _, k := range must[api.KindList](w, w.send("ada", "GET", "/v1/kinds", ""), 200).Items {
		if k.Name == "stop" && (k.OnConflict != "replace" || strings.Join(k.Supersedes, " ") != "start observe") {
			t.Errorf("kind %+v", k)
		}
	}
}

func TestALaneIsTakenByForceOverTheAPIAndACheckFindsNothing(t *testing.T) {
	w := newTown(t)
	laned := `"lane":"volume:shop/a",`
	ids := w.submits(3, laned)
	c := w.claims(20)[ids[0]]
	const take = `{"key":"volume:shop/a","reason":"its node is off"}`
	done := must[api.ForceReleased](w, w.send("bob", "POST", "/v1/lanes:force-release", take), 200)
	if done.Task != ids[0] || done.Reason != "force_released" || done.Fence != c.Attempt.Fence || len(done.MayStillRun) != 1 {
		t.Errorf("done %+v", done)
	}
	attempts := must[api.AttemptList](w, w.send("ada", "GET", "/v1/tasks/"+ids[0]+"/attempts", ""), 200)
	if a := attempts.Items[0]; a.Outcome != "lost" || a.Reason != "force_released" || a.Message != "its lane was taken from it by bob: its node is off" {
		t.Errorf("attempt %+v", a)
	}
	must[api.Problem](w, w.send("bob", "POST", "/v1/lanes:force-release", take), 409) // nothing holds it now
	found := must[api.LaneCheck](w, w.send("bob", "POST", "/v1/lanes:check", ""), 200)
	if found.Checked == 0 || len(found.Differences) != 0 {
		t.Errorf("check %+v", found)
	}
	page := must[api.AuditPage](w, w.send("bob", "GET", "/v1/audit?resource=lanes", ""), 200)
	if len(page.Items) != 1 || page.Items[0].Verb != "force-release" || page.Items[0].Actor != "bob" || page.Items[0].Namespace != "shop" {
		t.Errorf("audit %+v", page.Items)
	}
}
