package store_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

func TestNoTextOfAToolKeepsAnOutcomeFromBeingRecorded(t *testing.T) {
	d := newDatabase(t).running()
	ctx := t.Context()
	for name, text := range map[string]string{
		"nul": "a\x00b", "not utf-8": "a\xff\xfeb", "half a character": "é"[:1], "large": strings.Repeat("x\x00é", 500_000), "plain": "plain",
	} {
		for what, result := range map[string]string{
			"nul escape": `{"a":{"b":"x\u0000y"}}`, "lone surrogate": `{"k":"\ud800"}`, "wrong pair": `["\udc00\ud800"]`,
			"raw bytes": "{\"a\":\"\xff\xfe\"}", "not json": "{", "huge number": `{"n":1e999999}`, "deep": strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
			"large": `"` + strings.Repeat("x", 200<<10) + `"`, "none": "", "harmless": `{"a":"\\u0000","b":"\ud83d\ude00"}`,
		} {
			made := d.one(item(""))
			c := d.claimOne()
			_, _, err := d.Start(ctx, store.StartRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "p"})
			if err != nil {
				t.Fatal(err)
			}
			r := store.ReportRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "p", Tail: []byte(text), Report: task.Report{
				Outcome: task.OutcomeFailed, Reason: task.Reason(text), Message: text, Result: json.RawMessage(result),
			}}
			if err := d.Report(ctx, r); err != nil {
				t.Fatalf("%s, %s: report: %v", name, what, err)
			}
			v := task.Verdict{Outcome: task.OutcomeFailed, Reason: task.Reason(text), Message: text, Rule: text, Spends: task.SpendsRetry, Started: true}
			if _, err := d.Finish(ctx, c.Attempt.ID, c.Attempt.Fence, v, store.Ending{Evidence: json.RawMessage(result)}); err != nil {
				t.Fatalf("%s, %s: finish: %v", name, what, err)
			}
			got, _ := d.get(made.ID)
			if got.State != task.Failed || len(got.Message) > 4<<10 || !utf8.ValidString(got.Message) {
				t.Fatalf("%s, %s: %s with %d bytes of message", name, what, got.State, len(got.Message))
			}
			if marked := strings.Contains(got.Message, "were replaced"); marked != (name != "plain") {
				t.Fatalf("%s: marked %v: %.80q", name, marked, got.Message)
			}
			if what == "harmless" && string(got.Result) != `{"a": "\\u0000", "b": "😀"}` {
				t.Fatalf("harmless text was changed: %s", got.Result)
			}
		}
	}
}

func TestParametersThatCannotBeStoredAreRefusedWithTheirPlace(t *testing.T) {
	d := newDatabase(t)
	for name, params := range map[string]string{
		"nul": `{"a":{"b":"x\u0000"}}`, "surrogate": `{"a":"\ud800"}`, "bytes": "{\"a\":\"\xff\"}", "number": `{"a":1e99999}`, "no json": `{`,
		"large": `{"a":"` + strings.Repeat("x", 300<<10) + `"}`,
	} {
		it := item("")
		it.Task.Params = json.RawMessage(params)
		_, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: []store.Item{it}})
		var fields store.FieldErrors
		if !errors.As(err, &fields) || fields[0].Pointer != "/items/0/params" {
			t.Errorf("%s: %v", name, err)
		}
	}
	it := item("")
	it.Task.Params = json.RawMessage(`{"a":"\\u0000 \\ud800"}`)
	it.Task.Name = strings.Repeat("😀", 200)
	if got, _ := d.get(d.one(it).ID); string(got.Params) != `{"a": "\\u0000 \\ud800"}` || got.Name != it.Task.Name {
		t.Fatalf("harmless text was changed: %s", got.Params)
	}
	it.Task.Name += "😀"
	if _, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: []store.Item{it}}); err == nil {
		t.Fatal("a name of 201 characters was taken")
	}
}
