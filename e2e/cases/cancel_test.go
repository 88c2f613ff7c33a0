package cases

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// moment is one in the life of a Task at which it is canceled.
type moment struct {
	name string
	// reach brings a Task there.
	reach func(t *testing.T, c *canceling) string
	// status of the answers that are right then.
	status []int
	// then is what the kubelet does afterwards.
	then     func(t *testing.T, c *canceling)
	state    api.State // default: canceled
	attempts int
}

// canceling is the rig of one moment.
type canceling struct {
	*rig.Rig
	user *rig.User
	pod  *corev1.Pod
}

var (
	atOnce = []int{http.StatusOK}
	asked  = []int{http.StatusAccepted}
	either = []int{http.StatusOK, http.StatusAccepted}
)

var moments = []moment{
	{name: "queued behind another", reach: func(t *testing.T, c *canceling) string {
		c.submit(t, "volume:"+c.Namespace()+"/x", nil)
		return c.submit(t, "volume:"+c.Namespace()+"/x", nil)
	}, status: atOnce},
	{name: "delayed", reach: func(t *testing.T, c *canceling) string {
		return c.submit(t, "", map[string]any{"delay": 3600})
	}, status: atOnce},
	{name: "claimed, and no Job can be made", reach: func(t *testing.T, c *canceling) string {
		c.quota(t, "count/jobs.batch")
		id := c.submit(t, "", nil)
		c.user.Until(t, id, "to wait for the quota", func(now api.Task) bool { return now.Waiting != nil && now.Waiting.Reason == "quota" })
		return id
	}, status: either, attempts: 1},
	{name: "claimed, while its Job is made", reach: func(t *testing.T, c *canceling) string {
		c.restart(t, "launch-before-create=sleep:4s")
		return c.claimed(t)
	}, status: asked, attempts: 1, then: func(t *testing.T, c *canceling) {
		rig.Eventually(t, "the Job to have been made", made(t, c, 1))
	}},
	{name: "launched, and not recorded", reach: func(t *testing.T, c *canceling) string {
		c.restart(t, "launch-before-record=sleep:4s")
		id := c.claimed(t)
		rig.Eventually(t, "the Job to be made", made(t, c, 1))
		return id
	}, status: asked, attempts: 1},
	{name: "launched, and no pod can be made", reach: func(t *testing.T, c *canceling) string {
		c.user.JobOf(t, c.submit(t, "", nil)) // the dry run of this one counts for the next, too
		c.quota(t, "pods")
		id := c.submit(t, "", nil)
		c.user.JobOf(t, id)
		return id
	}, status: either, attempts: 1},
	{name: "its pod is bound to no node", reach: func(t *testing.T, c *canceling) string {
		id := c.submit(t, "", nil)
		c.pod = c.Pod(t, c.Namespace(), c.user.JobOf(t, id))
		return id
	}, status: asked, attempts: 1},
	{name: "its pod is starting", reach: func(t *testing.T, c *canceling) string {
		id := c.bound(t)
		c.Play(t, c.pod, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})
		return id
	}, status: asked, attempts: 1, then: obeys},
	{name: "running", reach: func(t *testing.T, c *canceling) string { id, _ := c.running(t); return id }, status: asked, attempts: 1, then: obeys},
	{name: "running, and it exits with 0 when it is told to stop", reach: func(t *testing.T, c *canceling) string {
		id, _ := c.running(t)
		return id
	}, status: asked, attempts: 1, then: func(t *testing.T, c *canceling) {
		toldToStop(t, c)
		c.Exit(t, c.pod, 0, "")
	}},
	{name: "ending: it has reported a failure", reach: func(t *testing.T, c *canceling) string {
		id, runner := c.running(t)
		runner.Finish(t, map[string]any{"outcome": "failed", "reason": "exit_code", "exit_code": 1}, http.StatusNoContent)
		return id
	}, status: asked, attempts: 1, then: func(t *testing.T, c *canceling) { c.Exit(t, c.pod, 1, "") }},
	{name: "ending: it has reported success, which was first", reach: func(t *testing.T, c *canceling) string {
		id, runner := c.running(t)
		runner.Finish(t, map[string]any{"outcome": "succeeded"}, http.StatusNoContent)
		return id
	}, status: asked, attempts: 1, then: func(t *testing.T, c *canceling) { c.Exit(t, c.pod, 0, "") }, state: api.StateSucceeded},
	{name: "retrying, in its back-off", reach: func(t *testing.T, c *canceling) string {
		id, _ := c.running(t)
		c.Exit(t, c.pod, 1, "")
		c.user.Until(t, id, "to be in back-off", func(now api.Task) bool { return now.Phase == api.PhaseRetrying })
		return id
	}, status: atOnce, attempts: 1},
	{name: "running, and the control plane dies before it has told anybody", reach: func(t *testing.T, c *canceling) string {
		id, _ := c.running(t)
		return id
	}, status: asked, attempts: 1, then: func(t *testing.T, c *canceling) {
		c.Replicas[0].Kill(t)
		c.Replicas[0].Start(t)
		obeys(t, c)
	}},
	{name: "running, and its pod ends with 0 while no control plane lives", reach: func(t *testing.T, c *canceling) string {
		id, _ := c.running(t)
		return id
	}, status: asked, attempts: 1, then: func(t *testing.T, c *canceling) {
		c.Replicas[0].Kill(t)
		c.Exit(t, c.pod, 0, "")
		c.Replicas[0].Start(t)
	}},
}

func TestACancelAtEveryMomentHoldsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, m := range moments {
		t.Run(m.name, func(t *testing.T) {
			c := &canceling{Rig: rig.New(t, rig.Options{Profile: local.API})}
			c.user = c.User(t, c.Namespace())
			id := m.reach(t, c)
			c.user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/cancel", `{"note":"no more"}`, m.status...)
			if m.then != nil {
				m.then(t, c)
			}
			want := m.state
			if want == "" {
				want = api.StateCanceled
			}
			ended := c.user.Await(t, id)
			if ended.State != want || len(c.user.Attempts(t, id)) != m.attempts {
				t.Errorf("it ended %s/%s after %d attempts, want %s after %d", ended.State, ended.Reason, ended.AttemptsMade, want, m.attempts)
			}
			again := c.user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil, http.StatusOK, http.StatusConflict)
			if (again.Status == http.StatusOK) != (want == api.StateCanceled) {
				t.Errorf("asked again it answers %d", again.Status)
			}
			c.user.Must(t, http.MethodPost, "/v1/tasks:cancel", everyTask(t, c), http.StatusOK)
			nothingLeft(t, c.Rig)
			if n := endings(t, c.user, id); n != 1 {
				t.Errorf("its history tells of %d ends", n)
			}
		})
	}
}

// everyTask asks to cancel what a moment needed besides its Task.
func everyTask(t *testing.T, c *canceling) string {
	t.Helper()
	shown := c.user.Must(t, http.MethodPost, "/v1/tasks:cancel", fmt.Sprintf(`{"filter":{"namespace":%q},"dry_run":true}`, c.Namespace()), http.StatusOK)
	var all api.ManyResult
	decodeInto(t, shown, &all)
	return fmt.Sprintf(`{"filter":{"namespace":%q},"expected_count":%d,"selection":%q}`, c.Namespace(), all.Count, all.Selection)
}

// submit submits a Task that may be tried often.
func (c *canceling) submit(t *testing.T, lane string, more map[string]any) string {
	t.Helper()
	submit := rig.Command(c.Namespace(), "x")
	submit["spec"] = map[string]any{"idempotent": true, "retry": map[string]any{"attempts": 5, "backoff": 60}}
	if lane != "" {
		submit["lane"] = lane
	}
	for name, value := range more {
		submit[name] = value
	}
	return c.user.Submit(t, submit).ID
}

// restart starts the control plane anew with a failpoint.
func (c *canceling) restart(t *testing.T, failpoint string) {
	t.Helper()
	c.Replicas[0].Stop(t)
	c.Replicas[0].Start(t, map[string]string{"SLIPWAY_FAILPOINTS": failpoint})
	c.Replicas[0].WaitReady(t)
}

func (c *canceling) claimed(t *testing.T) string {
	t.Helper()
	id := c.submit(t, "", nil)
	c.user.Until(t, id, "to be claimed", func(now api.Task) bool { return now.Attempt != nil })
	return id
}

func (c *canceling) bound(t *testing.T) string {
	t.Helper()
	id := c.submit(t, "", nil)
	c.pod = c.Pod(t, c.Namespace(), c.user.JobOf(t, id))
	c.Bind(t, c.pod)
	return id
}

func (c *canceling) running(t *testing.T) (string, *rig.PlayedRunner) {
	t.Helper()
	id := c.bound(t)
	c.Run(t, c.pod)
	return id, c.StartRunner(t, c.pod)
}

// quota takes the last of something from the namespace.
func (c *canceling) quota(t *testing.T, resource string) {
	t.Helper()
	c.Kubectl(t, "create", "quota", "none", "--namespace", c.Namespace(), "--hard", resource+"=0")
	rig.Eventually(t, "the quota to act", quotaActs(c))
}

// obeys plays a kubelet that ends the pod once it was told to.
func obeys(t *testing.T, c *canceling) {
	t.Helper()
	toldToStop(t, c)
	c.Play(t, c.pod, corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 143, Reason: "Error", StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
	}})
}

// The same on a real kubelet, with its real SIGTERM and grace period.
func TestACancelOnARealKubeletKeepsTheGracePeriodAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	takesItsTime := `trap 'echo told; sleep 3; echo tidied; exit 0' TERM; echo begun; sleep 600 & wait`
	spec := map[string]any{"idempotent": true, "grace": 20, "retry": map[string]any{"attempts": 3, "backoff": 0}}
	cancel := func(id string) {
		user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil, http.StatusAccepted)
	}
	pulling := shell(ns, "", spec)
	pulling["kind"] = "container.run"
	pulling["params"] = map[string]any{"image": "127.0.0.1:1/none:such", "command": []string{"true"}}
	ids := map[string]string{}
	for name, submit := range map[string]map[string]any{"running": shell(ns, takesItsTime, spec), "ending": shell(ns, takesItsTime, spec), "pulling": pulling} {
		ids[name] = user.Submit(t, submit).ID
	}
	var all sync.WaitGroup
	all.Go(func() {
		pod := user.PodOf(t, ids["pulling"])
		rig.Eventually(t, "the image to be pulled in vain", waitsFor(r, pod, "ErrImagePull", "ImagePullBackOff"))
		cancel(ids["pulling"])
	})
	all.Go(func() {
		user.Until(t, ids["running"], "to be started", started)
		cancel(ids["running"])
	})
	all.Go(func() {
		pod := user.Until(t, ids["ending"], "to be started", started).Attempt.Pod.Name
		r.Kubectl(t, "delete", "pod", "--namespace", ns, "--wait=false", pod)
		cancel(ids["ending"])
	})
	all.Wait()
	for name, id := range ids {
		if ended := user.Await(t, id); ended.State != api.StateCanceled || ended.AttemptsMade != 1 {
			t.Errorf("%s: it ended %s/%s after %d attempts", name, ended.State, ended.Reason, ended.AttemptsMade)
		}
		if name == "pulling" {
			continue
		}
		if log := string(user.Must(t, http.MethodGet, "/v1/tasks/"+id+"/logs", nil, http.StatusOK).Body); !strings.HasPrefix(log, "begun\ntold\ntidied\n") {
			t.Errorf("%s: its log is %q", name, log)
		}
	}
	nothingLeft(t, r)
}
