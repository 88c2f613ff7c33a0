package httpapi

import (
	"encoding/json"
	"strings"
	"testing"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

const child = `{"kind":"command.run","namespace":"shop","params":{"command":["true"]}`

func (r *rig) submits(body string, status int) api.Task {
	r.Helper()
	w := r.send(request{method: "POST", path: "/v1/tasks", token: "admin", body: body})
	var t api.Task
	if w.Code != status || json.Unmarshal(w.Body.Bytes(), &t) != nil {
		r.Fatalf("got %d %s, want %d", w.Code, w.Body, status)
	}
	return t
}

func TestChildrenAreStoredWithTheirParentAndNameEachOther(t *testing.T) {
	r := newRig(t)
	r.submits(`{"kind":"group","namespace":"shop","children":[`+
		child+`,"ref":"a","spec":{"weight":3}},`+child+`,"after":["ref:a","`+taskID+`"],"run_if":"all_finished"}]}`, 201)
	item := r.submitted[0].Items[0]
	if len(item.Children) != 2 {
		t.Fatalf("%+v", item)
	}
	a, b := item.Children[0], item.Children[1]
	if a.Task.ID == "" || len(b.After) != 2 || b.After[0] != a.Task.ID || b.After[1] != taskID || b.RunIf != "all_finished" || !a.Free ||
		a.Task.Spec.Weight != 3 || a.Task.CreatedBy != "admin" {
		t.Errorf("a %+v, b %+v", a, b)
	}
}

func TestNamesReachAcrossABatch(t *testing.T) {
	r := newRig(t)
	w := r.send(request{method: "POST", path: "/v1/tasks:batch", token: "admin", body: `{"tasks":[` +
		child + `,"ref":"first"},{"kind":"group","namespace":"shop","after":["ref:inner"],"children":[` + child + `,"after":["ref:first"]}]},` +
		`{"kind":"group","namespace":"shop","children":[` + child + `,"ref":"inner"}]}]}`})
	if w.Code != 201 {
		t.Fatal(w.Body)
	}
	items := r.submitted[0].Items
	if items[1].Children[0].After[0] != items[0].Task.ID || items[1].After[0] != items[2].Children[0].Task.ID {
		t.Errorf("%+v", items)
	}
}

func TestEachFaultOfATreeIsNamedAtItsPlace(t *testing.T) {
	group := func(children ...string) string {
		return `{"kind":"group","namespace":"shop","children":[` + strings.Join(children, ",") + `]}`
	}
	bad := `{"kind":"command.run","namespace":"shop","params":{"command":[]}}`
	for name, tc := range map[string]struct {
		body     string
		status   int
		pointers string
	}{
		"a child's parameters": {group(child+"}", child+"}", child+"}", bad), 422, "/children/3/params/command"},
		"two faults":           {group(bad, `{"kind":"what","namespace":"shop"}`), 422, "/children/0/params/command /children/1/kind"},
		"an unknown name":      {group(child + `,"after":["ref:x"]}`), 422, "/children/0/after/0"},
		"a name twice":         {group(child+`,"ref":"a"}`, child+`,"ref":"a"}`), 422, "/children/1/ref"},
		"grandchildren":        {group(strings.TrimSuffix(group(child+"}"), "}") + "}"), 422, "/children/0/children /children/0/kind"},
		"a child's key":        {group(child + `,"idempotency_key":"k"}`), 422, "/children/0/idempotency_key"},
		"no children":          {`{"kind":"group","namespace":"shop"}`, 422, "/children"},
		"run_if alone":         {group(child + `,"run_if":"all_finished"}`), 422, "/children/0/run_if"},
		"too many":             {group(strings.Split(strings.Repeat(child+"}|", 101), "|")[:101]...), 400, "/children"},
		"no id, no name":       {group(child + `,"after":["x"]}`), 400, "/children/0/after/0"},
		"no field":             {group(child + `,"frob":1}`), 400, "/children/0/frob"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			p := r.problem(r.send(request{method: "POST", path: "/v1/tasks", token: "admin", body: tc.body}), tc.status)
			if pointers(p) != tc.pointers || len(r.submitted) > 0 {
				t.Errorf("%s, %d stored", pointers(p), len(r.submitted))
			}
		})
	}
	r := newRig(t)
	r.refuse = []error{&RefusedError{Items: []ItemError{{Item: 1, Pointer: "/children/0/lane", Reason: "does not rank below"}}}}
	p := r.problem(r.send(request{method: "POST", path: "/v1/tasks:batch", token: "admin", body: `{"tasks":[` + good + `,` + group(child+"}") + `]}`}), 422)
	if pointers(p) != "/tasks/1/children/0/lane" {
		t.Errorf("a rule of the store: %s", pointers(p))
	}
}

func TestRightsAreAskedForEveryChild(t *testing.T) {
	group := func(namespace, kind string) string {
		return `{"kind":"group","namespace":"shop","children":[{"kind":"` + kind + `","namespace":"` + namespace + `","params":{"command":["true"]}}]}`
	}
	for name, tc := range map[string]struct {
		body   string
		rights []string
		detail string
	}{
		"namespace": {group("bank", "command.run"), nil, "create tasks.slipway.dev in namespace bank"},
		"kind":      {group("shop", "container.run"), nil, "use kinds.slipway.dev container.run in namespace shop"},
		"program":   {group("shop", "command.run"), nil, "create jobs.batch in namespace shop"},
		"all":       {group("shop", "command.run"), []string{"create jobs.batch in namespace shop"}, ""},
	} {
		r := newRig(t)
		r.rights["operator"] = append(append(r.rights["operator"], "use kinds.slipway.dev group in namespace shop"), tc.rights...)
		w := r.send(request{method: "POST", path: "/v1/tasks", token: "operator", body: tc.body})
		if tc.detail == "" {
			if w.Code != 201 {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			continue
		}
		if p := r.problem(w, 403); !strings.Contains(p.Detail, tc.detail) || len(r.submitted) > 0 {
			t.Errorf("%s: %s", name, p.Detail)
		}
	}
}

func TestATaskToRunAfterThatIsNotTheCallersLooksAbsent(t *testing.T) {
	r := newRig(t)
	r.rights["operator of bank"] = append(r.rights["operator of bank"], "use kinds.slipway.dev command.run in namespace bank")
	body := `{"kind":"command.run","namespace":"bank","params":{"command":["true"]},"after":["` + taskID + `"]}`
	p := r.problem(r.send(request{method: "POST", path: "/v1/tasks", token: "operator of bank", body: body}), 422)
	if pointers(p) != "/after/0" || p.Errors[0].Reason != "no task "+taskID {
		t.Errorf("%+v", p)
	}
}

func TestABatchCountsItsChildren(t *testing.T) {
	r := newRig(t)
	one := `{"kind":"group","namespace":"shop","children":[` + strings.TrimSuffix(strings.Repeat(child+"},", 100), ",") + `]}`
	p := r.problem(r.send(request{method: "POST", path: "/v1/tasks:batch", token: "admin", body: `{"tasks":[` + strings.TrimSuffix(strings.Repeat(one+",", 10), ",") + `]}`}), 422)
	if pointers(p) != "/tasks" || !strings.Contains(p.Errors[0].Reason, "1010") {
		t.Errorf("%+v", p)
	}
}

func TestADryRunAsksForThePodsOfTheChildren(t *testing.T) {
	r := newRig(t)
	r.takes = func(t task.Task) error {
		if t.Spec.Limits["memory"] == "1Ti" {
			return &task.Refusal{Cause: task.RefusedInvalid, Message: "too much"}
		}
		return nil
	}
	w := r.send(request{method: "POST", path: "/v1/tasks?dry_run=true", token: "admin", body: `{"kind":"group","namespace":"shop","children":[` +
		child + `},` + child + `,"spec":{"limits":{"memory":"1Ti"}}}]}`})
	if p := r.problem(w, 422); pointers(p) != "/children/1/spec" || len(r.tried) != 2 {
		t.Errorf("%s, %d tried", pointers(p), len(r.tried))
	}
}

// planner makes one child for each volume that its parent names, and one after them.
type planner struct{}

func (planner) Plan(parent kinds.Request) ([]kinds.Child, error) {
	var p struct{ Volumes []string }
	if err := json.Unmarshal(parent.Params, &p); err != nil {
		return nil, err
	}
	var all []kinds.Child
	var refs []string
	for _, v := range p.Volumes {
		if v == "bad" {
			return nil, &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: "/params/volumes", Reason: "names no volume"}}}
		}
		refs = append(refs, v)
		all = append(all, kinds.Child{Kind: "command.run", Ref: v, Request: kinds.Request{
			Namespace: parent.Namespace, Lane: "volume:" + parent.Namespace + "/" + v, Params: json.RawMessage(`{"command":["grow","` + v + `"]}`),
		}})
	}
	if len(refs) == 0 {
		return nil, nil
	}
	return append(all, kinds.Child{Kind: "command.run", After: refs, RunIf: "all_finished", Request: kinds.Request{
		Namespace: parent.Namespace, Params: json.RawMessage(`{"command":["look"]}`),
	}}), nil
}

func planning(t *testing.T) *rig {
	r := newRig(t)
	k := kinds.Kind{Kind: task.Kind{Name: "all.resize", Executor: task.ExecutorJob, Queue: "default", Mode: task.Parallel, Spec: task.DefaultSpec()}, Planner: planner{}}
	all, err := kinds.WithBuiltIn(k)
	if err != nil {
		t.Fatal(err)
	}
	r.kinds = all
	r.paced(Pace{})
	return r
}

func TestAKindMayPlanItsChildren(t *testing.T) {
	r := planning(t)
	r.submits(`{"kind":"all.resize","namespace":"shop","params":{"volumes":["a","b"]}}`, 201)
	item := r.submitted[0].Items[0]
	if len(item.Children) != 3 || item.Children[1].Task.Lane != "volume:shop/b" || len(item.Children[2].After) != 2 ||
		item.Children[2].After[1] != item.Children[1].Task.ID || item.Children[2].RunIf != "all_finished" {
		t.Fatalf("%+v", item)
	}
	for body, at := range map[string]string{
		`{"kind":"all.resize","namespace":"shop","params":{"volumes":["bad"]}}`:                           "/params/volumes",
		`{"kind":"all.resize","namespace":"shop","params":{"volumes":[]}}`:                                "/params",
		`{"kind":"all.resize","namespace":"shop","params":{"volumes":["a"]},"children":[` + child + `}]}`: "/children",
		`{"kind":"group","namespace":"shop","children":[{"kind":"all.resize","namespace":"shop"}]}`:       "/children/0/kind",
	} {
		if p := r.problem(r.send(request{method: "POST", path: "/v1/tasks", token: "admin", body: body}), 422); pointers(p) != at {
			t.Errorf("%s: %s", body, pointers(p))
		}
	}
	r.rights["operator"] = append(r.rights["operator"], "use kinds.slipway.dev all.resize in namespace shop")
	p := r.problem(r.send(request{method: "POST", path: "/v1/tasks", token: "operator", body: `{"kind":"all.resize","namespace":"shop","params":{"volumes":["a"]}}`}), 403)
	if !strings.Contains(p.Detail, "jobs.batch") {
		t.Errorf("planned children need no rights: %s", p.Detail)
	}
}

// family makes the ended Task of the rig a parent.
func (r *rig) family() {
	one := func(id string, s task.State, namespace string, after ...string) Listed {
		t := r.task
		t.ID, t.State, t.Parent, t.Namespace = id, s, endedID, namespace
		return Listed{Task: t, View: View{After: after, RunIf: "all_succeeded"}}
	}
	r.children = []Listed{
		one("c-1", task.Succeeded, "shop"), one("c-2", task.Failed, "shop", "c-1"), one("c-3", task.Canceled, "shop", "c-1", "c-2"), one("c-4", task.Succeeded, "bank"),
	}
}

func TestARetryOfAParentRepeatsWhatDidNotSucceed(t *testing.T) {
	for query, want := range map[string]string{"": "c-2<- c-3<-c-2", "?all=true": "c-1<- c-2<-c-1 c-3<-c-1,c-2 c-4<-"} {
		r := newRig(t)
		r.family()
		w := r.send(request{method: "POST", path: "/v1/tasks/" + endedID + "/retry" + query, token: "admin"})
		if w.Code != 201 {
			t.Fatal(w.Body)
		}
		item := r.submitted[0].Items[0]
		was, got := map[string]string{}, []string{}
		for _, c := range item.Children {
			was[c.Task.ID] = c.Task.RetryOf
			var after []string
			for _, id := range c.After {
				after = append(after, was[id])
			}
			got = append(got, c.Task.RetryOf+"<-"+strings.Join(after, ","))
		}
		if strings.Join(got, " ") != want || item.Task.RetryOf != endedID {
			t.Errorf("%q: %v", query, got)
		}
	}
	r := newRig(t)
	r.family()
	r.children = r.children[:1]
	if p := r.problem(r.send(request{method: "POST", path: "/v1/tasks/" + endedID + "/retry", token: "admin"}), 422); !strings.Contains(p.Errors[0].Reason, "no child left") {
		t.Errorf("%+v", p)
	}
	r.family()
	r.children[2].Task.Kind = "gone"
	if p := r.problem(r.send(request{method: "POST", path: "/v1/tasks/" + endedID + "/retry", token: "admin"}), 422); pointers(p) != "/children/2/kind" || len(r.submitted) > 0 {
		t.Errorf("%+v", p)
	}
	p := r.problem(r.send(request{method: "POST", path: "/v1/tasks/" + endedID + "/retry?all=true", token: "operator"}), 403)
	if !strings.Contains(p.Detail, "namespace bank") && !strings.Contains(p.Detail, "gone") {
		t.Errorf("rights of a child: %s", p.Detail)
	}
}

func TestAParentShowsItsChildrenAndTheirProgressTogether(t *testing.T) {
	r := newRig(t)
	r.family()
	r.children[1].Task.State, r.children[1].Task.Spec.Weight = task.Running, 2
	r.children[1].View.Progress = json.RawMessage(`{"done":1,"total":4}`)
	w := r.send(request{method: "GET", path: "/v1/tasks/" + endedID, token: "viewer"})
	var got api.Task
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Children == nil {
		t.Fatalf("%v %s", err, w.Body)
	}
	c := got.Children
	if c.Count != 4 || c.Succeeded != 2 || c.Running != 1 || c.Canceled != 1 || len(c.Items) != 3 || c.Items[2].After[1] != "c-2" {
		t.Errorf("%+v", c)
	}
	if p := got.Progress; p == nil || p.Total != 5 || p.Done != 3.5 || p.Message != "succeeded 2 of 4" {
		t.Errorf("%+v", p)
	}
}

func TestAQueuedTaskShowsWhenItMayStart(t *testing.T) {
	r := newRig(t)
	r.task.State = task.Queued
	get := func() api.Task {
		var got api.Task
		w := r.send(request{method: "GET", path: "/v1/tasks/" + taskID, token: "viewer"})
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if e := get().Estimate; e == nil || e.P50 == nil || *e.P50 != 1.5 || *e.P90 != 4 || e.Ahead != 3 || e.Samples != 20 {
		t.Errorf("%+v", e)
	}
	r.unforeseen = errForTest
	if got := get(); got.ID != taskID || got.Estimate != nil {
		t.Errorf("where it cannot be read: %+v", got)
	}
	r.unforeseen, r.task.State = nil, task.Running
	if e := get().Estimate; e != nil {
		t.Errorf("of a running one: %+v", e)
	}
}

func TestAKeyCoversTheWholeTree(t *testing.T) {
	r := newRig(t)
	hash := func(command string) string {
		r.submits(`{"kind":"group","namespace":"shop","idempotency_key":"k","children":[{"kind":"command.run","namespace":"shop","params":{"command":["`+command+`"]}}]}`, 201)
		last := r.submitted[len(r.submitted)-1]
		return string(last.Hash)
	}
	if a, again, b := hash("a"), hash("a"), hash("b"); a == "" || a != again || a == b {
		t.Error("the key does not tell children apart")
	}
}
