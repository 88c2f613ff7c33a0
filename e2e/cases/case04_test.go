package cases

import (
	"context"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// Job created, record lost: the next pass creates another. Nothing is shrunk.
func TestCase04(t *testing.T) {
	replay(t, 4, "launched once, whatever happens between create and commit", func(t *testing.T) {
		t.Run("killed between create and commit", killedBeforeRecord)
		t.Run("the commit after the create fails", commitFails)
		t.Run("restarted while pods are pending", restartedWhilePending)
	})
}

func killedBeforeRecord(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user, replica := r.User(t, r.Namespace()), r.Replicas[0]
	replica.Stop(t)
	var ids []string
	for range 20 {
		replica.Start(t, map[string]string{"SLIPWAY_FAILPOINTS": "launch-before-record=kill"})
		ids = append(ids, submitToTheDying(t, user, r.Namespace()))
		select {
		case <-replica.Ended():
		case <-time.After(30 * time.Second):
			t.Fatalf("the replica did not die at the failpoint; its last lines:\n%s", replica.Tail())
		}
	}
	replica.Start(t)
	launchedOnce(t, r, user, ids)
}

// submitToTheDying submits once the replica answers. It may die on an older Task's launch before it answers: the same
// key is then sent to its next life by the caller's loop.
func submitToTheDying(t *testing.T, user *rig.User, namespace string) string {
	t.Helper()
	key := rig.Name("key")
	var id string
	rig.Eventually(t, "a submit to be answered", func(ctx context.Context) (bool, error) {
		for _, replica := range user.Rig().Replicas {
			if !replica.Running() {
				replica.Start(t, map[string]string{"SLIPWAY_FAILPOINTS": "launch-before-record=kill"})
			}
		}
		var err error
		id, err = user.TrySubmit(ctx, rig.Command(namespace, "x"), key)
		return err == nil, err
	})
	return id
}

func commitFails(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API, Env: map[string]string{"SLIPWAY_FAILPOINTS": "launch-before-record=sleep:300ms"}})
	user := r.User(t, r.Namespace())
	var ids []string
	for range 20 {
		ids = append(ids, user.Submit(t, rig.Command(r.Namespace(), "x")).ID)
	}
	for range 20 {
		r.TerminateBackends(t)
		time.Sleep(100 * time.Millisecond) // the pace of the fault, not a wait for something
	}
	launchedOnce(t, r, user, ids)
}

func restartedWhilePending(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user, replica := r.User(t, r.Namespace()), r.Replicas[0]
	var ids []string
	for range 10 {
		ids = append(ids, user.Submit(t, rig.Command(r.Namespace(), "x")).ID)
	}
	launchedOnce(t, r, user, ids)
	replica.Kill(t)
	replica.Start(t)
	replica.WaitReady(t)
	extra := user.Submit(t, rig.Command(r.Namespace(), "x")).ID // once this one runs, the restart has looked at the others
	launchedOnce(t, r, user, append(ids, extra))
}

// launchedOnce waits until each Task has its Job and counts the Jobs that were ever created.
func launchedOnce(t *testing.T, r *rig.Rig, user *rig.User, ids []string) {
	t.Helper()
	jobs := map[string]bool{}
	for _, id := range ids {
		seen := user.Until(t, id, "to have a recorded Job", func(task api.Task) bool {
			return task.Attempt != nil && task.Attempt.Job != nil && task.Attempt.Job.UID != ""
		})
		if seen.Attempt.Number != 1 {
			t.Errorf("task %s is at attempt %d, want 1", id, seen.Attempt.Number)
		}
		jobs[seen.Attempt.Job.Name] = true
	}
	created := r.JobsCreated(t, r.Namespace())
	for name, n := range created {
		if n != 1 || !jobs[name] {
			t.Errorf("Job %s was created %d times and belongs to a task: %t", name, n, jobs[name])
		}
	}
	if len(created) != len(ids) {
		t.Errorf("%d Jobs were ever created for %d tasks", len(created), len(ids))
	}
}
