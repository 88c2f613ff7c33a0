package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const compositeTask = `{"id":"p-1","kind":"group","namespace":"shop","name":"upgrade","lane":"branch:shop/a","state":"running","phase":"running",
"attempts_made":0,"created_at":"2026-11-30T10:00:00Z","created_by":"ada","progress":{"done":1.5,"total":4,"message":"succeeded 1 of 4"},
"children":{"count":4,"queued":2,"running":1,"succeeded":1,"failed":0,"canceled":0,"items":[
{"id":"c-1","kind":"volume.resize","namespace":"shop","name":"grow","lane":"volume:shop/a","state":"succeeded","phase":"succeeded","weight":1},
{"id":"c-2","kind":"volume.resize","namespace":"shop","lane":"volume:shop/b","state":"running","phase":"running","weight":1,"progress":{"done":5,"total":10,"message":"copying"}},
{"id":"c-3","kind":"command.run","namespace":"shop","state":"queued","phase":"waiting","weight":1,"waiting":{"reason":"dependency","holder":"c-2"},"after":["c-1","c-2"],"run_if":"all_succeeded"},
{"id":"c-4","kind":"command.run","namespace":"shop","state":"queued","phase":"waiting","weight":1,"waiting":{"reason":"dependency"},"after":["c-3","x-9"],"run_if":"all_finished"}]}}`

func TestATreeShowsStatesProgressAndWhatRunsAfterWhat(t *testing.T) {
	s := &script{answers: map[string]string{"GET /v1/tasks/p-1": compositeTask}}
	code, out, errOut := play(t, s, "tree", "p-1")
	if code != 0 {
		t.Fatalf("%d %s", code, errOut)
	}
	want := []string{
		"TASK KIND LANE STATE REASON PROGRESS AFTER ID",
		"upgrade group branch:shop/a running - 38% succeeded 1 of 4 - p-1",
		"├─ #1 grow volume.resize volume:shop/a succeeded - - - c-1",
		"├─ #2 volume.resize volume:shop/b running - 50% copying - c-2",
		"├─ #3 command.run - queued, waiting dependency - #1, #2 c-3",
		"└─ #4 command.run - queued, waiting dependency - #3, x-9 (whatever their end) c-4",
	}
	for i, got := range strings.Split(strings.TrimSpace(out), "\n") {
		if got = strings.Join(strings.Fields(got), " "); i >= len(want) || got != want[i] {
			t.Errorf("line %d: %s", i, got)
		}
	}
}

func TestWhySaysWhatIsWaitedForAndWhenItMayStart(t *testing.T) {
	for estimate, want := range map[string]string{
		`{"p50":90,"p90":200.5,"ahead":3,"samples":20}`: "starts within 1m30s with even chance, within 3m20.5s in nine cases of ten estimated from 3 tasks before it, 20 recent times of its own kind",
		`{"p50":0,"p90":0,"ahead":1}`:                   "starts within 0s estimated from 1 task before it, 0 recent times of its own kind",
		`{"unknown":"it is held"}`:                      "starts unknown: it is held",
	} {
		s := &script{answers: map[string]string{"GET /v1/tasks/t-1": strings.Replace(queuedTask, `"attempts_made"`, `"estimate":`+estimate+`,"attempts_made"`, 1)}}
		code, out, errOut := play(t, s, "why", "t-1")
		got := strings.Join(strings.Fields(out), " ")
		if code != 0 || !strings.Contains(got, "waits for held: ada: until Monday") || !strings.HasSuffix(got, want) {
			t.Errorf("%s: %d %s %s", estimate, code, got, errOut)
		}
	}
}

func TestChildrenInAFileGoWhereTheirParentDoes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tree.yaml")
	text := "kind: group\nchildren:\n- {kind: command.run, ref: a, params: {command: [x]}}\n- {kind: command.run, namespace: bank, after: [\"ref:a\"], params: {command: [z]}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &script{answers: map[string]string{"POST /v1/tasks": compositeTask}}
	code, _, errOut := play(t, s, "submit", "-n", "shop", "-f", file)
	want := `POST /v1/tasks {"children":[{"kind":"command.run","namespace":"shop","params":{"command":["x"]},"ref":"a","spec":{"retry":{}}},` +
		`{"after":["ref:a"],"kind":"command.run","namespace":"bank","params":{"command":["z"]},"spec":{"retry":{}}}],"kind":"group","namespace":"shop","spec":{"retry":{}}}`
	strip := strings.NewReplacer(`,"spec":{"retry":{}}`, "", `,"spec":{}`, "", ` `, "")
	if code != 0 || len(s.asked) != 1 || strip.Replace(s.asked[0]) != strip.Replace(want) {
		t.Errorf("%d %v %s", code, s.asked, errOut)
	}
}

func TestARetryRepeatsAllChildrenWhereAsked(t *testing.T) {
	s := &script{answers: map[string]string{"POST /v1/tasks/p-1/retry": compositeTask}}
	if code, _, errOut := play(t, s, "retry", "p-1", "--all"); code != 0 || s.asked[0] != "POST /v1/tasks/p-1/retry?all=true" {
		t.Errorf("%d %v %s", code, s.asked, errOut)
	}
}
