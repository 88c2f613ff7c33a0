package httpapi

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func dry(body string) request {
	return request{method: "POST", path: "/v1/tasks?dry_run=true", token: "admin", body: body}
}

func dryBatch(items ...string) request {
	return request{method: "POST", path: "/v1/tasks:batch?dry_run=true", token: "admin", body: `{"tasks":[` + strings.Join(items, ",") + `]}`}
}

func no(cause task.RefusalCause) error {
	return &task.Refusal{Cause: cause, Message: "the server's words"}
}

func TestADryRunTellsWhatTheClusterSaysByItsCause(t *testing.T) {
	for name, tc := range map[string]struct {
		says            error
		status          int
		pointer, reason string
	}{
		"yes":         {nil, 200, "", ""},
		"invalid":     {no(task.RefusedInvalid), 422, "/spec", "the server's words"},
		"namespace":   {no(task.RefusedNamespace), 422, "/namespace", "the server's words"},
		"quota":       {no(task.RefusedQuota), 200, "", "quota"},
		"unknown":     {no(task.RefusedUnknown), 200, "", "refused"},
		"unavailable": {no(task.RefusedUnavailable), 200, "", "unchecked"},
		"other":       {errForTest, 200, "", "unchecked"},
	} {
		for _, q := range []request{dry(good), dryBatch(good)} {
			r := newRig(t)
			r.takes = func(task.Task) error { return tc.says }
			w := r.send(q)
			at := ""
			if q.path != dry("").path {
				at = "/tasks/0"
			}
			if tc.status != 200 {
				p := r.problem(w, tc.status)
				if len(p.Errors) != 1 || p.Errors[0].Pointer != at+tc.pointer || !strings.Contains(p.Errors[0].Reason, tc.reason) {
					t.Errorf("%s: %s", name, w.Body)
				}
				continue
			}
			got := decode[struct{ Warnings []api.Warning }](t, w).Warnings
			if w.Code != 200 || w.Header().Get("Slipway-Dry-Run") != "true" || len(got) != min(len(tc.reason), 1) {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			} else if len(got) == 1 && (got[0].Reason != tc.reason || got[0].Pointer != at || strings.Contains(got[0].Message, "hunter2")) {
				t.Errorf("%s: %+v", name, got)
			}
			if !r.submitted[0].DryRun || len(r.tried) != 1 || r.tried[0].Namespace != "shop" {
				t.Errorf("%s: submitted %+v, tried %+v", name, r.submitted, r.tried)
			}
		}
	}
}

func TestOnlyADryRunAsksTheClusterAndARepeatIsNotTried(t *testing.T) {
	r := newRig(t)
	r.send(submit(good))
	r.send(batch(good))
	r.result = api.ResultRepeated
	r.send(dryBatch(good))
	if len(r.tried) != 0 {
		t.Errorf("asked for %+v", r.tried)
	}
}

func TestADryRunOfABatchAsksOnceForEachPodAndForTwentyAtMost(t *testing.T) {
	r := newRig(t)
	var items []string
	for n := range 30 {
		items = append(items, fmt.Sprintf(`{"kind":"command.run","namespace":"shop","params":{"command":["echo","%d"]}}`, n))
	}
	w := r.send(dryBatch(items...))
	if got := decode[api.BatchResult](t, w); w.Code != 200 || len(got.Items) != 30 || len(got.Warnings) != 0 || got.Items[7].ID != noID {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if len(r.tried) != 1 {
		t.Errorf("asked %d times for one pod", len(r.tried))
	}
	r = newRig(t)
	for n := range items {
		items[n] = fmt.Sprintf(`{"kind":"command.run","namespace":"shop-%d","params":{"command":["true"]}}`, n)
	}
	w = r.send(dryBatch(items...))
	got := decode[api.BatchResult](t, w)
	if len(r.tried) != tryPods || len(got.Warnings) != 30-tryPods || got.Warnings[0].Reason != "unchecked" || got.Warnings[0].Pointer != "/tasks/20" {
		t.Errorf("asked %d times: %s", len(r.tried), w.Body)
	}
}

// slow answers when its context is over.
type slow struct{}

func (slow) StorageUse(context.Context, string) (map[string]int64, error) { return nil, nil }

func (slow) Claims(context.Context, string, string) ([]string, error) { return nil, nil }

func (slow) Against(context.Context, task.Task) (map[string]string, error) { return nil, nil }

func (slow) Takes(ctx context.Context, _ task.Task) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAClusterThatDoesNotAnswerKeepsADryRunForSecondsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{cluster: slow{}}
		pods := make([]*triedPod, tryPods)
		for i := range pods {
			pods[i] = &triedPod{pointers: []string{fmt.Sprintf("/tasks/%d", i)}}
		}
		ctx, cancel := context.WithTimeout(t.Context(), tryTime+1)
		defer cancel()
		s.ask(ctx, pods)
		if ctx.Err() != nil {
			t.Error("asked for longer than it may")
		}
		for _, p := range pods {
			if field, warning := p.said(); field != nil || warning == nil || warning.Reason != warnUnchecked {
				t.Errorf("%+v %+v", field, warning)
			}
		}
	})
}
