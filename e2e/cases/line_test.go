package cases

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// shell is a command.run of a shell line, with a fence time that is short enough for a test to wait for: a runner that
// reaches nobody keeps trying to report until then.
func shell(namespace, line string, spec map[string]any) map[string]any {
	full := map[string]any{"fence_after": 45, "grace": 5, "idempotent": false}
	for k, v := range spec {
		full[k] = v
	}
	submit := rig.Command(namespace, "sh", "-c", line)
	submit["spec"] = full
	return submit
}

// wanted is how a Task has to end.
type wanted struct {
	state  api.State
	reason string
}

var (
	succeeded = wanted{api.StateSucceeded, ""}
	exit3     = wanted{api.StateFailed, "exit_code"}
	noMemory  = wanted{api.StateFailed, "oom_killed"}
	evicted   = wanted{api.StateFailed, "interrupted_not_idempotent"}
)

func TestEveryVerdictIsRightAfterBothReplicasWereDead(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node, Replicas: 2})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	lines := []struct {
		n    int
		line string
		want wanted
	}{
		{8, "sleep 25; exit 0", succeeded},
		{4, "sleep 25; exit 3", exit3},
		{4, "sleep 25; tail /dev/zero", noMemory},
		{4, "sleep 600", evicted},
	}
	want := map[string]wanted{}
	var toEvict []string
	for _, l := range lines {
		for range l.n {
			id := user.Submit(t, shell(ns, l.line, map[string]any{"limits": map[string]string{"memory": "48Mi"}, "requests": map[string]string{"memory": "16Mi"}})).ID
			want[id] = l.want
			if l.want == evicted {
				toEvict = append(toEvict, id)
			}
		}
	}
	pods := map[string]string{}
	for id := range want {
		pods[id] = user.Until(t, id, "to be started", started).Attempt.Pod.Name
	}
	for _, replica := range r.Replicas {
		replica.Kill(t)
	}
	for _, id := range toEvict {
		evict(t, r, pods[id])
	}
	for _, pod := range pods {
		untilEnded(t, r, pod)
	}
	for _, replica := range r.Replicas {
		replica.Start(t)
	}
	verdicts(t, user, want)
	launched := r.JobsCreated(t, ns)
	for name, n := range launched {
		if n != 1 {
			t.Errorf("Job %s was created %d times", name, n)
		}
	}
	if len(launched) != len(want) {
		t.Errorf("%d Jobs were ever created for %d tasks", len(launched), len(want))
	}
}

func TestEndsDuringADatabaseOutageAndWithoutAControlPlaneAreAllKnown(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node, Replicas: 2})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	want := map[string]wanted{}
	submit := func(line string, w wanted) (id, pod, job string) {
		id = user.Submit(t, shell(ns, line, nil)).ID
		want[id] = w
		seen := user.Until(t, id, "to be started", started)
		return id, seen.Attempt.Pod.Name, seen.Attempt.Job.Name
	}
	for i := range 5 {
		submit(fmt.Sprintf("sleep 15; exit %d", 3*(i%2)), []wanted{succeeded, exit3}[i%2])
	}
	if err := r.Postgres.Pause(); err != nil {
		t.Fatalf("stop PostgreSQL: %v", err)
	}
	untilOutage(t, r)
	if err := r.Postgres.Restart(t.Context()); err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	verdicts(t, user, want)

	var pods, jobs []string
	for i := range 5 {
		_, pod, job := submit(fmt.Sprintf("sleep 10; exit %d", 3*(i%2)), []wanted{succeeded, exit3}[i%2])
		pods, jobs = append(pods, pod), append(jobs, job)
	}
	for _, replica := range r.Replicas {
		replica.Kill(t)
	}
	for _, pod := range pods {
		untilEnded(t, r, pod)
	}
	background := metav1.DeletePropagationBackground
	for _, job := range jobs {
		if err := r.Kube.BatchV1().Jobs(ns).Delete(t.Context(), job, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			t.Fatalf("delete job %s: %v", job, err)
		}
	}
	for _, replica := range r.Replicas {
		replica.Start(t)
	}
	verdicts(t, user, want)
}

func TestARunnerCutOffAfterStartEndsByItsTerminationMessage(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node})
	user := r.User(t, r.Namespace())
	id := user.Submit(t, shell(r.Namespace(), "sleep 5; exit 0", nil)).ID
	pod := user.Until(t, id, "to be started", started).Attempt.Pod.Name
	r.Gate.Cut()
	untilEnded(t, r, pod)
	r.Gate.Mend()
	ended := user.Await(t, id)
	attempts := user.Attempts(t, id)
	if ended.State != api.StateSucceeded || len(attempts) != 1 || !strings.HasPrefix(attempts[0].Rule, "2") {
		t.Errorf("task is %s by rule %q after %d attempts, want succeeded by the termination message of the first", ended.State, attempts[0].Rule, len(attempts))
	}
}

func TestARunnerCutOffBeforeStartIsLostAndTriedAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node})
	user := r.User(t, r.Namespace())
	r.Gate.Cut()
	direct := user.Via(r.Replicas[0].Address)
	id := direct.Submit(t, shell(r.Namespace(), "exit 0", nil)).ID
	untilEnded(t, r, direct.PodOf(t, id))
	r.Gate.Mend()
	ended := user.Await(t, id)
	attempts := user.Attempts(t, id)
	if ended.State != api.StateSucceeded || len(attempts) != 2 {
		t.Fatalf("task is %s after %d attempts, want succeeded at the second", ended.State, len(attempts))
	}
	if first := attempts[0]; first.Outcome != api.OutcomeLost || first.Reason != "unreachable" {
		t.Errorf("first attempt ended %s/%s, want lost/unreachable", first.Outcome, first.Reason)
	}
}

func TestLogsAreTheCommandsOwnBytesByKubectlAndByTheAPI(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node})
	user := r.User(t, r.Namespace())
	mark := rig.Name("mark")
	id := user.Submit(t, shell(r.Namespace(), `printf 'bad \000 \377\376 bytes\n'; echo `+mark, nil)).ID
	ended := user.Await(t, id)
	if ended.State != api.StateSucceeded {
		t.Fatalf("task is %s/%s: %s", ended.State, ended.Reason, ended.Message)
	}
	want := "bad \x00 \xff\xfe bytes\n" + mark + "\n"
	if got := r.Kubectl(t, "logs", "--namespace", r.Namespace(), "job/"+user.JobOf(t, id)); got != want {
		t.Errorf("kubectl logs printed %q, want %q", got, want)
	}
	logs := user.Must(t, http.MethodGet, "/v1/tasks/"+id+"/logs", nil, http.StatusOK)
	if string(logs.Body) != want {
		t.Errorf("the API's log is %q, want %q", logs.Body, want)
	}
	r.Kubectl(t, "delete", "job", "--namespace", r.Namespace(), user.JobOf(t, id))
	rig.Eventually(t, "the kept tail to be served", func(ctx context.Context) (bool, error) {
		a, err := user.Do(ctx, http.MethodGet, "/v1/tasks/"+id+"/logs", nil)
		if err != nil {
			return false, err
		}
		return a.Status == 200 && a.Header.Get("Slipway-Log-Source") == "kept" && strings.Contains(string(a.Body), mark), nil
	})
}

func TestACancelStopsTheCommandAndKeepsItsLog(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node})
	user := r.User(t, r.Namespace())
	id := user.Submit(t, shell(r.Namespace(), `trap 'echo told; exit 0' TERM; echo begun; while :; do sleep 0.1; done`, nil)).ID
	user.Until(t, id, "to be started", started)
	user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil, http.StatusAccepted)
	user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil, http.StatusAccepted, http.StatusOK)
	ended := user.Await(t, id)
	if ended.State != api.StateCanceled {
		t.Errorf("task is %s/%s, want canceled", ended.State, ended.Reason)
	}
	if log := r.Kubectl(t, "logs", "--namespace", r.Namespace(), "job/"+user.JobOf(t, id)); !strings.Contains(log, "told") {
		t.Errorf("the log is %q, want what the command said on SIGTERM", log)
	}
	user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil, http.StatusConflict, http.StatusOK)
}

func TestTwoSlipwaysInOneNamespaceDoNotTouchEachOthersJobs(t *testing.T) {
	t.Parallel()
	hasty := map[string]string{"SLIPWAY_SWEEP_EVERY": "200ms", "SLIPWAY_SWEEP_AGE": "1ms", "SLIPWAY_RESYNC": "1s"}
	first := rig.New(t, rig.Options{Profile: local.API, Env: hasty})
	second := rig.New(t, rig.Options{Profile: local.API, Env: hasty, Share: first})
	ids := map[*rig.Rig][]string{}
	for range 3 {
		for _, r := range []*rig.Rig{first, second} {
			ids[r] = append(ids[r], r.User(t, r.Namespace()).Submit(t, rig.Command(r.Namespace(), "x")).ID)
		}
	}
	for r, tasks := range ids {
		user := r.User(t, r.Namespace())
		for _, id := range tasks {
			if owner := r.Job(t, r.Namespace(), user.JobOf(t, id)).Labels["slipway.dev/instance"]; owner != r.Instance(t) {
				t.Errorf("the Job of task %s is of instance %q, want its own", id, owner)
			}
		}
	}
	// Both have swept many times by the time that a second wave has come to its end.
	for r, tasks := range ids {
		user := r.User(t, r.Namespace())
		for _, id := range tasks {
			pod := r.Pod(t, r.Namespace(), user.JobOf(t, id))
			r.Bind(t, pod)
			r.Run(t, pod)
			r.StartRunner(t, pod).Finish(t, map[string]any{"outcome": "succeeded"}, http.StatusNoContent)
			r.Exit(t, pod, 0, "")
			if ended := user.Await(t, id); ended.State != api.StateSucceeded {
				t.Errorf("task %s is %s/%s, want succeeded", id, ended.State, ended.Reason)
			}
		}
	}
	if created := first.JobsCreated(t, first.Namespace()); len(created) != 6 {
		t.Errorf("%d Jobs were ever created for 6 tasks: %v", len(created), created)
	}
	if deleted := first.JobsDeleted(t, first.Namespace()); len(deleted) != 0 {
		t.Errorf("Jobs were deleted: %v", deleted)
	}
}

func started(task api.Task) bool {
	return task.Attempt != nil && task.Attempt.State == api.AttemptStarted && task.Attempt.Pod != nil && task.Attempt.Pod.Name != ""
}

func verdicts(t *testing.T, user *rig.User, want map[string]wanted) {
	t.Helper()
	for id, w := range want {
		if ended := user.Await(t, id); ended.State != w.state || ended.Reason != w.reason {
			t.Errorf("task %s ended %s/%s (%s), want %s/%s", id, ended.State, ended.Reason, ended.Message, w.state, w.reason)
		}
	}
}

func evict(t *testing.T, r *rig.Rig, pod string) {
	t.Helper()
	err := r.Kube.PolicyV1().Evictions(r.Namespace()).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: r.Namespace()},
	})
	if err != nil {
		t.Fatalf("evict pod %s: %v", pod, err)
	}
}

// untilEnded waits until the kubelet says that the pod has ended.
func untilEnded(t *testing.T, r *rig.Rig, pod string) {
	t.Helper()
	rig.Eventually(t, "pod "+pod+" to end", func(ctx context.Context) (bool, error) {
		p, err := r.Kube.CoreV1().Pods(r.Namespace()).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			return false, fmt.Errorf("it is %s", p.Status.Phase)
		}
		return true, nil
	})
}

// untilOutage waits until every replica says that it is not ready, and then the time that the commands need to end.
func untilOutage(t *testing.T, r *rig.Rig) {
	t.Helper()
	for _, replica := range r.Replicas {
		rig.Eventually(t, replica.Name+" to say that it is not ready", func(ctx context.Context) (bool, error) {
			status, _, err := replica.Get(ctx, "/readyz")
			return status == http.StatusServiceUnavailable, err
		})
	}
	length := 20 * time.Second
	if full {
		length = time.Minute
	}
	time.Sleep(length) // the length of the outage, not a wait for something
}
