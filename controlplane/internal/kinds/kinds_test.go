package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func command(t *testing.T) Kind {
	t.Helper()
	k, ok := BuiltIn().Get("command.run")
	if !ok {
		t.Fatal("command.run is not built in")
	}
	return k
}

func volume(t *testing.T) Kind {
	t.Helper()
	k := Kind{Kind: task.Kind{
		Name: "volume.resize", Executor: task.ExecutorJob, Queue: "volume", Mode: task.Strict, OnConflict: task.ConflictReject,
		Lane: "volume:{namespace}/{params.pvc}", Spec: defaults(),
	}}
	k.Spec.Idempotent = true
	r, err := New(k)
	if err != nil {
		t.Fatal(err)
	}
	k, _ = r.Get("volume.resize")
	return k
}

func run(req Request) Request {
	if req.Namespace == "" {
		req.Namespace = "shop"
	}
	if req.Params == nil {
		req.Params = json.RawMessage(`{ "command": ["true"] }`)
	}
	return req
}

func TestASubmitThatSaysNothingGetsTheDefaults(t *testing.T) {
	b, err := Build(command(t), run(Request{}))
	if err != nil {
		t.Fatal(err)
	}
	spec := task.DefaultSpec()
	spec.Retry.Attempts = 1
	want := Built{
		Task: task.Task{
			Kind: "command.run", Namespace: "shop", Mode: task.Parallel, Queue: "default", Class: task.Normal,
			Executor: task.ExecutorJob, Params: json.RawMessage(`{"command":["true"]}`), Spec: spec,
		},
		OnConflict: task.ConflictQueue, Supersedes: []string{"command.run"}, Free: true,
	}
	if diff := cmp.Diff(want, b); diff != "" {
		t.Errorf("built (-want +got):\n%s", diff)
	}
}

func TestWishesAreLaidOverTheKind(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	k := command(t)
	k.Spec.Requests = map[string]string{"cpu": "1"}
	b, err := Build(k, run(Request{
		Name: "nightly", Lane: "volume:shop/data", Mode: task.Latest, OnConflict: task.ConflictReplace, Queue: "branch",
		Class: "critical", RunAt: at, Labels: map[string]string{"team": "blue", "example.com/app": ""},
		Spec: json.RawMessage(`{"idempotent":true,"run_deadline":1.5,"retry":{"backoff":0.5},"requests":{"memory":"64Mi"}}`),
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := task.DefaultSpec()
	want.Idempotent, want.RunDeadline, want.Retry.Backoff = true, 1.5, 0.5
	want.Requests = map[string]string{"cpu": "1", "memory": "64Mi"}
	if diff := cmp.Diff(want, b.Task.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if b.Task.Class != task.Critical || b.Task.Queue != "branch" || b.Task.Lane != "volume:shop/data" ||
		b.Task.Mode != task.Latest || b.OnConflict != task.ConflictReplace || !b.RunAt.Equal(at) {
		t.Errorf("built %+v", b)
	}
	if len(k.Spec.Requests) != 1 {
		t.Errorf("the kind itself was changed: %v", k.Spec.Requests)
	}
}

func TestAttemptsFollowFromIdempotence(t *testing.T) {
	for spec, want := range map[string]int{
		``:                         1,
		`{"idempotent":true}`:      4,
		`{"retry":{"attempts":3}}`: 3,
		`{"idempotent":true,"retry":{"attempts":1}}`: 1,
	} {
		b, err := Build(command(t), run(Request{Spec: json.RawMessage(spec)}))
		if err != nil || b.Task.Spec.Retry.Attempts != want {
			t.Errorf("spec %s: %d attempts (%v), want %d", spec, b.Task.Spec.Retry.Attempts, err, want)
		}
	}
}

func TestALaneAloneMeansStrictOrder(t *testing.T) {
	b, err := Build(command(t), run(Request{Lane: "branch:shop/main"}))
	if err != nil || b.Task.Mode != task.Strict {
		t.Errorf("mode %q, %v", b.Task.Mode, err)
	}
}

func TestAKindsTemplateGivesTheLane(t *testing.T) {
	b, err := Build(volume(t), Request{Namespace: "shop", Params: json.RawMessage(`{"pvc":"data-0"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if b.Task.Lane != "volume:shop/data-0" || b.Task.Mode != task.Strict || b.OnConflict != task.ConflictReject || b.Free {
		t.Errorf("built %+v", b)
	}
}

func TestAPartitionPutsEachValueIntoOneOfItsLanes(t *testing.T) {
	k := volume(t)
	k.Lane = "volume:{namespace}/{partition params.pvc 8}"
	lanes := map[string]bool{}
	for n := range 200 {
		req := Request{Namespace: "shop", Params: json.RawMessage(fmt.Sprintf(`{"pvc":"data-%d"}`, n))}
		b, err := Build(k, req)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Build(k, req); err != nil || again.Task.Lane != b.Task.Lane {
			t.Fatalf("%q is in lane %q and in lane %q, %v", req.Params, b.Task.Lane, again.Task.Lane, err)
		}
		if !regexp.MustCompile(`^volume:shop/[0-7]-of-8$`).MatchString(b.Task.Lane) {
			t.Fatalf("lane %q", b.Task.Lane)
		}
		lanes[b.Task.Lane] = true
	}
	if len(lanes) != 8 {
		t.Errorf("200 values fall into %d lanes of 8", len(lanes))
	}
}

func TestRefusalsNameTheField(t *testing.T) {
	many := map[string]string{}
	for i := range 2000 {
		many[fmt.Sprintf("l%d", i)] = "x"
	}
	cmd := func(extra string) json.RawMessage { return json.RawMessage(`{"command":["true"]` + extra + `}`) }
	for _, tc := range []struct {
		name string
		kind Kind
		req  Request
		want []string
	}{
		{"no command", command(t), Request{Params: json.RawMessage(`{}`)}, []string{"/params/command"}},
		{"empty command", command(t), Request{Params: json.RawMessage(`{"command":[]}`)}, []string{"/params/command"}},
		{"empty program", command(t), Request{Params: json.RawMessage(`{"command":[""]}`)}, []string{"/params/command/0"}},
		{"command is text", command(t), Request{Params: json.RawMessage(`{"command":"true"}`)}, []string{"/params/command"}},
		{"word is a number", command(t), Request{Params: json.RawMessage(`{"command":["a",1]}`)}, []string{"/params/command/1"}},
		{"unknown field", command(t), Request{Params: cmd(`,"shell":true`)}, []string{"/params/shell"}},
		{"env of numbers", command(t), Request{Params: cmd(`,"env":{"A":1}`)}, []string{"/params/env/A"}},
		{"env name", command(t), Request{Params: cmd(`,"env":{"A=B":"1"}`)}, []string{"/params/env/A=B"}},
		{"reserved env", command(t), Request{Params: cmd(`,"env":{"SLIPWAY_URL":"x"}`)}, []string{"/params/env/SLIPWAY_URL"}},
		{"relative dir", command(t), Request{Params: cmd(`,"dir":"tmp"`)}, []string{"/params/dir"}},
		{"two at once", command(t), Request{Params: json.RawMessage(`{"command":1,"dir":2}`)}, []string{"/params/command", "/params/dir"}},
		{"large params", command(t), Request{Params: cmd(`,"stdin":"` + strings.Repeat("x", MaxParams) + `"`)}, []string{"/params"}},
		{"emoji name", command(t), Request{Name: strings.Repeat("🚢", 5000)}, []string{"/name"}},
		{"name with a bell", command(t), Request{Name: "a\ab"}, []string{"/name"}},
		{"2000 labels", command(t), Request{Labels: many}, []string{"/labels"}},
		{"label key", command(t), Request{Labels: map[string]string{"a b": ""}}, []string{"/labels/a b"}},
		{"label value", command(t), Request{Labels: map[string]string{"a": "b c"}}, []string{"/labels/a"}},
		{"our label", command(t), Request{Labels: map[string]string{"slipway.dev/task": "x"}}, []string{"/labels/slipway.dev~1task"}},
		{"class", command(t), Request{Class: "urgent"}, []string{"/class"}},
		{"lane of another namespace", command(t), Request{Lane: "volume:bank/data"}, []string{"/lane"}},
		{"lane without a family", command(t), Request{Lane: "shop/data"}, []string{"/lane"}},
		{"private lane", command(t), Request{Lane: "task:shop/1"}, []string{"/lane"}},
		{"order without a lane", command(t), Request{Mode: task.Strict}, []string{"/mode"}},
		{"lane without order", command(t), Request{Lane: "volume:shop/data", Mode: task.Parallel}, []string{"/mode"}},
		{"conflict without a lane", command(t), Request{OnConflict: task.ConflictReject}, []string{"/on_conflict"}},
		{"image", command(t), Request{Spec: json.RawMessage(`{"image":"evil"}`)}, []string{"/spec/image"}},
		{"cap below backoff", command(t), Request{Spec: json.RawMessage(`{"retry":{"cap":1}}`)}, []string{"/spec/retry/cap"}},
		{"two starts", command(t), Request{RunAt: time.Unix(1, 0), Delay: 1}, []string{"/delay"}},
		{"template without its field", volume(t), Request{}, []string{"/params"}},
		{"template and another lane", volume(t), Request{Params: json.RawMessage(`{"pvc":"a"}`), Lane: "volume:shop/b"}, []string{"/lane"}},
		{"template that leaves the grammar", volume(t), Request{Params: json.RawMessage(`{"pvc":"../bank"}`)}, []string{"/lane"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Build(tc.kind, run(tc.req))
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %v", err)
			}
			var got []string
			for _, f := range invalid.Fields {
				got = append(got, f.Pointer)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pointers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusalsNeverRepeatAValue(t *testing.T) {
	const marker = "hunter2"
	for _, params := range []string{
		`{"command":"hunter2"}`, `{"command":["a"],"dir":"hunter2"}`, `{"command":["a"],"env":{"A":["hunter2"]}}`,
		`{"command":["a"],"stdin":{"x":"hunter2"}}`, `{"command":[["hunter2"]]}`,
	} {
		_, err := Build(command(t), run(Request{Params: json.RawMessage(params)}))
		var invalid *InvalidError
		if !errors.As(err, &invalid) {
			t.Fatalf("%s: got %v", params, err)
		}
		if text := fmt.Sprint(invalid.Fields); strings.Contains(text, marker) {
			t.Errorf("%s: %s", params, text)
		}
	}
}

func TestParametersOf130KiBPass(t *testing.T) {
	params := json.RawMessage(`{"command":["cat"],"stdin":"` + strings.Repeat("x", 130<<10) + `"}`)
	if _, err := Build(command(t), run(Request{Params: params})); err != nil {
		t.Error(err)
	}
}

func TestABadKindIsNamed(t *testing.T) {
	for name, k := range map[string]task.Kind{
		"long":   {Name: strings.Repeat("a", 41)},
		"space":  {Name: "a b"},
		"schema": {Name: "ok", Params: json.RawMessage(`{"type":"nothing"}`)},
		"remote": {Name: "ok", Params: json.RawMessage(`{"$ref":"https://example.com/x.json"}`)},
	} {
		if _, err := New(Kind{Kind: k}); err == nil || !strings.Contains(err.Error(), k.Name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(commandRun(), commandRun()); err == nil {
		t.Error("a kind was defined twice")
	}
}
