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

	batchv1 "k8s.io/api/batch/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/postgres"
	"slipway.dev/slipway/e2e/proxy"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// The database goes away and the scheduler does not come back. Shrunk unless FULL=1: the gap (90 s to 3 s), the pace of
// cut backends (10 s for 2 min to 0.5 s for 4 s), the minute of read-only to what the checks take. A column that changes
// its type under load, and every cut around COMMIT, are tests of package store.
func TestCase28(t *testing.T) {
	replay(t, 28, "the database goes and comes back: 503 meanwhile, nothing lost, nothing doubled, no restart", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API, Replicas: 2, Proxied: true, Durable: true})
		user := r.User(t, r.Namespace())
		for _, form := range []struct {
			name string
			run  func(*testing.T, *rig.User)
		}{
			{"stopped at once with five tasks running, three of which end in the gap", stoppedAtOnce},
			{"restarted in order", restartedInOrder},
			{"its backends are terminated under load", backendsTerminated},
			{"cut around every COMMIT under load", cutUnderLoad},
			{"silent without closing", silentDatabase},
			{"full", fullDatabase},
			{"read-only", readOnlyDatabase},
			{"restored to an earlier minute", func(t *testing.T, _ *rig.User) { restoredDatabase(t) }},
			{"behind a transaction pooler", behindAPooler},
			{"a standby takes over", standbyTakesOver},
		} {
			t.Run(form.name, func(t *testing.T) { form.run(t, user) })
		}
		for _, replica := range r.Replicas[:2] {
			if !replica.Running() {
				t.Errorf("%s has ended; its last lines:\n%s", replica.Name, replica.Tail())
			}
		}
	})
}

func gap() time.Duration {
	if full {
		return 90 * time.Second
	}
	return 3 * time.Second
}

func stoppedAtOnce(t *testing.T, user *rig.User) {
	r := user.Rig()
	all := play(t, user, 5)
	if err := r.Postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	all[0].die(t, task.OutcomeSucceeded, "")
	all[1].die(t, task.OutcomeSucceeded, "")
	all[2].die(t, task.OutcomeFailed, "exit_code")
	refused(t, r, "cannot be reached")
	time.Sleep(gap()) // the length of the fault
	if err := r.Postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	back(t, r)
	for _, p := range all[3:] {
		p.runner.Beat(t, http.StatusOK)
		p.report(t)
	}
	endedOnce(t, user, all, map[string]api.State{all[2].id: api.StateFailed})
}

func restartedInOrder(t *testing.T, user *rig.User) {
	r := user.Rig()
	all := play(t, user, 2)
	if err := r.Postgres.Pause(); err != nil {
		t.Fatal(err)
	}
	refused(t, r, "cannot be reached")
	if err := r.Postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	back(t, r)
	for _, p := range all {
		p.report(t)
	}
	endedOnce(t, user, all, nil)
}

// load submits, waits for the Job and cancels, in a few threads, while fault goes on. What is not answered is sent again.
func load(t *testing.T, user *rig.User, fault func()) {
	t.Helper()
	over, group := make(chan struct{}), sync.WaitGroup{}
	var mu sync.Mutex
	ids := map[string]bool{}
	sent := 0
	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				id := submitStubbornly(t, user)
				user.JobOf(t, id)
				cancelStubbornly(t, user, id)
				mu.Lock()
				ids[id], sent = true, sent+1
				mu.Unlock()
			}
		})
	}
	fault()
	close(over)
	group.Wait()
	for id := range ids {
		if ended := user.Await(t, id); ended.State != api.StateCanceled || ended.Attempt.Number != 1 {
			t.Errorf("task %s is %s/%s at attempt %d, want canceled at the first", id, ended.State, ended.Reason, ended.Attempt.Number)
		}
	}
	createdOnce(t, user.Rig())
	if len(ids) != sent || sent == 0 {
		t.Errorf("%d submits gave %d tasks", sent, len(ids))
	}
	t.Logf("%d tasks", sent)
}

// cancelStubbornly asks until it is answered.
func cancelStubbornly(t *testing.T, user *rig.User, id string) {
	rig.Eventually(t, "a cancel to be answered", func(ctx context.Context) (bool, error) {
		a, err := user.Do(ctx, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil)
		if err != nil || a.Status == http.StatusServiceUnavailable {
			return false, fmt.Errorf("answered %d (%w)", a.Status, err)
		}
		if a.Status >= http.StatusInternalServerError {
			t.Errorf("a cancel was answered %d %s", a.Status, a.Body)
		}
		return true, nil
	})
}

// submitStubbornly sends one key until it is answered; only 503 and a broken connection are reasons to send it again.
func submitStubbornly(t *testing.T, user *rig.User) (id string) {
	key := rig.Name("key")
	rig.Eventually(t, "a submit to be answered", func(ctx context.Context) (bool, error) {
		var err error
		id, err = user.TrySubmit(ctx, rig.Command(user.Rig().Namespace(), "x"), key)
		if err != nil && strings.Contains(err.Error(), "answered") && !strings.Contains(err.Error(), "answered 503") && !strings.Contains(err.Error(), "in_progress") {
			t.Errorf("a submit was %v", err)
		}
		return err == nil, err
	})
	return id
}

func backendsTerminated(t *testing.T, user *rig.User) {
	times, pace := 8, 500*time.Millisecond
	if full {
		times, pace = 12, 10*time.Second
	}
	load(t, user, func() {
		for range times {
			user.Rig().TerminateBackends(t)
			time.Sleep(pace) // of the fault
		}
	})
}

func cutUnderLoad(t *testing.T, user *rig.User) {
	r := user.Rig()
	load(t, user, func() {
		for _, replica := range r.Replicas {
			replica.Database.Set(
				proxy.PostgresFault{Kind: proxy.PostgresCutBeforeCommit, Share: 0.1},
				proxy.PostgresFault{Kind: proxy.PostgresCutAfterCommit, Share: 0.1},
				proxy.PostgresFault{Kind: proxy.PostgresLateCommit, Share: 0.05, For: 200 * time.Millisecond},
				proxy.PostgresFault{Kind: proxy.PostgresSerialization, Share: 0.02},
				proxy.PostgresFault{Kind: proxy.PostgresShutdown, Share: 0.01},
			)
		}
		time.Sleep(4 * time.Second) // the length of the fault
		for _, replica := range r.Replicas {
			replica.Database.Set()
			t.Logf("%s: %v", replica.Name, replica.Database.Counts())
		}
	})
	back(t, r)
}

func silentDatabase(t *testing.T, user *rig.User) {
	r := user.Rig()
	all := play(t, user, 2)
	for _, replica := range r.Replicas {
		replica.Database.Set(proxy.PostgresFault{Kind: proxy.PostgresSilent})
	}
	all[0].die(t, task.OutcomeSucceeded, "")
	refused(t, r, "does not answer in time", "cannot be reached")
	for _, replica := range r.Replicas {
		replica.Database.Set()
	}
	back(t, r)
	all[1].report(t)
	endedOnce(t, user, all, nil)
}

func fullDatabase(t *testing.T, user *rig.User) {
	r := user.Rig()
	all := play(t, user, 2)
	release := r.FillConnections(t)
	refused(t, r, "takes no more connections")
	all[0].die(t, task.OutcomeSucceeded, "")
	release()
	back(t, r)
	all[1].report(t)
	endedOnce(t, user, all, nil)
}

func readOnlyDatabase(t *testing.T, user *rig.User) {
	r := user.Rig()
	all := play(t, user, 2)
	r.Exec(t, "ALTER DATABASE slipway SET default_transaction_read_only = on")
	r.TerminateBackends(t)
	refused(t, r, "is read-only")
	all[0].die(t, task.OutcomeSucceeded, "")
	all[1].runner.Beat(t, http.StatusServiceUnavailable)
	for _, replica := range r.Replicas {
		direct := user.Via(replica.Address)
		direct.Must(t, http.MethodGet, "/v1/tasks/"+all[0].id, nil, http.StatusOK)
		direct.Must(t, http.MethodGet, "/v1/tasks?namespace="+r.Namespace(), nil, http.StatusOK)
		direct.Must(t, http.MethodGet, "/v1/queues", nil, http.StatusOK, http.StatusForbidden)
	}
	r.Exec(t, "BEGIN READ WRITE; ALTER DATABASE slipway RESET default_transaction_read_only; COMMIT")
	r.TerminateBackends(t)
	back(t, r)
	all[1].runner.Beat(t, http.StatusOK)
	all[1].report(t)
	endedOnce(t, user, all, nil)
}

// What was submitted after the minute is forgotten by the database and not by the cluster: its sequences begin where they
// stood, so what is submitted next wants the names of Jobs that are there, and what is submitted later the names of Jobs
// that were removed, while their pods still stop. A Slipway of its own: Jobs of one name are created twice in it.
func restoredDatabase(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API, Replicas: 2, Durable: true, Env: map[string]string{
		"SLIPWAY_SWEEP_EVERY": "3s", "SLIPWAY_SWEEP_AGE": "1s",
	}})
	user := r.User(t, r.Namespace())
	kept := play(t, user, 1)
	restore, err := r.Postgres.Save(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	back(t, r)
	forgotten := play(t, user, 6)
	if err := restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	back(t, r)
	for _, p := range forgotten {
		p.runner.Beat(t, http.StatusConflict, http.StatusNotFound)
		p.runner.Finish(t, map[string]any{"outcome": "succeeded"}, http.StatusConflict, http.StatusNotFound)
	}
	unlike(t, user, play(t, user, 3), forgotten)
	kept[0].report(t)
	ended(t, user, kept, nil)
	rig.Eventually(t, "the forgotten Jobs to be listed and then removed", func(context.Context) (bool, error) {
		listed := false
		for _, replica := range r.Replicas {
			listed = listed || strings.Contains(replica.Log(), "an orphan, left alone for now")
		}
		gone := r.JobsDeleted(t, r.Namespace())
		for _, p := range forgotten {
			if job := p.runner.Pod.Labels[batchv1.JobNameLabel]; gone[job] == 0 {
				return false, fmt.Errorf("job %s is there, listed: %t", job, listed)
			}
		}
		return listed, nil
	})
	unlike(t, user, play(t, user, 3), forgotten)
	for name, n := range r.JobsCreated(t, r.Namespace()) {
		again := 0
		if slices.ContainsFunc(forgotten, func(f played) bool { return f.runner.Pod.Labels[batchv1.JobNameLabel] == name }) {
			again = 1 // for another Task
		}
		if n > 1+again {
			t.Errorf("Job %s was created %d times", name, n)
		}
	}
	for _, replica := range r.Replicas {
		if !replica.Running() {
			t.Errorf("%s has ended; its last lines:\n%s", replica.Name, replica.Tail())
		}
	}
}

// unlike ends Tasks well that share neither fence nor Job with those that were forgotten.
func unlike(t *testing.T, user *rig.User, all, forgotten []played) {
	t.Helper()
	for _, p := range all {
		for _, f := range forgotten {
			if p.runner.Fence <= f.runner.Fence {
				t.Errorf("task %s has fence %d, and one of %d is known to the cluster", p.id, p.runner.Fence, f.runner.Fence)
			}
			if f.runner.Pod.UID == p.runner.Pod.UID {
				t.Errorf("task %s adopted a Job that was not its own", p.id)
			}
		}
		p.report(t)
		if ended := user.Await(t, p.id); ended.State != api.StateSucceeded {
			t.Errorf("task %s is %s/%s", p.id, ended.State, ended.Reason)
		}
	}
}

func standbyTakesOver(t *testing.T, user *rig.User) {
	r := user.Rig()
	all := play(t, user, 3)
	standby, err := r.Postgres.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(postgres.Fast); err != nil {
			t.Errorf("stop the standby: %v", err)
		}
	})
	rig.Eventually(t, "the standby to have heard everything", func(context.Context) (bool, error) {
		left := r.Value(t, "SELECT count(*)::text FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()")
		return left == "1", nil
	})
	all[0].report(t)
	if err := r.Postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	all[1].die(t, task.OutcomeSucceeded, "")
	refused(t, r, "cannot be reached")
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.MoveTo(t, standby)
	back(t, r)
	all[2].report(t)
	endedOnce(t, user, all, nil)
}

// The pooler is a real one; package store has the forms that it has not.
func behindAPooler(t *testing.T, user *rig.User) {
	r := user.Rig()
	replica := r.AddReplica(t, map[string]string{"SLIPWAY_DATABASE_URL": r.Pooler(t)})
	select {
	case <-replica.Ended():
		if log := replica.Log(); !strings.Contains(log, "the database is behind a transaction pooler") || !strings.Contains(log, "connect to PostgreSQL directly") {
			t.Errorf("it ended without saying why:\n%s", log)
		}
	case <-time.After(30 * time.Second):
		t.Errorf("it runs behind a transaction pooler:\n%s", replica.Tail())
	}
}
