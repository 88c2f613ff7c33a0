package cases

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// The lane's holder is gone, the lane stays shut. Nothing is shrunk but the minute of the restored database, which is as
// long as a backup takes. Besides the written forms: the holder's node is dead for good, and a person takes the lane.
func TestCase15(t *testing.T) {
	replay(t, 15, "the next of a lane starts whatever becomes of its holder, in order, and nothing runs twice", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API, Durable: true, Env: map[string]string{
			"SLIPWAY_SWEEP_EVERY": "3s", "SLIPWAY_SWEEP_AGE": "1s",
		}})
		r.Grant(t, r.Namespace(), "slipway-admin")
		user := r.User(t, r.Namespace())
		var forgotten string // the Job of a claim that the restored database knows nothing of
		for _, form := range []struct {
			name string
			run  func(*testing.T, *lined)
		}{
			{"its row is purged through the API", purged},
			{"it fails", func(t *testing.T, l *lined) { l.a.die(t, task.OutcomeFailed, "exit_code") }},
			{"its Job is deleted by hand", jobDeleted},
			{"the control plane is killed while it runs", killedWhileItRuns},
			{"the control plane is killed between its end and the freed lane", killedBeforeTheLaneIsFree},
			{"the database is restored to a minute ago, its Job has finished since", func(t *testing.T, l *lined) {
				forgotten = restoredUnderTheLane(t, l)
			}},
			{"nothing of it answers any more, and a person takes the lane", takenByForce},
		} {
			t.Run(form.name, func(t *testing.T) {
				l := newLined(t, user)
				form.run(t, l)
				l.goesOn(t)
			})
		}
		for name, n := range r.JobsCreated(t, r.Namespace()) {
			if n > 1 && (name != forgotten || n > 2) {
				t.Errorf("Job %s was created %d times", name, n)
			}
		}
	})
}

// lined is a lane of its own with a running Task and two behind it.
type lined struct {
	user *rig.User
	lane string
	a    played
	b, c string
}

func newLined(t *testing.T, user *rig.User) *lined {
	t.Helper()
	l := &lined{user: user, lane: "volume:" + user.Rig().Namespace() + "/" + rig.Name("case15")}
	l.a = l.plays(t, l.submits(t))
	l.b, l.c = l.submits(t), l.submits(t)
	for _, id := range []string{l.b, l.c} {
		user.Until(t, id, "to wait for the lane", func(t api.Task) bool {
			return t.Waiting != nil && t.Waiting.Reason == "lane" && t.Waiting.Holder == l.a.id
		})
	}
	return l
}

func (l *lined) submits(t *testing.T) string {
	t.Helper()
	body := rig.Command(l.user.Rig().Namespace(), "x")
	body["lane"] = l.lane
	return l.user.Submit(t, body).ID
}

// plays plays the pod and the runner of a Task until its handler is at work.
func (l *lined) plays(t *testing.T, id string) played {
	t.Helper()
	r := l.user.Rig()
	pod := r.Pod(t, r.Namespace(), l.user.JobOf(t, id))
	r.Bind(t, pod)
	r.Run(t, pod)
	return played{id: id, runner: r.StartRunner(t, pod)}
}

// goesOn ends what is left in the lane: b starts, then c, each once and after the one before it has ended.
func (l *lined) goesOn(t *testing.T) {
	t.Helper()
	const within = 20 * time.Second // seconds, on a machine that others use
	began := time.Now()
	b := l.plays(t, l.b)
	if took := time.Since(began); took > within {
		t.Errorf("the next one started after %v", took.Round(time.Second))
	}
	if c := l.user.Task(t, l.c); c.State != api.StateQueued || c.Waiting == nil || c.Waiting.Holder != l.b {
		t.Errorf("while the second runs the third is %s and waits for %+v", c.State, c.Waiting)
	}
	b.report(t)
	c := l.plays(t, l.c)
	c.report(t)
	for _, id := range []string{l.b, l.c} {
		if ended := l.user.Await(t, id); ended.State != api.StateSucceeded || ended.AttemptsMade != 1 {
			t.Errorf("%s is %s after %d attempts", id, ended.State, ended.AttemptsMade)
		}
	}
	if l.a.runner.Fence >= b.runner.Fence || b.runner.Fence >= c.runner.Fence {
		t.Errorf("fences %d, %d, %d do not rise", l.a.runner.Fence, b.runner.Fence, c.runner.Fence)
	}
	// What any of the old one still says changes nothing; the same word again is only not new.
	was := l.user.Must(t, http.MethodGet, "/v1/tasks/"+l.a.id, nil, http.StatusOK, http.StatusNotFound)
	l.a.runner.Finish(t, map[string]any{"outcome": "succeeded"}, http.StatusNoContent, http.StatusConflict, http.StatusNotFound)
	if is := l.user.Must(t, http.MethodGet, "/v1/tasks/"+l.a.id, nil, was.Status); was.Status == http.StatusOK && !bytes.Equal(is.Body, was.Body) {
		t.Errorf("a late word changed\n%s\nto\n%s", was.Body, is.Body)
	}
	l.standsRight(t)
}

// standsRight holds the lanes of this Slipway against their Tasks, and the lane of this form is empty.
func (l *lined) standsRight(t *testing.T) {
	t.Helper()
	var state api.LaneState
	decodeInto(t, l.user.Must(t, http.MethodGet, "/v1/lanes?key="+l.lane, nil, http.StatusOK), &state)
	if state.Holder != "" || state.Head != "" || state.Queued != 0 {
		t.Errorf("the lane shows %+v", state)
	}
	overlaps := l.user.Rig().Value(t, fmt.Sprintf(`SELECT CAST(count(*) AS text) FROM slipway.attempts x JOIN slipway.attempts y
		ON x.lane = y.lane AND x.id < y.id AND y.claimed_at < coalesce(x.finished_at, 'infinity') WHERE x.lane = '%s'`, l.lane))
	if overlaps != "0" {
		t.Errorf("%s attempts of the lane overlap", overlaps)
	}
}

// purged: a running row is not to be had; once it has ended it is, and nobody behind it cares.
func purged(t *testing.T, l *lined) {
	l.user.Must(t, http.MethodDelete, "/v1/tasks/"+l.a.id, nil, http.StatusConflict)
	l.a.runner.Beat(t, http.StatusOK)
	l.a.report(t)
	l.user.Await(t, l.a.id)
	rig.Eventually(t, "the ended task to be deleted", func(ctx context.Context) (bool, error) {
		answer, err := l.user.Do(ctx, http.MethodDelete, "/v1/tasks/"+l.a.id, nil)
		return answer.Status == http.StatusNoContent, err
	})
}

func jobDeleted(t *testing.T, l *lined) {
	r := l.user.Rig()
	r.Kubectl(t, "delete", "job", "-n", r.Namespace(), "--wait=false", l.a.runner.Pod.Labels["batch.kubernetes.io/job-name"])
	l.user.Until(t, l.b, "to wait still", func(t api.Task) bool { return t.State == api.StateQueued })
	r.Exit(t, l.a.runner.Pod, 143, "") // the kubelet stops what was deleted; only then is the lane free
	if a := l.user.Await(t, l.a.id); a.State != api.StateFailed || a.AttemptsMade != 1 {
		t.Errorf("the one whose Job was deleted is %s after %d attempts", a.State, a.AttemptsMade)
	}
}

func killedWhileItRuns(t *testing.T, l *lined) {
	replica := l.user.Rig().Replicas[0]
	replica.Kill(t)
	replica.Start(t)
	replica.WaitReady(t)
	l.a.runner.Beat(t, http.StatusOK)
	if b := l.user.Task(t, l.b); b.State != api.StateQueued {
		t.Errorf("the next one is %s while the first runs", b.State)
	}
	l.a.report(t)
}

func killedBeforeTheLaneIsFree(t *testing.T, l *lined) {
	replica := l.user.Rig().Replicas[0]
	replica.Stop(t)
	replica.Start(t, map[string]string{"SLIPWAY_FAILPOINTS": "finish-before-commit=kill"})
	replica.WaitReady(t)
	l.a.report(t)
	select {
	case <-replica.Ended():
	case <-time.After(30 * time.Second):
		t.Fatalf("the replica did not die at the failpoint; its last lines:\n%s", replica.Tail())
	}
	replica.Start(t)
	replica.WaitReady(t)
	if a := l.user.Await(t, l.a.id); a.State != api.StateSucceeded {
		t.Errorf("the first one is %s", a.State)
	}
}

// restoredUnderTheLane gives the name of the Job that the next of the lane got before the restore, and gets again.
func restoredUnderTheLane(t *testing.T, l *lined) (forgotten string) {
	r := l.user.Rig()
	restore, err := r.Postgres.Save(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	back(t, r)
	l.a.report(t)
	l.user.Await(t, l.a.id)
	forgotten = l.user.JobOf(t, l.b)
	if err := restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	back(t, r)
	// The database thinks that it runs; the cluster knows better.
	if a := l.user.Await(t, l.a.id); a.AttemptsMade != 1 {
		t.Errorf("the first one made %d attempts", a.AttemptsMade)
	}
	return forgotten
}

// takenByForce: no kubelet ever says how it ended, no runner is heard.
func takenByForce(t *testing.T, l *lined) {
	var done api.ForceReleased
	take := map[string]any{"key": l.lane, "reason": "its node is off for good"}
	decodeInto(t, l.user.Must(t, http.MethodPost, "/v1/lanes:force-release", take, http.StatusOK), &done)
	if done.Task != l.a.id || done.Reason != "force_released" || len(done.MayStillRun) != 1 {
		t.Errorf("taken: %+v", done)
	}
}
