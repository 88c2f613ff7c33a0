package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// someEnded are n ended Tasks of a namespace.
func someEnded(n int, namespace string) []Picked {
	all := make([]Picked, n)
	for i := range all {
		all[i] = Picked{ID: fmt.Sprintf("0190a0b0-0000-7000-8000-%012x", 256+i), Namespace: namespace, Kind: "command.run"}
	}
	return all
}

func retryMany(body, key string) request {
	q := request{method: "POST", path: "/v1/tasks:retry", token: "admin", body: body}
	if key != "" {
		q.headers = []string{"Idempotency-Key", key}
	}
	return q
}

func TestWhatIsRetriedIsWhatWasShown(t *testing.T) {
	r := newRig(t)
	r.many = someEnded(250, "shop")
	shown := decode[api.ManyResult](t, r.send(retryMany(`{"filter":{"kind":"command.run","reason":"exit_code"},"dry_run":true}`, "")))
	if shown.Count != 250 || len(shown.Sample) != maxSample || shown.Sample[0].ID != r.many[0].ID || shown.Selection == "" || len(r.submitted) > 0 {
		t.Fatalf("shown %d, sample of %d, stored %d", shown.Count, len(shown.Sample), len(r.submitted))
	}
	if f := r.filters[0]; f.State != task.Failed || f.Reason != "exit_code" || f.Kind != "command.run" {
		t.Errorf("asked for %+v", f)
	}
	body := func(count int, selection string) string {
		return fmt.Sprintf(`{"filter":{"kind":"command.run"},"expected_count":%d,"selection":%q}`, count, selection)
	}
	r.problem(r.send(retryMany(`{"filter":{"kind":"command.run"}}`, "")), 422)
	for what, wrong := range map[string]string{"another number": body(249, ""), "other tasks": body(250, strings.Repeat("0", 32))} {
		if p := r.problem(r.send(retryMany(wrong, "")), 409); !strings.HasSuffix(p.Type, ":selection_changed") || !strings.Contains(p.Detail, "250") {
			t.Errorf("%s: %+v", what, p)
		}
	}
	if len(r.submitted) > 0 {
		t.Fatal("something was stored")
	}
	done := decode[api.ManyResult](t, r.send(retryMany(body(250, shown.Selection), "")))
	if len(done.Items) != 250 || done.Items[7].ID != r.many[7].ID || done.Items[7].Result != api.ManyCreated || done.Items[7].Task != taskID {
		t.Errorf("done %d: %+v", len(done.Items), done.Items[:min(len(done.Items), 8)])
	}
	if len(r.submitted) != 3 || len(r.submitted[2].Items) != 50 {
		t.Fatalf("%d transactions", len(r.submitted))
	}
	for _, item := range r.submitted[0].Items {
		if !item.Once || item.Task.RetryOf == "" || r.submitted[0].Caller != "admin" {
			t.Fatalf("submitted %+v", item)
		}
	}
}

func TestUnderAKeyTheSameTasksAreMeantAgain(t *testing.T) {
	r := newRig(t)
	r.many = someEnded(2, "shop")
	body := `{"filter":{"kind":"command.run"},"expected_count":2}`
	first := decode[api.ManyResult](t, r.send(retryMany(body, "k")))
	r.many = []Picked{} // they were retried: nothing matches any more
	again := decode[api.ManyResult](t, r.send(retryMany(body, "k")))
	if again.Count != 2 || again.Selection != first.Selection || len(again.Items) != 2 {
		t.Errorf("again %+v, first %+v", again, first)
	}
	r.problem(r.send(retryMany(body, "")), 409)
}

func TestARightThatIsMissingInOneNamespaceStopsARetryOfMany(t *testing.T) {
	needs := []string{
		"list tasks.slipway.dev in all namespaces", "create tasks/retry.slipway.dev in namespace bank",
		"create tasks.slipway.dev in namespace bank", "use kinds.slipway.dev command.run in namespace bank", "create jobs.batch in namespace bank",
	}
	shop := roleIn("shop", "create tasks/retry.slipway.dev", "create tasks.slipway.dev", "use kinds.slipway.dev command.run", "create jobs.batch")
	for without := range needs {
		r := newRig(t)
		r.many = append(someEnded(1, "shop"), Picked{ID: endedID, Namespace: "bank", Kind: "command.run"})
		r.change = func(old *task.Task) {
			if old.ID == endedID {
				old.Namespace = "bank"
			}
		}
		r.rights["some"] = append(append(append([]string{}, shop...), needs[:without]...), needs[without+1:]...)
		for _, rest := range []string{`"dry_run":true`, `"expected_count":2`} {
			q := retryMany(`{"filter":{"kind":"command.run"},`+rest+`}`, "k")
			q.token = "some"
			if p := r.problem(r.send(q), 403); p.Detail != "not allowed to "+needs[without] {
				t.Errorf("without %s: %s", needs[without], p.Detail)
			}
		}
		if len(r.submitted)+len(r.pins) > 0 {
			t.Errorf("without %s: stored", needs[without])
		}
	}
}

func TestOneTaskThatIsRefusedDoesNotHoldUpTheOthers(t *testing.T) {
	r := newRig(t)
	r.many = someEnded(4, "shop")
	r.change = func(old *task.Task) {
		if old.ID == r.many[1].ID {
			old.Kind = "gone"
		}
	}
	r.refuse = []error{&ConflictError{Conflicts: []Conflict{{Item: 1, Task: absentID, Reason: ConflictLaneBusy}}}}
	shown := decode[api.ManyResult](t, r.send(retryMany(`{"filter":{"queue":"default"},"dry_run":true}`, "")))
	if len(shown.Items) != 1 || shown.Items[0].ID != r.many[1].ID || shown.Items[0].Reason != "/kind: is not known here" {
		t.Errorf("shown %+v", shown.Items)
	}
	done := decode[api.ManyResult](t, r.send(retryMany(`{"filter":{"queue":"default"},"expected_count":4}`, "")))
	got := map[string]api.ManyItem{}
	for _, item := range done.Items {
		got[item.ID] = item
	}
	for i, want := range []api.ManyItemResult{api.ManyCreated, api.ManyRefused, api.ManyRefused, api.ManyCreated} {
		if item := got[r.many[i].ID]; item.Result != want {
			t.Errorf("task %d: %+v, want %s", i, item, want)
		}
	}
	if reason := got[r.many[2].ID].Reason; !strings.Contains(reason, absentID) {
		t.Errorf("a busy lane: %q", reason)
	}
}

func TestWhereTooMuchWaitsTheRestOfARetryOfManyIsRefused(t *testing.T) {
	r := newRig(t)
	r.many = someEnded(150, "shop")
	r.refuse = []error{&FullError{Namespace: "shop", Queue: "default"}}
	done := decode[api.ManyResult](t, r.send(retryMany(`{"filter":{"queue":"default"},"expected_count":150}`, "")))
	if len(done.Items) != 150 || done.Items[149].Result != api.ManyRefused || !strings.Contains(done.Items[149].Reason, "queue default") || len(r.submitted) > 0 {
		t.Errorf("%d items, the last %+v", len(done.Items), done.Items[len(done.Items)-1])
	}
}

func TestAChangeOfManyIsBoundedAndKeepsToItsStates(t *testing.T) {
	r := newRig(t)
	for path, body := range map[string]string{
		"/v1/tasks:retry": `{"filter":{"state":"running"},"dry_run":true}`, "/v1/tasks:cancel": `{"filter":{"state":"failed"},"dry_run":true}`,
	} {
		if p := r.problem(r.send(request{method: "POST", path: path, token: "admin", body: body}), 422); pointers(p) != "/filter/state" {
			t.Errorf("%s: %+v", path, p)
		}
	}
	r.problem(r.send(retryMany(`{"filter":{},"dry_run":true}`, "")), 400)
	r.many = someEnded(maxMany+1, "shop")
	if p := r.problem(r.send(retryMany(`{"filter":{"kind":"command.run"},"dry_run":true}`, "")), 422); pointers(p) != "/filter" {
		t.Errorf("too many: %+v", p)
	}
}

func TestManyAreCanceledEachByItself(t *testing.T) {
	r := newRig(t)
	r.many = someEnded(3, "shop")
	send := func() api.ManyResult {
		body := `{"filter":{"namespace":"shop"},"expected_count":3,"note":"all"}`
		return decode[api.ManyResult](t, r.send(request{method: "POST", path: "/v1/tasks:cancel", token: "operator", body: body}))
	}
	if got := send(); len(got.Items) != 3 || got.Items[2].Result != api.ManyCanceling || r.canceled[2] != r.many[2].ID+" by operator: all" {
		t.Errorf("got %+v, canceled %v", got, r.canceled)
	}
	for state, want := range map[task.State]api.ManyItemResult{task.Canceled: api.ManyCanceled, task.Succeeded: api.ManyEnded} {
		r.cancelErr = &EndedError{ID: endedID, State: state}
		if got := send(); got.Items[0].Result != want {
			t.Errorf("%s: got %+v", state, got.Items[0])
		}
	}
}
