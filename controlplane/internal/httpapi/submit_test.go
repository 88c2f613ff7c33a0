package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func submit(body string, headers ...string) request {
	return request{method: "POST", path: "/v1/tasks", token: "admin", body: body, headers: headers}
}

// with puts a field into the good submit.
func with(field string) string { return strings.Replace(good, `{"kind"`, `{`+field+`,"kind"`, 1) }

func TestBadSubmitsAreRefusedByField(t *testing.T) {
	labels := make([]string, 2000)
	for i := range labels {
		labels[i] = fmt.Sprintf(`"l%d":"x"`, i)
	}
	stdin := func(n int) string {
		return strings.Replace(good, `"command":["true"]`, `"command":["cat"],"stdin":"`+strings.Repeat("x", n)+`"`, 1)
	}
	for _, tc := range []struct {
		name, body string
		status     int
		pointers   string
	}{
		{"no body", ``, 400, ""},
		{"not JSON", `{`, 400, ""},
		{"a list", `[]`, 400, ""},
		{"null", `null`, 400, ""},
		{"nothing in it", `{}`, 400, "/kind /namespace"},
		{"unknown field", with(`"shell":"x"`), 400, "/shell"},
		{"wrong case", strings.Replace(good, `"kind"`, `"KIND"`, 1), 400, "/KIND /kind"},
		{"key twice", with(`"kind":"x"`), 400, "/kind"},
		{"trailing data", good + `{}`, 400, ""},
		{"number for text", with(`"name":1`), 400, "/name"},
		{"null for text", with(`"name":null`), 400, "/name"},
		{"unknown class", with(`"class":"urgent"`), 400, "/class"},
		{"NUL in params", strings.Replace(good, `"true"`, `"a\u0000"`, 1), 400, "/params/command/0"},
		{"lone surrogate", with(`"labels":{"a":"\ud800"}`), 400, "/labels/a"},
		{"name of 5000 emoji", with(`"name":"` + strings.Repeat("🚢", 5000) + `"`), 400, "/name"},
		{"2000 labels", with(`"labels":{` + strings.Join(labels, ",") + `}`), 400, "/labels"},
		{"no namespace name", strings.Replace(good, `"shop"`, `"Shop/x"`, 1), 400, "/namespace"},
		{"bad instant", with(`"run_at":"tomorrow"`), 400, "/run_at"},
		{"unknown field of the spec", with(`"spec":{"imag":"x"}`), 400, "/spec/imag"},
		{"no attempts", with(`"spec":{"retry":{"attempts":0}}`), 400, "/spec/retry/attempts"},
		{"half an attempt", with(`"spec":{"retry":{"attempts":1.5}}`), 400, "/spec/retry/attempts"},
		{"no quantity", with(`"spec":{"requests":{"cpu":"lots"}}`), 400, "/spec/requests/cpu"},
		{"long key", with(`"idempotency_key":"` + strings.Repeat("k", 256) + `"`), 400, "/idempotency_key"},
		{"params of 300 KiB", stdin(300 << 10), 422, "/params"},
		{"params of 1.6 MiB", stdin(1600 << 10), 413, ""},
		{"params of 4 MiB", stdin(4 << 20), 413, ""},
		{"unknown kind", strings.Replace(good, "command.run", "nothing.run", 1), 422, "/kind"},
		{"params against the schema", strings.Replace(good, `["true"]`, `"true"`, 1), 422, "/params/command"},
		{"lane of another namespace", with(`"lane":"volume:bank/data"`), 422, "/lane"},
		{"run_if without after", with(`"run_if":"all_finished"`), 422, "/run_if"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			p := r.problem(r.send(submit(tc.body)), tc.status)
			if got := pointers(p); got != tc.pointers {
				t.Errorf("pointers %q, want %q (%+v)", got, tc.pointers, p)
			}
			if len(r.submitted) > 0 {
				t.Error("it was stored")
			}
		})
	}
}

func TestBodiesThatAreNotPlainJSONAre415(t *testing.T) {
	for _, headers := range [][]string{
		{"Content-Type", "text/plain"},
		{"Content-Type", ""},
		{"Content-Type", "application/json; charset=latin1"},
		{"Content-Encoding", "gzip"},
		{"Content-Type", "application/x-www-form-urlencoded"},
	} {
		r := newRig(t)
		r.problem(r.send(submit(good, headers...)), 415)
	}
	r := newRig(t)
	if w := r.send(submit(good, "Content-Type", "Application/JSON; charset=UTF-8")); w.Code != 201 {
		t.Errorf("another spelling: %d %s", w.Code, w.Body)
	}
}

func TestASubmitIsStoredAsAskedAndAnswered(t *testing.T) {
	r := newRig(t)
	w := r.send(submit(`{"kind":"command.run","namespace":"shop","name":"\\u0000 🚢","params":{"command":["echo","\\u0000"],"env":{"N":"1"}},
		"labels":{"team":"blue"},"lane":"volume:shop/data","on_conflict":"reject","class":"high","queue":"branch","delay":1.5,
		"after":["`+absentID+`"],"run_if":"all_finished","spec":{"idempotent":true,"run_deadline":9}}`, "Idempotency-Key", "k-1"))
	if w.Code != 201 || w.Header().Get("Location") != "/v1/tasks/"+taskID {
		t.Fatalf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	got := decode[api.Task](t, w)
	if got.ID != taskID || got.Name != `\u0000 🚢` || got.Phase != api.PhaseWaiting || got.CreatedBy != "admin" ||
		got.Mode != api.ModeStrict || *got.Spec.Retry.Attempts != 4 || *got.Spec.RunDeadline != 9 ||
		string(got.Params) != `{"command":["echo","\\u0000"],"env":{"N":"1"}}` {
		t.Errorf("answered %s", w.Body)
	}
	s := r.submitted[0]
	item := s.Items[0]
	if s.Caller != "admin" || s.Key != "k-1" || len(s.Hash) != 32 || item.OnConflict != task.ConflictReject ||
		item.Delay != 1500*time.Millisecond || item.After[0] != absentID || item.RunIf != "all_finished" ||
		item.Task.Class != task.High || item.Task.Queue != "branch" || item.Task.Labels["team"] != "blue" {
		t.Errorf("stored %+v", s)
	}
}

func TestARepeatSaysThatItIsOne(t *testing.T) {
	r := newRig(t)
	r.result = api.ResultRepeated
	w := r.send(submit(good, "Idempotency-Key", "k"))
	if w.Code != 200 || w.Header().Get("Idempotent-Replayed") != "true" || w.Header().Get("Slipway-Coalesced") != "" ||
		decode[api.Task](t, w).State != api.StateRunning {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	r.result = api.ResultCoalesced
	w = r.send(submit(good))
	if w.Code != 200 || w.Header().Get("Slipway-Coalesced") != "true" || w.Header().Get("Idempotent-Replayed") != "" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
}

func TestARepeatWorksAfterItsKindIsGone(t *testing.T) {
	r := newRig(t)
	gone := strings.Replace(good, "command.run", "gone.run", 1)
	r.problem(r.send(submit(gone, "Idempotency-Key", "k")), 422)
	r.done = []Accepted{{Task: r.task, Result: api.ResultRepeated}}
	if w := r.send(submit(gone, "Idempotency-Key", "k")); w.Code != 200 || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	r.problem(r.send(submit(gone)), 422)
}

func TestTheSameRequestHasTheSameFingerprintHoweverItIsWritten(t *testing.T) {
	r := newRig(t)
	for _, q := range []request{
		submit(good, "Idempotency-Key", "k"),
		submit(` { "params" : { "command" : [ "\u0074rue" ] }, "namespace" : "shop", "kind" : "command.run" }`, "Idempotency-Key", "k"),
		submit(with(`"idempotency_key":"k"`)),
		{method: "POST", path: "/v1/tasks:batch", token: "admin", body: `{"tasks":[` + with(`"idempotency_key":"k"`) + `]}`},
	} {
		if w := r.send(q); w.Code != 201 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
	}
	first := r.submitted[0].Hash
	for i, s := range r.submitted[1:] {
		hash := s.Hash
		if s.Key == "" {
			hash = s.Items[0].Hash
		}
		if !bytes.Equal(first, hash) {
			t.Errorf("request %d differs", i+1)
		}
	}
	r.send(submit(with(`"name":"x"`), "Idempotency-Key", "k"))
	if bytes.Equal(first, r.submitted[4].Hash) {
		t.Error("another body has the same fingerprint")
	}
}

func TestIdempotencyKeysAreHeldToTheirForm(t *testing.T) {
	for _, key := range []string{strings.Repeat("k", 256), strings.Repeat("k", 10_000), "a b", "schlüssel", "\t"} {
		r := newRig(t)
		p := r.problem(r.send(submit(good, "Idempotency-Key", key)), 400)
		if pointers(p) != "Idempotency-Key" {
			t.Errorf("key of %d bytes: %+v", len(key), p)
		}
	}
	r := newRig(t)
	r.problem(r.send(submit(with(`"idempotency_key":"a"`), "Idempotency-Key", "b")), 400)
	twice := httptest.NewRequest(http.MethodPost, "/v1/tasks", strings.NewReader(good))
	twice.Header = http.Header{"Authorization": {"Bearer admin"}, "Content-Type": {"application/json"}, "Idempotency-Key": {"a", "b"}}
	w := httptest.NewRecorder()
	r.server.Handler.ServeHTTP(w, twice)
	r.problem(w, 400)
}

func batch(items ...string) request {
	return request{method: "POST", path: "/v1/tasks:batch", token: "admin", body: `{"tasks":[` + strings.Join(items, ",") + `]}`}
}

func TestABatchNamesItsItems(t *testing.T) {
	r := newRig(t)
	p := r.problem(r.send(batch(good, with(`"name":1`), good)), 400)
	if pointers(p) != "/tasks/1/name" {
		t.Errorf("schema: %+v", p)
	}
	p = r.problem(r.send(batch(good, with(`"lane":"volume:bank/x"`), strings.Replace(good, `["true"]`, `[]`, 1))), 422)
	if pointers(p) != "/tasks/1/lane /tasks/2/params/command" {
		t.Errorf("rules: %+v", p)
	}
	p = r.problem(r.send(batch(with(`"idempotency_key":"a"`), good, with(`"idempotency_key":"a"`))), 422)
	if pointers(p) != "/tasks/2/idempotency_key" || !strings.Contains(p.Errors[0].Reason, "item 0") {
		t.Errorf("one key for two: %+v", p)
	}
	q := batch(with(`"idempotency_key":"a"`))
	q.headers = []string{"Idempotency-Key", "b"}
	if p = r.problem(r.send(q), 400); pointers(p) != "/tasks/0/idempotency_key" {
		t.Errorf("header and item: %+v", p)
	}
	r.problem(r.send(batch()), 400)
	if len(r.submitted) > 0 {
		t.Error("something was stored")
	}
	r.fail = &ConflictError{Conflicts: []Conflict{{Item: 1, Task: taskID, Reason: ConflictBody}}}
	p = r.problem(r.send(batch(good, good)), 409)
	if pointers(p) != "/tasks/1/idempotency_key" || p.Errors[0].Task != taskID || p.Type != "urn:slipway:problem:idempotency_body" {
		t.Errorf("conflict: %+v", p)
	}
}

func TestABatchIsAnsweredPerItem(t *testing.T) {
	r := newRig(t)
	w := r.send(batch(good, good))
	if got := decode[api.BatchResult](t, w); w.Code != 201 || len(got.Items) != 2 || got.Items[0].Result != api.ResultCreated {
		t.Errorf("created: %d %s", w.Code, w.Body)
	}
	r.result = api.ResultRepeated
	if w = r.send(batch(good)); w.Code != 200 || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("repeated: %d %v", w.Code, w.Header())
	}
	r.result = api.ResultCoalesced
	if w = r.send(batch(good)); w.Code != 200 || w.Header().Get("Idempotent-Replayed") != "" {
		t.Errorf("coalesced: %d %v", w.Code, w.Header())
	}
}

func TestErrorsOfALargeBatchAreBoundedAndEchoNothing(t *testing.T) {
	r := newRig(t)
	items := make([]string, 1000)
	for i := range items {
		items[i] = `{"kind":"command.run","namespace":"shop","params":"hunter2","class":"hunter2","secret-hunter3":"hunter2"}`
	}
	w := r.send(batch(items...))
	p := r.problem(w, 400)
	if len(p.Errors) != maxFields || w.Body.Len() > 8<<10 || strings.Contains(w.Body.String(), "hunter2") {
		t.Errorf("%d errors in %d bytes: %.300s", len(p.Errors), w.Body.Len(), w.Body)
	}
}

func TestAThousandItemsPass(t *testing.T) {
	r := newRig(t)
	items := make([]string, 1000)
	for i := range items {
		items[i] = strings.Replace(good, `"true"`, `"`+strings.Repeat("x", 2000)+`"`, 1)
	}
	if w := r.send(batch(items...)); w.Code != 201 || len(r.submitted[0].Items) != 1000 {
		t.Errorf("got %d %.300s", w.Code, w.Body)
	}
	r.problem(r.send(batch(slices.Concat(items, []string{good})...)), 400)
}

func TestParamsOf130KiBArriveWhole(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("é", 65<<10)
	if w := r.send(submit(strings.Replace(good, `"true"`, `"`+long+`"`, 1))); w.Code != 201 {
		t.Fatalf("got %d %.300s", w.Code, w.Body)
	}
	if got := string(r.submitted[0].Items[0].Task.Params); got != `{"command":["`+long+`"]}` {
		t.Errorf("%d bytes arrived", len(got))
	}
}

func TestListsTakeOnlyWhatTheDocumentNames(t *testing.T) {
	for query, pointer := range map[string]string{
		"sort=name": "?sort", "limit=0": "?limit", "limit=-1": "?limit", "limit=1000000000": "?limit", "limit=x": "?limit",
		"limit=1&limit=2": "?limit", "state=Running": "?state", "kind=a%20b": "?kind", "namespace=%27%3B--": "?namespace",
		"cursor=%27": "?cursor", "created_after=yesterday": "?created_after", "label=a": "?label/0", "offset=5": "?offset",
		"lane=x": "?lane",
	} {
		r := newRig(t)
		p := r.problem(r.send(request{method: "GET", path: "/v1/tasks?" + query, token: "admin"}), 400)
		if pointers(p) != pointer {
			t.Errorf("%s: %+v", query, p)
		}
	}
	r := newRig(t)
	for _, id := range []string{"1", "%27%20OR%201=1", strings.ToUpper(taskID), taskID + "x"} {
		r.problem(r.send(request{method: "GET", path: "/v1/tasks/" + id, token: "admin"}), 400)
	}
	w := r.send(request{method: "GET", token: "admin", path: "/v1/tasks?namespace=shop&state=running&kind=command.run&queue=default" +
		"&lane=volume:shop/a&label=a=b&label=c=&created_after=2030-01-02T03:04:05Z&limit=7&cursor=abc"})
	if got := decode[api.TaskPage](t, w); w.Code != 200 || len(got.Items) != 1 || got.Next != "more" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	f := r.filters[0]
	if f.Namespace != "shop" || f.State != task.Running || f.Kind != "command.run" || f.Queue != "default" || f.Lane != "volume:shop/a" ||
		f.Labels["a"] != "b" || f.Labels["c"] != "" || len(f.Labels) != 2 || f.CreatedAfter.Year() != 2030 || f.Limit != 7 || f.Cursor != "abc" {
		t.Errorf("filter %+v", f)
	}
}

func TestCancelSaysWhetherItIsDone(t *testing.T) {
	r := newRig(t)
	q := request{method: "POST", path: "/v1/tasks/" + taskID + "/cancel", token: "admin", body: `{"note":"wrong volume"}`}
	if w := r.send(q); w.Code != 202 {
		t.Errorf("running: %d %s", w.Code, w.Body)
	}
	if r.canceled[0] != taskID+" by admin: wrong volume" {
		t.Errorf("asked %v", r.canceled)
	}
	r.task.State = task.Canceled
	if w := r.send(q); w.Code != 200 {
		t.Errorf("canceled: %d %s", w.Code, w.Body)
	}
	r.cancelErr = &EndedError{ID: taskID, State: task.Canceled}
	if w := r.send(q); w.Code != 200 {
		t.Errorf("canceled before: %d %s", w.Code, w.Body)
	}
	r.cancelErr = &EndedError{ID: taskID, State: task.Failed}
	if p := r.problem(r.send(q), 409); p.Task != taskID || p.State != "failed" {
		t.Errorf("ended before: %+v", p)
	}
	q.body = `{"nota":"x"}`
	r.problem(r.send(q), 400)
}

func TestWhatTheStoreRefusesIsPlacedInTheRequest(t *testing.T) {
	r := newRig(t)
	r.fail = &RefusedError{Items: []ItemError{{Item: 1, Pointer: "/queue", Reason: "no such queue"}}}
	if p := r.problem(r.send(batch(good, good)), 422); pointers(p) != "/tasks/1/queue" {
		t.Errorf("batch: %+v", p)
	}
	r.fail = &RefusedError{Items: []ItemError{{Item: 0, Pointer: "/queue", Reason: "no such queue"}}}
	if p := r.problem(r.send(submit(good)), 422); pointers(p) != "/queue" {
		t.Errorf("single: %+v", p)
	}
	r.fail = &ConflictError{Conflicts: []Conflict{{Item: 0, Task: taskID, State: "running", Reason: ConflictLaneBusy}}}
	if p := r.problem(r.send(submit(good)), 409); pointers(p) != "/lane" || p.Task != taskID || p.State != "running" {
		t.Errorf("busy lane: %+v", p)
	}
	r.fail = &ConflictError{Conflicts: []Conflict{{Item: 0, Task: taskID, Reason: ConflictBody}}}
	if p := r.problem(r.send(submit(good, "Idempotency-Key", "k")), 409); pointers(p) != "" || p.Task != taskID {
		t.Errorf("key in the header: %+v", p)
	}
	r.fail = ErrBadPosition
	r.problem(r.send(request{method: "GET", path: "/v1/tasks?cursor=abc", token: "admin"}), 400)
}
