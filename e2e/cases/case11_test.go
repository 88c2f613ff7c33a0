package cases

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// Declared failed on time-out, but the Job is left and runs later. Shrunk: start limits of 3 s, and 10 s of looking for
// what may start later instead of 5 minutes.
func TestCase11(t *testing.T) {
	replay(t, 11, "nothing of an ended task starts later", func(t *testing.T) {
		t.Run("no node fits, until it is too late", roomComesTooLate)
		t.Run("bound by hand after the end", boundTooLate)
	})
}

func lookLater() time.Duration {
	if full {
		return 5 * time.Minute
	}
	return 10 * time.Second
}

func startLimit() float64 {
	if full {
		return 30
	}
	return 3
}

func roomComesTooLate(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.Node})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	label := "case11-" + rig.Name("place")
	submit := shell(ns, "echo began", map[string]any{
		"idempotent": true, "node_selector": map[string]string{label: "yes"}, "capacity_deadline": startLimit(),
		"retry": map[string]any{"attempts": 2, "lost": 1},
	})
	submit["lane"] = "volume:" + ns + "/data"
	id := user.Submit(t, submit).ID
	behind := shell(ns, "echo behind", nil)
	behind["lane"] = submit["lane"]
	next := user.Submit(t, behind).ID
	user.Until(t, id, "to wait for capacity", func(task api.Task) bool { return task.Waiting != nil && task.Waiting.Reason == "capacity" })
	endsAs(t, user, "without a node", id, ending{api.OutcomeTimedOut, "unschedulable", wanted{api.StateFailed, "unschedulable"}})
	mark := func(value string) {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, label, value)
		if _, err := r.Kube.CoreV1().Nodes().Patch(context.Background(), r.Cluster.NodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Errorf("label the node: %v", err)
		}
	}
	mark(`"yes"`)
	t.Cleanup(func() { mark("null") })
	if ended := user.Await(t, next); ended.State != api.StateSucceeded {
		t.Errorf("the task behind it is %s/%s", ended.State, ended.Reason)
	}
	nothingStarts(t, r, user, id, 2)
}

// nothingStarts holds that no pod of an ended Task starts, or is left where it could.
func nothingStarts(t *testing.T, r *rig.Rig, user *rig.User, id string, attempts int) {
	t.Helper()
	if made := user.Attempts(t, id); len(made) != attempts {
		t.Errorf("%d attempts, want %d", len(made), attempts)
	}
	nothingLives(t, r)
	holdsFor(t, lookLater(), "no pod of the ended task", func(ctx context.Context) (bool, error) {
		pods, err := r.Kube.CoreV1().Pods(r.Namespace()).List(ctx, metav1.ListOptions{LabelSelector: "slipway.dev/task=" + id})
		if err != nil {
			return false, err
		}
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil {
				return false, fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
			}
		}
		return true, nil
	})
}

func boundTooLate(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user := r.User(t, r.Namespace())
	submit := rig.Command(r.Namespace(), "x")
	submit["lane"] = "volume:" + r.Namespace() + "/data"
	submit["spec"] = map[string]any{"idempotent": true, "start_deadline": startLimit(), "grace": 1, "retry": map[string]any{"attempts": 2, "lost": 1}}
	id := user.Submit(t, submit).ID
	var pods []*corev1.Pod
	for n := range 2 {
		seen := user.Until(t, id, fmt.Sprintf("to have attempt %d", n+1), func(task api.Task) bool {
			return task.Attempt != nil && int(task.Attempt.Number) == n+1 && task.Attempt.Job != nil && task.Attempt.Job.Name != ""
		})
		pods = append(pods, r.Pod(t, r.Namespace(), seen.Attempt.Job.Name))
		if n == 1 { // the first one was over before the second began
			bindIsRefused(t, r, pods[0])
		}
	}
	endsAs(t, user, "never bound", id, ending{api.OutcomeTimedOut, "start", wanted{api.StateFailed, "start"}})
	for _, p := range pods {
		bindIsRefused(t, r, p)
	}
	nothingStarts(t, r, user, id, 2)
}

// bindIsRefused tries to bring an ended Attempt's pod to a node.
func bindIsRefused(t *testing.T, r *rig.Rig, pod *corev1.Pod) {
	t.Helper()
	err := r.Kube.CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "played"},
	}, metav1.CreateOptions{})
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		t.Errorf("bind the pod of an ended attempt: %v, want a conflict or that it is gone", err)
	}
}
