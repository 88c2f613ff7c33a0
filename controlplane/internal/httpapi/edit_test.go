package httpapi

import (
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func TestAbsentNullAndZeroAreThreeThings(t *testing.T) {
	high, normal := task.High, task.Normal
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for body, want := range map[string]Change{
		`{"class":"high"}`:                  {Class: &high},
		`{"class":null}`:                    {Class: &normal},
		`{"run_at":null}`:                   {Move: true},
		`{"run_at":"2030-01-02T03:04:05Z"}`: {Move: true, RunAt: at},
		`{"class":"high","run_at":null}`:    {Class: &high, Move: true},
	} {
		r := newRig(t)
		w := r.send(request{method: "PATCH", path: "/v1/tasks/" + taskID, token: "admin", body: body})
		if w.Code != 200 || len(r.changes) != 1 {
			t.Errorf("%s: got %d %s", body, w.Code, w.Body)
			continue
		}
		got := r.changes[0]
		if (got.Class == nil) != (want.Class == nil) || got.Class != nil && *got.Class != *want.Class || got.Move != want.Move || !got.RunAt.Equal(want.RunAt) {
			t.Errorf("%s: got %+v, want %+v", body, got, want)
		}
	}
	for body, status := range map[string]int{
		`{}`: 400, `{"class":""}`: 400, `{"class":0}`: 400, `{"run_at":""}`: 400, `{"run_at":0}`: 400, `{"Class":"high"}`: 400,
		`{"run_at":"0001-01-01T00:00:00Z"}`: 422,
	} {
		r := newRig(t)
		r.problem(r.send(request{method: "PATCH", path: "/v1/tasks/" + taskID, token: "admin", body: body}), status)
		if len(r.changes) > 0 {
			t.Errorf("%s: changed %+v", body, r.changes)
		}
	}
}

func TestAChangeThatIsHinderedNamesTheTaskInTheWay(t *testing.T) {
	for reason := range hinderTexts {
		r := newRig(t)
		r.editErr = &HinderedError{Task: absentID, State: task.Running, Reason: reason}
		w := r.send(request{method: "DELETE", path: "/v1/tasks/" + endedID, token: "admin"})
		p := r.problem(w, 409)
		if p.Task != absentID || p.State != "running" || p.Type != "urn:slipway:problem:"+reason || p.Detail == "" {
			t.Errorf("%s: %+v", reason, p)
		}
		if waits := w.Header().Get("Retry-After") != ""; waits != (reason == "closing") {
			t.Errorf("%s: Retry-After is %q", reason, w.Header().Get("Retry-After"))
		}
	}
}

func TestARetryAsksForItsOwnRightAndForThoseOfASubmit(t *testing.T) {
	needs := []string{
		"get tasks.slipway.dev in namespace shop", "create tasks/retry.slipway.dev in namespace shop", "create tasks.slipway.dev in namespace shop",
		"use kinds.slipway.dev command.run in namespace shop", "create jobs.batch in namespace shop",
	}
	for without := range needs {
		r := newRig(t)
		r.rights["some"] = append(append([]string{}, needs[:without]...), needs[without+1:]...)
		status := 403
		if without == 0 {
			status = 404
		}
		p := r.problem(r.send(request{method: "POST", path: "/v1/tasks/" + endedID + "/retry", token: "some"}), status)
		if without > 0 && p.Detail != "not allowed to "+needs[without] {
			t.Errorf("without %s: %s", needs[without], p.Detail)
		}
		if len(r.submitted) > 0 {
			t.Errorf("without %s: stored", needs[without])
		}
	}
	r := newRig(t)
	r.rights["some"] = needs
	w := r.send(request{method: "POST", path: "/v1/tasks/" + endedID + "/retry", token: "some", headers: []string{"Idempotency-Key", "k"}})
	if w.Code != 201 || w.Header().Get("Location") != "/v1/tasks/"+taskID {
		t.Fatalf("got %d %s, location %q", w.Code, w.Body, w.Header().Get("Location"))
	}
	s := r.submitted[0]
	if s.Key != "k" || len(s.Hash) == 0 || s.Items[0].Task.RetryOf != endedID || string(s.Items[0].Task.Params) != `{"command":["true"]}` {
		t.Errorf("submitted %+v", s)
	}
	p := r.problem(r.send(request{method: "POST", path: "/v1/tasks/" + taskID + "/retry", token: "some"}), 409)
	if p.Type != "urn:slipway:problem:not_ended" || p.Task != taskID || p.State != "running" {
		t.Errorf("a running one: %+v", p)
	}
}

func TestARetryHasTheLaneThatItsKindGivesToday(t *testing.T) {
	r := newRig(t)
	cut := kinds.Kind{Kind: task.Kind{Name: "cut", Lane: "volume:{namespace}/{partition params.pvc 16}", Mode: task.Strict, Spec: task.DefaultSpec()}}
	all, err := kinds.WithBuiltIn(cut)
	if err != nil {
		t.Fatal(err)
	}
	*r.kinds = *all
	r.task.Kind, r.task.Params, r.task.Lane, r.task.Mode = "cut", []byte(`{"pvc":"a"}`), "volume:shop/1-of-8", task.Latest
	if w := r.send(request{method: "POST", path: "/v1/tasks/" + endedID + "/retry", token: "admin"}); w.Code != 201 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	if got := r.submitted[0].Items[0].Task; !strings.HasSuffix(got.Lane, "-of-16") || got.Mode != task.Strict {
		t.Errorf("it goes into lane %s in mode %s", got.Lane, got.Mode)
	}
}

func TestADryRunAsksForEverythingAndShowsTheTask(t *testing.T) {
	r := newRig(t)
	w := r.send(request{method: "POST", path: "/v1/tasks?dry_run=true", token: "admin", body: good})
	got := decode[api.Task](t, w)
	if w.Code != 200 || got.ID != noID || w.Header().Get("Slipway-Dry-Run") != "true" || w.Header().Get("Location") != "" || !r.submitted[0].DryRun {
		t.Errorf("got %d %+v", w.Code, got)
	}
	r.problem(r.send(request{method: "POST", path: "/v1/tasks?dry_run=true", token: "operator", body: good}), 403)
	r.problem(r.send(request{method: "POST", path: "/v1/tasks?dry_run=yes", token: "admin", body: good}), 400)
	r.fail = &ConflictError{Conflicts: []Conflict{{Task: absentID, Reason: ConflictLaneBusy}}}
	r.problem(r.send(request{method: "POST", path: "/v1/tasks?dry_run=true", token: "admin", body: good}), 409)
}

func TestAChangeCarriesWhereItCameFrom(t *testing.T) {
	r := newRig(t)
	r.send(request{
		method: "POST", path: "/v1/tasks/" + taskID + "/hold", token: "admin", body: `{"reason":"look"}`,
		headers: []string{"X-Request-Id", "mine-1", "X-Forwarded-For", "9.9.9.9"},
	})
	if len(r.origins) != 1 || r.origins[0].Request != "mine-1" || !strings.HasPrefix(r.origins[0].Peer, "192.0.2.") {
		t.Errorf("origin %+v, want that of httptest and no forwarded one", r.origins)
	}
	if r.edits[0] != "hold "+taskID+" by admin: look" {
		t.Errorf("did %q", r.edits)
	}
}
