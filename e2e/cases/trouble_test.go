package cases

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// quick is a control plane that renews its watches and asks its connections often, so that silence is found within a
// test's time.
var quick = map[string]string{
	"SLIPWAY_WATCH_RENEW": "4s", "HTTP2_READ_IDLE_TIMEOUT_SECONDS": "4", "HTTP2_PING_TIMEOUT_SECONDS": "2",
}

// exits ends the pod without a report: the control plane has nothing but what it sees in the cluster.
func (p played) exits(t *testing.T, code int) {
	t.Helper()
	if code == 0 {
		p.die(t, task.OutcomeSucceeded, task.ReasonNone)
	} else {
		p.die(t, task.OutcomeFailed, task.ReasonExitCode)
	}
}

// insists reports until it is heard, as a runner does.
func (p played) insists(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "the report of "+p.id+" to be taken", func(ctx context.Context) (bool, error) {
		a, err := p.runner.TryFinish(ctx, map[string]any{"outcome": "succeeded"})
		return err == nil && a.Status == http.StatusNoContent, err
	})
	p.exits(t, 0)
}

// side does something for each of many, some at the same time.
func side[T any](all []T, do func(*T)) {
	var group sync.WaitGroup
	places := make(chan struct{}, 16)
	for i := range all {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			do(&all[i])
		})
	}
	group.Wait()
}

// fiveEnd ends five Tasks, three of them well, and gives how each has to be told.
func fiveEnd(t *testing.T, five []played) map[string]wanted {
	t.Helper()
	want := map[string]wanted{}
	for i, p := range five {
		code, w := 0, succeeded
		if i >= 3 {
			code, w = 3, exit3
		}
		p.exits(t, code)
		want[p.id] = w
	}
	return want
}

// whole holds, at the end of a case, that no process was lost, nothing runs or counts as running any more, no Task made a
// second Attempt, and every Job was created once.
func whole(t *testing.T, r *rig.Rig, user *rig.User, ids []string) {
	t.Helper()
	for _, id := range ids {
		if made := user.Attempts(t, id); len(made) != 1 {
			t.Errorf("task %s made %d attempts, want 1", id, len(made))
		}
	}
	created := r.JobsCreated(t, r.Namespace())
	for name, n := range created {
		if n != 1 {
			t.Errorf("Job %s was created %d times", name, n)
		}
	}
	if len(created) > len(ids) { // a create whose caller hung up before the answer does not stand in the log
		t.Errorf("%d Jobs were ever created for %d tasks", len(created), len(ids))
	}
	for _, p := range r.Replicas {
		if !p.Running() || p.Logged(t, `"msg":"starting"`) != 1 {
			t.Errorf("%s did not live through it", p.Name)
		}
		rig.Eventually(t, "nothing to count as running at "+p.Name, func(ctx context.Context) (bool, error) {
			n, err := p.Metric(ctx, `slipway_queue_running{queue="default"}`)
			return n == 0, err
		})
	}
}

func idsOf(all []played) (ids []string) {
	for _, p := range all {
		ids = append(ids, p.id)
	}
	return ids
}

// gapsTold holds that a replica told of gaps by one line at the beginning and one at the end of each, and of few.
func gapsTold(t *testing.T, p *rig.Replica, most int) {
	t.Helper()
	begun, ended := p.Logged(t, "the cluster is not heard"), p.Logged(t, "the cluster is heard again")
	if begun == 0 || begun > most || ended != begun {
		t.Errorf("%s told of %d gaps and %d ends, want 1 to %d", p.Name, begun, ended, most)
	}
}

// stays holds that each Task is running under its first Attempt.
func stays(t *testing.T, user *rig.User, all []played) {
	t.Helper()
	for _, p := range all {
		if is := user.Task(t, p.id); is.State != api.StateRunning || is.Attempt.Number != 1 || is.Attempt.State != api.AttemptStarted {
			t.Errorf("task %s is %s, attempt %d %s, and should run on", p.id, is.State, is.Attempt.Number, is.Attempt.State)
		}
	}
}
