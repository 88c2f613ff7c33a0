package cases

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/proxy"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// Replicas come, go, freeze and wake under load. Shrunk unless FULL=1: the frozen one sleeps for 10 s, longer than the
// others leave its work alone, instead of longer than a lease.
func TestReplicas(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API, Replicas: 3, Proxied: true, Env: map[string]string{"SLIPWAY_LAUNCHES": "8"}})
	r.Exec(t, "UPDATE slipway.queues SET cap = 1000, ns_cap = 1000") // the load runs on until it is canceled
	user := r.User(t, r.Namespace())
	t.Run("what a replica writes that was frozen is refused where it would undo something", func(t *testing.T) {
		lateWrites(t, user, r.Replicas[0], func() (undo func()) {
			r.Replicas[0].Freeze(t)
			return func() { r.Replicas[0].Wake(t) }
		})
	})
	t.Run("the same where its database was silent", func(t *testing.T) {
		lateWrites(t, user, r.Replicas[0], func() (undo func()) {
			r.Replicas[0].Database.Set(proxy.PostgresFault{Kind: proxy.PostgresSilent})
			return func() { r.Replicas[0].Database.Set() }
		})
	})
	t.Run("one that is killed at load is not missed for long", killedAtLoad(user))
	t.Run("a rolling update loses nothing and nobody notices", rollingUpdate(user))
}

// lateWrites takes one replica away between the create of its Jobs and their record, lets the others bring the Tasks to
// their ends, and gives it back.
func lateWrites(t *testing.T, user *rig.User, lame *rig.Replica, take func() (giveBack func())) {
	r := user.Rig()
	lame.Stop(t)
	lame.Start(t, map[string]string{"SLIPWAY_FAILPOINTS": "launch-before-record=sleep:2s|finish-before-commit=sleep:1s"})
	lame.WaitReady(t)
	all := play(t, user, 2)
	for range 12 { // some are claimed by the lame one and stand between create and record
		all = append(all, played{id: user.Submit(t, rig.Command(r.Namespace(), "x")).ID})
	}
	rig.Eventually(t, "the lame one to have created a Job that it has not recorded", func(context.Context) (bool, error) {
		return r.Value(t, "SELECT count(*)::text FROM slipway.attempts WHERE state = 'leased' AND replica = '"+lame.Name+"'") != "0", nil
	})
	r.Gate.Skip(lame.Address)
	giveBack := take()
	time.Sleep(sleepOf())
	others := user.Via(r.Replicas[1].Address)
	for i := range all {
		if all[i].runner == nil {
			pod := r.Pod(t, r.Namespace(), others.JobOf(t, all[i].id))
			r.Bind(t, pod)
			r.Run(t, pod)
			all[i].runner = r.StartRunner(t, pod)
		}
		all[i].report(t)
	}
	for _, p := range all {
		others.Await(t, p.id)
	}
	before := stateOf(t, r)
	giveBack()
	lame.WaitReady(t)
	r.Gate.Skip()
	direct := user.Via(lame.Address)
	fresh := direct.Submit(t, rig.Command(r.Namespace(), "x")).ID // once it has a Job, the woken one has done what it had left
	direct.JobOf(t, fresh)
	endedOnce(t, user, all, nil)
	if after := stateOf(t, r); before != after {
		t.Errorf("what had ended was changed:\nbefore %s\nafter  %s", before, after)
	}
	user.Must(t, http.MethodPost, "/v1/tasks/"+fresh+"/cancel", nil, http.StatusOK, http.StatusAccepted)
}

func sleepOf() time.Duration {
	if full {
		return 45 * time.Second
	}
	return 10 * time.Second
}

// stateOf is what the database holds of all ended Attempts; each has its ends counted.
func stateOf(t *testing.T, r *rig.Rig) string {
	t.Helper()
	return r.Value(t, `SELECT coalesce(string_agg(concat_ws(' ', a.id, a.fence, a.state, a.outcome, a.reason, a.finished_at, a.pod_uid, t.state, t.ended_at,
		(SELECT count(*) FROM slipway.events e WHERE e.task = t.key AND e.type = 'started')), E'\n' ORDER BY a.id), '')
		FROM slipway.attempts a JOIN slipway.tasks t ON t.key = a.task WHERE t.state IN ('succeeded', 'failed')`)
}

// steady submits through the gate at a pace until stop, and gives the ids. What is not answered with 201 is an error.
func steady(t *testing.T, user *rig.User, pace time.Duration) (stop func() []string) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var mu sync.Mutex
	var ids []string
	tick := time.NewTicker(pace)
	group.Go(func() {
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			group.Go(func() {
				id, err := user.TrySubmit(context.WithoutCancel(ctx), rig.Command(user.Rig().Namespace(), "x"), rig.Name("key"))
				if err != nil {
					t.Errorf("a submit: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ids = append(ids, id)
			})
		}
	})
	return func() []string {
		cancel()
		group.Wait()
		return ids
	}
}

// launchedAndCanceled wants each Task to be launched once, and ends it.
func launchedAndCanceled(t *testing.T, user *rig.User, ids []string) {
	t.Helper()
	distinct := map[string]bool{}
	for _, id := range ids {
		distinct[id] = true
		seen := user.Until(t, id, "to have a recorded Job", func(task api.Task) bool {
			return task.Attempt != nil && task.Attempt.Job != nil && task.Attempt.Job.UID != ""
		})
		if seen.Attempt.Number != 1 {
			t.Errorf("task %s is at attempt %d", id, seen.Attempt.Number)
		}
	}
	createdOnce(t, user.Rig())
	if len(distinct) != len(ids) || len(ids) == 0 {
		t.Errorf("%d submits gave %d tasks", len(ids), len(distinct))
	}
	for _, id := range ids {
		user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil, http.StatusOK, http.StatusAccepted)
	}
	for _, id := range ids {
		user.Await(t, id)
	}
}

// killedAtLoad kills a replica. Those that were on their way through it break: their callers send the key again. The
// next launch comes within 3 s, which a busy machine may double.
func killedAtLoad(user *rig.User) func(t *testing.T) {
	return func(t *testing.T) {
		r := user.Rig()
		victim := r.Replicas[0]
		r.Gate.Skip(victim.Address) // the load is the others'; what the victim holds are its claims
		stop := steady(t, user, 200*time.Millisecond)
		held := func() bool {
			return r.Value(t, "SELECT count(*)::text FROM slipway.attempts WHERE replica = '"+victim.Name+"' AND finished_at IS NULL") != "0"
		}
		rig.Eventually(t, "the victim to have claimed something", func(context.Context) (bool, error) { return held(), nil })
		victim.Kill(t)
		at := r.Value(t, "SELECT clock_timestamp()::text")
		rig.Eventually(t, "a launch after the kill", func(context.Context) (bool, error) {
			return r.Value(t, "SELECT count(*)::text FROM slipway.attempts WHERE launched_at > '"+at+"'") != "0", nil
		})
		took, err := strconv.ParseFloat(r.Value(t, "SELECT extract(epoch FROM min(launched_at) - '"+at+"')::text FROM slipway.attempts WHERE launched_at > '"+at+"'"), 64)
		if err != nil || took > 2*3 {
			t.Errorf("the next launch came %.1fs after the kill (%v)", took, err)
		}
		t.Logf("the next launch came %.2fs after the kill", took)
		launchedAndCanceled(t, user, stop())
		victim.Start(t)
		victim.WaitReady(t)
		r.Gate.Skip()
	}
}

// rollingUpdate brings up three new replicas and ends the old ones. As in a cluster, the old ones get no new
// connections once they have said that they are not ready.
func rollingUpdate(user *rig.User) func(t *testing.T) {
	return func(t *testing.T) {
		r := user.Rig()
		running := play(t, user, 2)
		stop := steady(t, user, 200*time.Millisecond)
		old := r.Replicas
		var gone []string
		for _, p := range old {
			next := r.AddReplica(t, nil)
			r.Gate.Skip(append(gone, next.Address)...)
			next.WaitReady(t)
			gone = append(gone, p.Address)
			r.Gate.Skip(gone...)
			p.Stop(t)
		}
		ids := stop()
		running[0].report(t)
		running[1].die(t, task.OutcomeSucceeded, "")
		launchedAndCanceled(t, user, ids)
		endedOnce(t, user, running, nil)
		t.Logf("%d submits during the update", len(ids))
	}
}
