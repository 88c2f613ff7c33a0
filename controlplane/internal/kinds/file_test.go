package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/pkg/task"
)

const goodFile = `
kinds:
- name: report.build
  description: Build the monthly report.
  image: registry.example/report:3
  command: [/report, build]
  args: [--verbose]
  dir: /data
  queue: maintenance
  lane: "report:{namespace}/{params.report}"
  mode: latest
  on_conflict: replace
  supersedes: [report.build, command.run]
  defaults:
    idempotent: true
    run_deadline: 7200
    service_account: reports
    requests: {cpu: 500m}
    retry: {attempts: 2}
    pod:
      env: {PASSWORD: {secretRef: {name: db, key: password}}}
      image_pull_secrets: [registry]
  params:
    type: object
    required: [report]
    properties: {report: {type: string}}
  pod:
    spec: {dnsPolicy: Default}
- name: legacy
  image: registry.example/legacy:1
  wrap: false
- name: cache.warm
  image: registry.example/cache:1
  wrap: own
`

func TestUsersKindsAreReadFromAFile(t *testing.T) {
	all, err := Read("kinds.yaml", []byte(goodFile))
	if err != nil || len(all) != 3 {
		t.Fatalf("%d kinds, %v", len(all), err)
	}
	spec := defaults()
	spec.Image, spec.ServiceAccount, spec.Idempotent, spec.RunDeadline = "registry.example/report:3", "reports", true, 7200
	spec.Requests, spec.Retry.Attempts = map[string]string{"cpu": "500m"}, 2
	spec.Pod = task.Pod{
		Wrap: task.WrapExec, Command: []string{"/report", "build"}, Args: []string{"--verbose"}, Dir: "/data",
		Env: map[string]task.EnvSource{"PASSWORD": {Secret: &task.KeyRef{Name: "db", Key: "password"}}}, PullSecrets: []string{"registry"},
		Patch: json.RawMessage(`{"spec":{"dnsPolicy":"Default"}}`),
	}
	want := task.Kind{
		Name: "report.build", Description: "Build the monthly report.", Executor: task.ExecutorJob, Queue: "maintenance",
		Lane: "report:{namespace}/{params.report}", Mode: task.Latest, OnConflict: task.ConflictReplace,
		Supersedes: []string{"report.build", "command.run"}, Spec: spec,
		Params: json.RawMessage(`{"properties":{"report":{"type":"string"}},"required":["report"],"type":"object"}`),
	}
	if diff := cmp.Diff(want, all[0].Kind); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	if w := []task.Wrap{all[1].Spec.Pod.Wrap, all[2].Spec.Pod.Wrap}; w[0] != task.WrapNone || w[1] != task.WrapOwn {
		t.Errorf("wrapped %q", w)
	}
	known, err := WithBuiltIn(all...)
	if err != nil {
		t.Fatal(err)
	}
	k, _ := known.Get("report.build")
	b, err := Build(k, Request{Namespace: "shop", Params: json.RawMessage(`{"report":"may"}`)})
	if err != nil || b.Task.Lane != "report:shop/may" || b.Task.Mode != task.Latest || b.Free || b.Task.Spec.Retry.Attempts != 2 {
		t.Errorf("built %+v, %v", b, err)
	}
	if _, err := Build(k, Request{Namespace: "shop", Params: json.RawMessage(`{}`)}); err == nil {
		t.Error("parameters that break its schema were taken")
	}
}

func TestABadEntryIsNamedByFileKindAndField(t *testing.T) {
	const good = "name: a, image: x, command: [b]"
	for entry, field := range map[string]string{
		`{` + good + `, imgae: y}`:                                                   "imgae",
		`{name: a, command: [b]}`:                                                    "image",
		`{name: a, image: x}`:                                                        "command",
		`{name: a, image: x, command: ["a\0"]}`:                                      "command",
		`{name: a, image: x, wrap: maybe}`:                                           "wrap",
		`{` + good + `, command: b}`:                                                 "",
		`{name: a, image: x, command: b}`:                                            "command",
		`{name: "a b", image: x, command: [b]}`:                                      "name",
		`{name: command.run, image: x, command: [b]}`:                                "name",
		`{` + good + `, dir: data}`:                                                  "dir",
		`{` + good + `, queue: "No Queue"}`:                                          "queue",
		`{` + good + `, mode: loose}`:                                                "mode",
		`{` + good + `, mode: strict}`:                                               "mode",
		`{` + good + `, on_conflict: fight}`:                                         "on_conflict",
		`{` + good + `, lane: "a:{namespace}/{name}"}`:                               "lane",
		`{` + good + `, lane: "a:{namespace}/{partition params.p}"}`:                 "lane",
		`{` + good + `, lane: "a:{namespace}/{partition params.p 0}"}`:               "lane",
		`{` + good + `, lane: "a:{namespace}/{partition params.p 10000}"}`:           "lane",
		`{` + good + `, lane: "a:{namespace}/{partition namespace 8}"}`:              "lane",
		`{` + good + `, lane: "a:{namespace}/x-{partition params.p 8}"}`:             "lane",
		`{` + good + `, secrets: [p], lane: "a:{namespace}/{partition params.p 8}"}`: "lane",
		`{` + good + `, lane: "a:shop/x"}`:                                           "lane",
		`{` + good + `, lane: "a:{params.ns}/x"}`:                                    "lane",
		`{` + good + `, lane: "task:{namespace}/x"}`:                                 "lane",
		`{` + good + `, lane: "a:{namespace}/x", mode: parallel}`:                    "mode",
		`{` + good + `, supersedes: [nobody]}`:                                       "supersedes",
		`{` + good + `, params: {type: nonsense}}`:                                   "params",
		`{` + good + `, secrets: [a-b]}`:                                             "secrets",
		`{` + good + `, secrets: [p, p]}`:                                            "secrets",
		`{` + good + `, secrets: {p: x}}`:                                            "secrets",
		`{` + good + `, secrets: [p], params: true}`:                                 "params",
		`{` + good + `, secrets: [p], params: {properties: {p: {type: string}}}}`:    "params.properties.p",
		`{` + good + `, secrets: [p], lane: "a:{namespace}/{params.p}"}`:             "lane",
		`{` + good + `, defaults: {pod: {secrets: {p: {name: a, key: b}}}}}`:         "defaults.pod",
		`{` + good + `, pod: [a]}`:                                                   "pod",
		`{` + good + `, defaults: {run_deadline: 0}}`:                                "defaults.run_deadline",
		`{` + good + `, defaults: {fence_after: 3}}`:                                 "defaults.fence_after",
		`{` + good + `, defaults: {run_dedline: 5}}`:                                 "defaults.run_dedline",
		`{` + good + `, defaults: {run_deadline: soon}}`:                             "defaults.run_deadline",
		`{` + good + `, defaults: {image: y}}`:                                       "defaults.image",
		`{` + good + `, defaults: {pod: {command: [run]}}}`:                          "defaults.pod",
		`{` + good + `, defaults: {requests: {cpu: lots}}}`:                          "defaults.requests.cpu",
		`{` + good + `, defaults: {service_account: "No One"}}`:                      "defaults.service_account",
		`{` + good + `, defaults: {retry: {backoff: 9, cap: 3}}}`:                    "defaults.retry.cap",
		`{` + good + `, defaults: {pod: {env: {SLIPWAY_X: {value: v}}}}}`:            "defaults.pod.env.SLIPWAY_X",
	} {
		_, err := Read("/etc/slipway/kinds.yaml", []byte("kinds:\n- "+entry+"\n"))
		var bad *FileError
		if !errors.As(err, &bad) || bad.Field != field || bad.File != "/etc/slipway/kinds.yaml" || field != "" && bad.Kind == "" {
			t.Errorf("%s: got %v, want field %q", entry, err, field)
		}
	}
}

func TestEveryBadEntryIsNamedAtOnce(t *testing.T) {
	_, err := Read("kinds.yaml", []byte("kinds:\n- {name: a, image: x}\n- {name: b, command: [c], mode: x}\n- {name: b, image: x, command: [c]}\n"))
	got := fmt.Sprint(err)
	for _, want := range []string{"kinds.yaml: kind a: command: ", "kinds.yaml: kind b: image: ", "kinds.yaml: kind b: mode: ", "kinds.yaml: kind b: name: is defined twice"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
}

func TestAFileThatIsNoListOfKindsIsRefused(t *testing.T) {
	for _, text := range []string{"kinds: {}", "kinds: [}", "kind: []", "- a", "kinds: []\nkinds: []"} {
		_, err := Read("kinds.yaml", []byte(text))
		var bad *FileError
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), "kinds.yaml: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if all, err := Read("kinds.yaml", []byte("kinds: []")); err != nil || len(all) != 0 {
		t.Errorf("an empty list: %v, %v", all, err)
	}
}
