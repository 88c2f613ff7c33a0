package cases

import (
	"maps"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// A replica stands still in the middle of work that it does itself. Nobody takes the lane before it must have stopped,
// and when it wakes it ends itself instead of going on.
func TestAReplicaThatFreezesInInlineWorkLosesItAfterItsSilenceAndDoesNotGoOn(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.API, Replicas: 2})
	user, lame, other := r.User(t, r.Namespace()), r.Replicas[0], r.Replicas[1]
	env := map[string]string{"SLIPWAY_UPKEEP_NAMESPACE": r.Namespace()}
	stuck := maps.Clone(env)
	stuck["SLIPWAY_FAILPOINTS"] = "upkeep-retain=sleep:10m"
	for _, p := range r.Replicas {
		p.Stop(t)
	}
	lame.Start(t, stuck)
	lame.WaitReady(t)
	r.Gate.Skip(other.Address)
	id := user.Submit(t, map[string]any{"kind": "slipway.retention", "namespace": r.Namespace(), "params": map[string]any{}}).ID
	user.Until(t, id, "to be at work", func(is api.Task) bool {
		return is.Attempt != nil && is.Attempt.State == api.AttemptStarted && !is.Attempt.HeartbeatAt.IsZero()
	})
	lame.Freeze(t)
	froze := time.Now()
	other.Start(t, env)
	other.WaitReady(t)
	r.Gate.Skip(lame.Address)

	user.Until(t, id, "to be tried again", func(is api.Task) bool { return is.AttemptsMade == 2 })
	if after := time.Since(froze); after < task.InlineExitAfter.Duration() {
		t.Errorf("its lane was handed on %v after it stood still, and it may go on for %v", after, task.InlineExitAfter)
	}
	lame.Wake(t)
	select {
	case <-lame.Ended():
	case <-time.After(30 * time.Second):
		t.Fatalf("the replica goes on; its last lines:\n%s", lame.Tail())
	}
	if ended := user.Await(t, id); ended.State != api.StateSucceeded || ended.AttemptsMade != 2 {
		t.Errorf("it ended %s/%s after %d attempts", ended.State, ended.Reason, ended.AttemptsMade)
	}
	first := user.Attempts(t, id)[0]
	if first.Outcome != api.OutcomeLost || first.Executor != string(task.ExecutorInline) {
		t.Errorf("the first attempt, by %s, is %s/%s", first.Executor, first.Outcome, first.Reason)
	}
	if n := endings(t, user, id); n != 1 {
		t.Errorf("its history tells of %d ends", n)
	}
}

// A replica is killed in the middle of work that it does itself, and its container is started anew: the kubelet does that
// only once the last one has terminated, so that nobody waits for its silence.
func TestWhatAKilledReplicaDidItselfIsHandedOnAsSoonAsItsContainerIsStartedAnew(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.API})
	user, replica := r.User(t, r.Namespace()), r.Replicas[0]
	env := map[string]string{"SLIPWAY_UPKEEP_NAMESPACE": r.Namespace(), "SLIPWAY_POD_UID": "7f0c4a9e-aaaa-4444-8888-000000000001"}
	stuck := maps.Clone(env)
	stuck["SLIPWAY_FAILPOINTS"] = "upkeep-retain=sleep:10m"
	replica.Stop(t)
	replica.Start(t, stuck)
	replica.WaitReady(t)
	id := user.Submit(t, map[string]any{"kind": "slipway.retention", "namespace": r.Namespace(), "params": map[string]any{}}).ID
	user.Until(t, id, "to be at work", func(is api.Task) bool { return is.Attempt != nil && is.Attempt.State == api.AttemptStarted })
	replica.Kill(t)
	replica.Start(t, env)
	replica.WaitReady(t)
	ready := time.Now()
	user.Until(t, id, "to be tried again", func(is api.Task) bool { return is.AttemptsMade == 2 })
	if after := time.Since(ready); after > task.InlineCancelAfter.Duration() {
		t.Errorf("its lane was handed on %v after the replica was there again", after)
	}
	if ended := user.Await(t, id); ended.State != api.StateSucceeded {
		t.Errorf("it ended %s/%s", ended.State, ended.Reason)
	}
	if first := user.Attempts(t, id)[0]; first.Outcome != api.OutcomeLost {
		t.Errorf("the first attempt is %s/%s", first.Outcome, first.Reason)
	}
}
