package cases

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// Bounds that hold while the database is in trouble: of one request, and of the way back once it is well again. A busy
// machine gets twice of it.
const (
	requestWithin = 2 * 15 * time.Second
	backWithin    = 2 * 10 * time.Second
)

// played is a Task whose handler is at work, as the test plays it.
type played struct {
	id     string
	runner *rig.PlayedRunner
}

// play submits n Tasks and plays them up to the start of their handlers.
func play(t *testing.T, user *rig.User, n int) []played {
	t.Helper()
	r := user.Rig()
	all := make([]played, n)
	for i := range all {
		all[i].id = user.Submit(t, rig.Command(r.Namespace(), "x")).ID
	}
	side(all, func(p *played) { p.start(t, user) })
	if t.Failed() {
		t.FailNow() // not every one has a runner
	}
	return all
}

// start plays the pod and the runner of a Task that was submitted, up to the start of its handler.
func (p *played) start(t *testing.T, user *rig.User) {
	t.Helper()
	r := user.Rig()
	pod := r.Pod(t, r.Namespace(), user.JobOf(t, p.id))
	r.Bind(t, pod)
	r.Run(t, pod)
	p.runner = r.StartRunner(t, pod)
}

// die plays a runner that nobody took the report of: the end stands on its pod alone.
func (p played) die(t *testing.T, outcome task.Outcome, reason task.Reason) {
	t.Helper()
	code := int32(0)
	if outcome != task.OutcomeSucceeded {
		code = 3
	}
	said := task.Termination{Attempt: p.runner.Attempt, Fence: p.runner.Fence, Outcome: outcome, Reason: reason}
	p.runner.Rig().Exit(t, p.runner.Pod, code, said.String())
}

// report plays the end of a handler whose runner is heard.
func (p played) report(t *testing.T) {
	t.Helper()
	p.runner.Finish(t, map[string]any{"outcome": "succeeded", "exit_code": 0}, http.StatusNoContent)
	p.runner.Rig().Exit(t, p.runner.Pod, 0, "")
}

// endedOnce wants every Task to have succeeded in its first Attempt, or as want says, with one Job each.
func endedOnce(t *testing.T, user *rig.User, all []played, want map[string]api.State) {
	t.Helper()
	ended(t, user, all, want)
	createdOnce(t, user.Rig())
}

// ended wants the same, whatever Jobs there are.
func ended(t *testing.T, user *rig.User, all []played, want map[string]api.State) {
	t.Helper()
	for _, p := range all {
		state := want[p.id]
		if state == "" {
			state = api.StateSucceeded
		}
		ended := user.Await(t, p.id)
		if ended.State != state || ended.Attempt == nil || ended.Attempt.Number != 1 {
			t.Errorf("task %s is %s/%s at attempt %+v, want %s at the first", p.id, ended.State, ended.Reason, ended.Attempt, state)
		}
	}
}

// createdOnce wants no Job to have been created twice.
func createdOnce(t *testing.T, r *rig.Rig) {
	t.Helper()
	for name, n := range r.JobsCreated(t, r.Namespace()) {
		if n != 1 {
			t.Errorf("Job %s was created %d times", name, n)
		}
	}
}

// refused wants every replica to answer a write with 503 and Retry-After, and to say in /readyz why.
func refused(t *testing.T, r *rig.Rig, why ...string) {
	t.Helper()
	user := r.User(t, r.Namespace())
	var group sync.WaitGroup
	for _, replica := range r.Replicas {
		if replica.Running() {
			group.Go(func() { refusedBy(t, replica, user.Via(replica.Address), why) })
		}
	}
	group.Wait()
}

func refusedBy(t *testing.T, replica *rig.Replica, user *rig.User, why []string) {
	t.Helper()
	rig.Eventually(t, replica.Name+" to say that it is not ready", func(ctx context.Context) (bool, error) {
		status, body, err := replica.Get(ctx, "/readyz")
		if err != nil || status != http.StatusServiceUnavailable {
			return false, fmt.Errorf("readyz: %d %s (%w)", status, body, err)
		}
		if !slices.ContainsFunc(why, func(words string) bool { return strings.Contains(body, words) }) {
			return false, fmt.Errorf("readyz: %s, want one of %q", body, why)
		}
		return true, nil
	})
	began := time.Now()
	a, err := user.Do(t.Context(), http.MethodPost, "/v1/tasks", rig.Command(user.Rig().Namespace(), "x"))
	if err != nil || a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
		t.Errorf("%s: a submit was answered %d %s (%v), Retry-After %q", replica.Name, a.Status, a.Body, err, a.Header.Get("Retry-After"))
	}
	if took := time.Since(began); took > requestWithin {
		t.Errorf("%s: a submit was answered after %v, want %v", replica.Name, took, requestWithin)
	}
}

// back wants every replica to be ready again soon, without a restart.
func back(t *testing.T, r *rig.Rig) {
	t.Helper()
	began := time.Now()
	for _, replica := range r.Replicas {
		if replica.Running() {
			replica.WaitReady(t)
		}
	}
	if took := time.Since(began); took > backWithin {
		t.Errorf("it was ready again after %v, want %v", took, backWithin)
	}
}
