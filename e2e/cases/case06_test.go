package cases

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// The node or pod disappears while the task counts as running. Shrunk: fence time is let pass by moving the database's
// clock, except with FULL=1, where a real kubelet is frozen for as long as it takes.
func TestCase06(t *testing.T) {
	play := replay
	if full {
		play = replayAlone // the kubelet is stopped
	}
	play(t, 6, "lost says by what, the lane is handed on when nothing can write, and not before", func(t *testing.T) {
		t.Run("a real kubelet", takenAway)
		t.Run("a node that is deleted", nodeDeleted)
		t.Run("a node that went silent", nodeSilent)
		t.Run("a node out of service under an image without a runner", nodeOutOfService)
		if full {
			t.Run("a kubelet that stopped", kubeletStopped)
		}
	})
}

// firstTime is a shell line that works without end at the first attempt, and ends well at the next.
const firstTime = `if [ "$SLIPWAY_ATTEMPT_NUMBER" = 1 ]; then sleep 600; fi`

var again = map[string]any{"idempotent": true, "retry": map[string]any{"attempts": 1, "lost": 3}}

// inLane submits a task and one behind it in the same lane.
func inLane(t *testing.T, user *rig.User, name string, submit map[string]any) (id, behind string) {
	t.Helper()
	ns := user.Rig().Namespace()
	submit["lane"] = "volume:" + ns + "/" + name
	id = user.Submit(t, submit).ID
	next := shell(ns, "exit 0", nil)
	next["lane"] = submit["lane"]
	return id, user.Submit(t, next).ID
}

// takenAway loses pods in each way that leaves a kubelet to say so.
func takenAway(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.Node})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	deleteJob := func(policy metav1.DeletionPropagation) func(seen api.Task) error {
		return func(seen api.Task) error {
			return r.Kube.BatchV1().Jobs(ns).Delete(t.Context(), seen.Attempt.Job.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
		}
	}
	forms := []struct {
		what   string
		take   func(seen api.Task) error
		reason string
	}{
		{"eviction", func(seen api.Task) error { evict(t, r, seen.Attempt.Pod.Name); return nil }, "evicted"},
		{"forced delete", func(seen api.Task) error {
			return r.Kube.CoreV1().Pods(ns).Delete(t.Context(), seen.Attempt.Pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		}, "deleted"},
		{"background delete of the Job", deleteJob(metav1.DeletePropagationBackground), "deleted"},
		{"orphaning delete of the Job", deleteJob(metav1.DeletePropagationOrphan), ""},
	}
	ids, behind, runs := make([]string, len(forms)), make([]string, len(forms)), make([]api.Task, len(forms))
	for i := range forms {
		line := "echo first; " + firstTime
		if forms[i].reason == "" {
			line = "echo first; sleep 8"
		}
		ids[i], behind[i] = inLane(t, user, fmt.Sprintf("data-%d", i), shell(ns, line, again))
	}
	for i := range forms {
		runs[i] = user.Until(t, ids[i], "to be started", started)
	}
	for i, f := range forms {
		if err := f.take(runs[i]); err != nil {
			t.Fatalf("%s: %v", f.what, err)
		}
	}
	for i, f := range forms {
		want := ending{api.OutcomeLost, f.reason, succeeded}
		if f.reason == "" { // nobody touched the pod: its work goes on, and ends well
			want.outcome = api.OutcomeSucceeded
		}
		endsAs(t, user, f.what, ids[i], want)
		if next := user.Await(t, behind[i]); next.State != api.StateSucceeded {
			t.Errorf("%s: the task behind it is %s/%s", f.what, next.State, next.Reason)
		}
		user.Must(t, http.MethodGet, "/v1/tasks/"+ids[i]+"/logs?attempt=1", nil, http.StatusOK, http.StatusNotFound)
	}
	nothingLives(t, r)
}

// onItsOwnNode starts a task whose pod the test plays on a Node of its own, and one behind it.
func onItsOwnNode(t *testing.T, r *rig.Rig, user *rig.User, submit map[string]any) (id, behind, node string, pod *corev1.Pod) {
	t.Helper()
	node = rig.Name("node")
	if _, err := r.Kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Kube.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{}) })
	id, behind = inLane(t, user, "data", submit)
	pod = r.Pod(t, r.Namespace(), user.JobOf(t, id))
	err := r.Kube.CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Run(t, pod)
	r.StartRunner(t, pod)
	user.Until(t, id, "to be started", started)
	return id, behind, node, pod
}

// clockMoves moves the clock by which the database decides and stamps.
func clockMoves(t *testing.T, r *rig.Rig, by time.Duration) {
	t.Helper()
	for name, volatility := range map[string]string{"now": "STABLE", "stamp": "VOLATILE"} {
		r.Exec(t, fmt.Sprintf(`CREATE OR REPLACE FUNCTION slipway.%s() RETURNS timestamptz LANGUAGE sql %s AS 'SELECT clock_timestamp() + interval ''%d seconds'''`,
			name, volatility, int(by.Seconds())))
	}
}

// keepsItsLane holds that a task runs on, and what is behind it waits for its lane.
func keepsItsLane(t *testing.T, user *rig.User, id, behind string) {
	t.Helper()
	holdsFor(t, 3*time.Second, "the lane of a pod that may still write", func(context.Context) (bool, error) {
		seen, next := user.Task(t, id), user.Task(t, behind)
		return seen.State == api.StateRunning && next.State == api.StateQueued, nil
	})
}

func lostNode(t *testing.T, user *rig.User, what, id, behind string) {
	t.Helper()
	endsAs(t, user, what, id, ending{api.OutcomeLost, "node_lost", wanted{api.StateFailed, "node_lost"}})
	user.Until(t, behind, "to have the lane", func(task api.Task) bool { return task.State == api.StateRunning })
}

func once(spec map[string]any) map[string]any {
	full := map[string]any{"idempotent": true, "retry": map[string]any{"attempts": 1, "lost": 0}, "fence_after": 60, "grace": 1}
	for k, v := range spec {
		full[k] = v
	}
	return full
}

// nodeDeleted plays the pod garbage collector, who ends and deletes the pods of a Node that is not there: its word is not
// the kubelet's, so that the lane waits for fence time.
func nodeDeleted(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user := r.User(t, r.Namespace())
	submit := rig.Command(r.Namespace(), "x")
	submit["spec"] = once(nil)
	id, behind, node, pod := onItsOwnNode(t, r, user, submit)
	if err := r.Kube.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	patchStatus(t, r, pod, corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists"},
	}})
	if err := r.Kube.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	keepsItsLane(t, user, id, behind)
	clockMoves(t, r, 100*time.Second)
	lostNode(t, user, "on a deleted node", id, behind)
}

// nodeSilent leaves a pod on a Node whose heartbeat stopped, as the node controller says it, and a runner that is silent.
func nodeSilent(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user := r.User(t, r.Namespace())
	submit := rig.Command(r.Namespace(), "x")
	submit["spec"] = once(nil)
	id, behind, node, _ := onItsOwnNode(t, r, user, submit)
	silent := `{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}`
	if _, err := r.Kube.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(silent), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	keepsItsLane(t, user, id, behind)
	clockMoves(t, r, 80*time.Second) // beyond fence_after, within the margin
	keepsItsLane(t, user, id, behind)
	clockMoves(t, r, 100*time.Second)
	lostNode(t, user, "on a silent node", id, behind)
}

// nodeOutOfService has no runner inside the pod: no time that passes says that its container has stopped, a person does.
func nodeOutOfService(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user := r.User(t, r.Namespace())
	submit := container(t, r, map[string]any{"wrap": false})
	submit["params"].(map[string]any)["image"] = "registry.example/tools:1" //nolint:forcetypeassert // made above
	submit["spec"] = once(nil)
	id, behind, node, pod := onItsOwnNode(t, r, user, submit)
	if err := r.Kube.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil { // as the taint manager does
		t.Fatal(err)
	}
	clockMoves(t, r, 1000*time.Second)
	keepsItsLane(t, user, id, behind)
	taint := `{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]}}`
	if _, err := r.Kube.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(taint), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	lostNode(t, user, "on a node out of service", id, behind)
}

// kubeletStopped freezes the kubelet and cuts the runner off, as a node that loses its network does.
func kubeletStopped(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.Node})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	submit := shell(ns, "sleep 600", once(map[string]any{"fence_after": 15}))
	id, behind := inLane(t, user, "data", submit)
	user.Until(t, id, "to be started", started)
	r.Gate.Cut()
	direct := user.Via(r.Replicas[0].Address)
	if err := r.Cluster.StopPart(t.Context(), "kubelet"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Cluster.StartPart(context.Background(), "kubelet"); err != nil {
			t.Errorf("start the kubelet again: %v", err)
		}
	})
	holdsFor(t, 30*time.Second, "the lane of a pod that may still write", func(context.Context) (bool, error) {
		return direct.Task(t, id).State == api.StateRunning && direct.Task(t, behind).State == api.StateQueued, nil
	})
	lostNode(t, direct, "on a node without a kubelet", id, behind)
	r.Gate.Mend()
}
