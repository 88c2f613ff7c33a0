package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func each(selector string) string {
	return fmt.Sprintf(`{"kind":"volume.snapshot.each","namespace":"shop","params":{"selector":%q}}`, selector)
}

func TestABatchIsBoundedWithTheChildrenThatItsKindsPlan(t *testing.T) {
	r := newRig(t)
	asked := 0
	r.claims = func(string, string) ([]string, error) {
		asked++
		names := make([]string, 100)
		for i := range names {
			names[i] = fmt.Sprintf("data-%d", i)
		}
		return names, nil
	}
	many := make([]string, 10)
	for i := range many {
		many[i] = each("app=shop")
	}
	p := r.problem(r.send(batch(many...)), 422)
	if pointers(p) != "/tasks" || !strings.Contains(p.Errors[0].Reason, "make 1010 tasks") || len(r.submitted) != 0 || asked != 1 {
		t.Errorf("%+v, stored %d, asked %d times for one selector", p, len(r.submitted), asked)
	}
	if w := r.send(batch(many[1:]...)); w.Code != 201 {
		t.Errorf("909 of them: %d %s", w.Code, w.Body)
	}
}

func TestARepeatIsAnsweredThoughWhatItSelectsCannotBeLookedUp(t *testing.T) {
	r := newRig(t)
	r.claims = func(string, string) ([]string, error) { return nil, task.ErrUnavailable }
	r.problem(r.send(submit(each("app=shop"), "Idempotency-Key", "k")), 503)
	r.done = []Accepted{{Task: task.Task{ID: taskID}, Result: api.ResultRepeated}}
	if w := r.send(submit(each("app=shop"), "Idempotency-Key", "k")); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r.claims = func(string, string) ([]string, error) { return nil, errForTest }
	r.done = nil
	for at, q := range map[string]request{"/params/selector": submit(each("app=shop")), "/tasks/1/params/selector": batch(good, each("app=shop"))} {
		if p := r.problem(r.send(q), 422); pointers(p) != at || !strings.Contains(p.Errors[0].Reason, "may not list") {
			t.Errorf("%+v, want %s", p, at)
		}
	}
}
