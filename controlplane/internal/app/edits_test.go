package app

import (
	"testing"
	"time"

	"slipway.dev/slipway/pkg/api"
)

func TestATaskIsHeldMovedRetriedAndDeletedOverARealStore(t *testing.T) {
	w := newTown(t)
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", hello), 201)
	here := "/v1/tasks/" + made.ID
	held := must[api.Task](w, w.send("bob", "POST", here+"/hold", `{"reason":"look first"}`), 200)
	if held.Waiting == nil || held.Waiting.Reason != "held" || held.Waiting.Note != "bob: look first" {
		t.Errorf("held: %+v", held.Waiting)
	}
	must[api.Task](w, w.send("bob", "POST", here+"/unhold", ""), 200)
	moved := must[api.Task](w, w.send("bob", "PATCH", here, `{"class":"critical","run_at":"2099-01-01T00:00:00Z"}`), 200)
	if moved.Class != api.ClassCritical || moved.Phase != api.PhaseDelayed || moved.RunAt.Year() != 2099 {
		t.Errorf("moved: %+v", moved)
	}
	p := must[api.Problem](w, w.send("bob", "DELETE", here, ""), 409)
	if p.Task != made.ID || p.State != "queued" {
		t.Errorf("a delete of a queued one: %+v", p)
	}
	must[api.Problem](w, w.send("bob", "POST", here+"/retry", ""), 409)
	must[api.Task](w, w.send("bob", "POST", here+"/cancel", ""), 200)
	again := must[api.Task](w, w.send("bob", "POST", here+"/retry", "", "Idempotency-Key", "r"), 201)
	if again.RetryOf != made.ID || again.Root != made.ID || again.ID == made.ID || again.CreatedBy != "bob" || string(again.Params) != string(moved.Params) {
		t.Errorf("retry: %+v", again)
	}
	a := w.send("bob", "POST", here+"/retry", "", "Idempotency-Key", "r")
	if same := must[api.Task](w, a, 200); same.ID != again.ID || a.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same retry again made %s", same.ID)
	}
	must[api.Task](w, w.send("bob", "POST", "/v1/tasks/"+again.ID+"/cancel", ""), 200)
	third := must[api.Task](w, w.send("bob", "POST", "/v1/tasks/"+again.ID+"/retry", ""), 201)
	if third.RetryOf != again.ID || third.Root != made.ID {
		t.Errorf("a retry of a retry: of %s, root %s", third.RetryOf, third.Root)
	}
	must[struct{}](w, w.send("bob", "DELETE", here, ""), 204)
	must[api.Problem](w, w.send("bob", "GET", here, ""), 404)
	if left := must[api.Task](w, w.send("bob", "GET", "/v1/tasks/"+again.ID, ""), 200); left.RetryOf != "" {
		t.Errorf("a retry of what is gone names %s", left.RetryOf)
	}
}

func TestADryRunShowsWhatASubmitWouldDo(t *testing.T) {
	w := newTown(t)
	dry := must[api.Task](w, w.send("ada", "POST", "/v1/tasks?dry_run=true", `{"delay":60,`+hello[1:], "Idempotency-Key", "k"), 200)
	if dry.Phase != api.PhaseDelayed || dry.RunAt.Sub(dry.CreatedAt).Round(time.Second) != time.Minute || dry.Queue != "default" {
		t.Errorf("dry: %+v", dry)
	}
	if page := must[api.TaskPage](w, w.send("ada", "GET", "/v1/tasks", ""), 200); len(page.Items) != 0 {
		t.Errorf("%d tasks are stored", len(page.Items))
	}
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", hello, "Idempotency-Key", "k"), 201)
	a := w.send("ada", "POST", "/v1/tasks?dry_run=true", hello, "Idempotency-Key", "k")
	if again := must[api.Task](w, a, 200); again.ID != made.ID || a.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("a repeat, tried: %s", again.ID)
	}
	must[api.Problem](w, w.send("ada", "POST", "/v1/tasks?dry_run=true", `{"delay":60,`+hello[1:], "Idempotency-Key", "k"), 409)
}

func TestAPausedQueueSaysSoEverywhereAndIsAudited(t *testing.T) {
	w := newTown(t)
	laned := `{"lane":"volume:shop/a",` + hello[1:]
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", laned), 201)
	paused := must[api.Queue](w, w.send("bob", "POST", "/v1/queues/default/pause", `{"note":"look first"}`), 200)
	if !paused.Paused || paused.Note != "look first" || paused.Queued != 1 {
		t.Errorf("paused: %+v", paused)
	}
	lane := must[api.LaneState](w, w.send("ada", "GET", "/v1/lanes?key=volume:shop/a", ""), 200)
	if lane.Head != made.ID || lane.Queued != 1 || lane.Waiting == nil || lane.Waiting.Reason != "paused" || lane.Waiting.Note != "look first" {
		t.Errorf("lane: %+v", lane)
	}
	changed := must[api.Queue](w, w.send("bob", "PATCH", "/v1/queues/default", `{"cap":7,"rate":2.5}`), 200)
	if changed.Cap != 7 || changed.Rate == nil || *changed.Rate != 2.5 || !changed.Paused {
		t.Errorf("changed: %+v", changed)
	}
	limits := must[api.LimitList](w, w.send("ada", "GET", "/v1/limits/shop", ""), 200)
	found := false
	for _, l := range limits.Items {
		found = found || l.Queue == "default" && l.Cap == 7 && l.Queued == 1 && l.Running == 0 && l.NsCap == 20
	}
	if !found {
		t.Errorf("limits: %+v", limits)
	}
	if open := must[api.Queue](w, w.send("bob", "POST", "/v1/queues/default/resume", ""), 200); open.Paused || open.Note != "" {
		t.Errorf("resumed: %+v", open)
	}
	must[api.Kind](w, w.send("bob", "PATCH", "/v1/kinds/command.run", `{"executor":"off","reason":"broken"}`), 200)
	if off := must[api.Task](w, w.send("ada", "GET", "/v1/tasks/"+made.ID, ""), 200); off.Waiting == nil || off.Waiting.Reason != "kind_off" {
		t.Errorf("a task of a kind that is off waits for %+v", off.Waiting)
	}
	must[api.Problem](w, w.send("ada", "GET", "/v1/lanes?key=volume:shop/none", ""), 404)
	must[api.Problem](w, w.send("ada", "POST", "/v1/queues/none/pause", ""), 404)
}

func TestARetryOfAnyImageRunsWhatRanBefore(t *testing.T) {
	w := newTown(t)
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", `{"kind":"container.run","namespace":"shop","params":{"image":"busybox","command":["true"],"env":{"A":"b"}},
		"spec":{"run_deadline":77}}`), 201)
	must[api.Task](w, w.send("ada", "POST", "/v1/tasks/"+made.ID+"/cancel", ""), 200)
	again := must[api.Task](w, w.send("ada", "POST", "/v1/tasks/"+made.ID+"/retry", ""), 201)
	if again.Spec.Image != "busybox" || *again.Spec.RunDeadline != 77 || again.Kind != "container.run" {
		t.Errorf("retry: %+v", again.Spec)
	}
}

func TestManyAreCanceledAndRetriedOnceOverARealStore(t *testing.T) {
	w := newTown(t)
	var ids []string
	for range 3 {
		ids = append(ids, must[api.Task](w, w.send("ada", "POST", "/v1/tasks", hello), 201).ID)
	}
	do := func(path, body, key string) api.ManyResult {
		t.Helper()
		var header []string
		if key != "" {
			header = []string{"Idempotency-Key", key}
		}
		return must[api.ManyResult](w, w.send("bob", "POST", path, body, header...), 200)
	}
	shown := do("/v1/tasks:cancel", `{"filter":{"kind":"command.run"},"dry_run":true}`, "")
	if shown.Count != 3 || len(shown.Sample) != 3 || shown.Sample[0].ID != ids[0] {
		t.Fatalf("shown %+v", shown)
	}
	if done := do("/v1/tasks:cancel", `{"filter":{"kind":"command.run"},"expected_count":3,"selection":"`+shown.Selection+`"}`, ""); done.Items[2].Result != api.ManyCanceled {
		t.Errorf("canceled %+v", done.Items)
	}
	if page := must[api.TaskPage](w, w.send("bob", "GET", "/v1/tasks?reason=cancel", ""), 200); len(page.Items) != 3 {
		t.Errorf("%d tasks have reason cancel", len(page.Items))
	}
	again := `{"filter":{"state":"canceled","reason":"cancel"},"expected_count":3}`
	first := do("/v1/tasks:retry", again, "k")
	second := do("/v1/tasks:retry", again, "k")
	for i, item := range second.Items {
		if item.Result != api.ManyRepeated || item.ID != ids[i] || item.Task != first.Items[i].Task || first.Items[i].Result != api.ManyCreated {
			t.Errorf("the same request again: %+v, first %+v", item, first.Items[i])
		}
	}
	if made := must[api.Task](w, w.send("bob", "GET", "/v1/tasks/"+first.Items[0].Task, ""), 200); made.RetryOf != ids[0] || made.CreatedBy != "bob" {
		t.Errorf("made %+v", made)
	}
	must[api.Problem](w, w.send("bob", "POST", "/v1/tasks:retry", again), 409)
	if left := do("/v1/tasks:retry", `{"filter":{"state":"canceled"},"dry_run":true}`, ""); left.Count != 0 {
		t.Errorf("%d would be retried again", left.Count)
	}
	must[api.Problem](w, w.send("bob", "POST", "/v1/tasks:retry", `{"filter":{"state":"canceled"},"expected_count":1}`, "Idempotency-Key", "k"), 409)
}
