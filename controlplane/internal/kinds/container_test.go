package kinds

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/pkg/task"
)

func builtIn(t *testing.T, name string) Kind {
	t.Helper()
	k, ok := BuiltIn().Get(name)
	if !ok {
		t.Fatalf("%s is not built in", name)
	}
	return k
}

func TestAContainerIsWrappedUnlessToldOtherwise(t *testing.T) {
	for params, want := range map[string]task.Pod{
		`{"image":"x:1","command":["a","b"],"args":["c"],"dir":"/w","env":{"A":"1"}}`: {
			Wrap: task.WrapExec, Command: []string{"a", "b"}, Args: []string{"c"}, Dir: "/w", Env: map[string]task.EnvSource{"A": {Value: new("1")}},
		},
		`{"image":"x:1","command":["a"],"wrap":true}`:   {Wrap: task.WrapExec, Command: []string{"a"}},
		`{"image":"x:1","wrap":false}`:                  {Wrap: task.WrapNone},
		`{"image":"x:1","wrap":false,"args":["-once"]}`: {Wrap: task.WrapNone, Args: []string{"-once"}},
	} {
		b, err := Build(builtIn(t, "container.run"), run(Request{Params: json.RawMessage(params)}))
		if err != nil {
			t.Errorf("%s: %v", params, err)
			continue
		}
		if diff := cmp.Diff(want, b.Task.Spec.Pod); diff != "" || b.Task.Spec.Image != "x:1" || !b.Free {
			t.Errorf("%s: image %q, free %v, pod (-want +got):\n%s", params, b.Task.Spec.Image, b.Free, diff)
		}
	}
}

func TestAContainerThatCannotBeRunIsRefusedByField(t *testing.T) {
	for params, field := range map[string]string{
		`{"image":"x:1"}`:                                         "/params/command",
		`{"image":"x:1","wrap":true}`:                             "/params/command",
		`{"command":["a"]}`:                                       "/params/image",
		`{"image":"","command":["a"]}`:                            "/params/image",
		`{"image":"x","command":[]}`:                              "/params/command",
		`{"image":"x","command":["a"],"env":{"SLIPWAY_URL":"x"}}`: "/params/env/SLIPWAY_URL",
		`{"image":"x","command":["a"],"dir":"w"}`:                 "/params/dir",
		`{"image":"x","command":["a"],"wrap":"no"}`:               "/params/wrap",
		`{"image":"x","command":["a"],"entrypoint":"b"}`:          "/params/entrypoint",
	} {
		_, err := Build(builtIn(t, "container.run"), run(Request{Params: json.RawMessage(params)}))
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !slices.ContainsFunc(invalid.Fields, func(f FieldError) bool { return f.Pointer == field }) {
			t.Errorf("%s: got %v, want %s", params, err, field)
		}
	}
}

func TestWishesForThePodNeedTheRightToCreateOne(t *testing.T) {
	free := volume(t)
	free.Spec.Pod.Tolerations = []task.Toleration{{Key: "a", Operator: "Exists"}}
	free.Spec.Pod.Env = map[string]task.EnvSource{"A": {Value: new("kind")}}
	params := json.RawMessage(`{"pvc":"data"}`)
	for spec, want := range map[string]bool{
		``: false, `{"run_deadline":5}`: false, `{"pod":{}}`: false, `{"service_account":"admin"}`: true,
		`{"pod":{"env":{"PASSWORD":{"secretRef":{"name":"db","key":"password"}}}}}`: true,
		`{"pod":{"tolerations":[{"key":"b","operator":"Exists"}]}}`:                 true,
		`{"pod":{"image_pull_secrets":["registry"]}}`:                               true,
		`{"pod":{"labels":{"kueue.x-k8s.io/queue-name":"batch"}}}`:                  true,
		`{"pod":{"annotations":{"sidecar.istio.io/inject":"true"}}}`:                true,
	} {
		b, err := Build(free, run(Request{Params: params, Spec: json.RawMessage(spec)}))
		if err != nil || b.Free != want {
			t.Errorf("%s: free is %v (%v), want %v", spec, b.Free, err, want)
		}
	}
	if free.Spec.Pod.Tolerations[0].Key != "a" || len(free.Spec.Pod.Env) != 1 {
		t.Errorf("the kind itself was changed: %+v", free.Spec.Pod)
	}
}

func TestBadWishesForThePodAreNamed(t *testing.T) {
	for spec, field := range map[string]string{
		`{"env":{"SLIPWAY_URL":{"value":"x"}}}`:                                               "/spec/pod/env/SLIPWAY_URL",
		`{"env":{"a-b":{"value":"x"}}}`:                                                       "/spec/pod/env/a-b",
		`{"env":{"A":{}}}`:                                                                    "/spec/pod/env/A",
		`{"env":{"A":{"value":"x","secretRef":{"name":"a","key":"b"}}}}`:                      "/spec/pod/env/A",
		`{"labels":{"slipway.dev/fence":"0"}}`:                                                "/spec/pod/labels/slipway.dev~1fence",
		`{"labels":{"job-name":"x"}}`:                                                         "/spec/pod/labels/job-name",
		`{"labels":{"app.kubernetes.io/managed-by":"me"}}`:                                    "/spec/pod/labels/app.kubernetes.io~1managed-by",
		`{"labels":{"a":"no value!"}}`:                                                        "/spec/pod/labels/a",
		`{"annotations":{"slipway.dev/lane":"x"}}`:                                            "/spec/pod/annotations/slipway.dev~1lane",
		`{"annotations":{"a b":"x"}}`:                                                         "/spec/pod/annotations/a b",
		`{"tolerations":[{"value":"x"}]}`:                                                     "/spec/pod/tolerations",
		`{"tolerations":[{"key":"a","operator":"Exists","value":"x"}]}`:                       "/spec/pod/tolerations",
		`{"tolerations":[{"key":"a","operator":"Exists","effect":"NoSchedule","seconds":3}]}`: "/spec/pod/tolerations",
	} {
		_, err := Build(command(t), run(Request{Spec: json.RawMessage(`{"pod":` + spec + `}`)}))
		if err == nil || !strings.HasPrefix(err.Error(), field+":") {
			t.Errorf("%s: got %v, want %s", spec, err, field)
		}
	}
}
