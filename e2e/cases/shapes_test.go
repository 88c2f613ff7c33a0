package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// ending is how the first Attempt of a Task has to end, and the Task itself.
type ending struct {
	outcome api.Outcome
	reason  string
	task    wanted
}

// endsAs waits for the end of a Task and holds it and its first Attempt against what is wanted: one cause, and its rule.
func endsAs(t *testing.T, user *rig.User, what, id string, want ending) api.Task {
	t.Helper()
	ended := user.Await(t, id)
	if ended.State != want.task.state || ended.Reason != want.task.reason {
		t.Errorf("%s ended %s/%s (%s), want %s/%s", what, ended.State, ended.Reason, ended.Message, want.task.state, want.task.reason)
	}
	attempts := user.Attempts(t, id)
	if len(attempts) == 0 {
		t.Errorf("%s made no attempt", what)
		return ended
	}
	if first := attempts[0]; first.Outcome != want.outcome || first.Reason != want.reason || first.Rule == "" {
		t.Errorf("%s: its first attempt ended %s/%s by %q (%s), want %s/%s", what, first.Outcome, first.Reason, first.Rule, first.Message, want.outcome, want.reason)
	}
	for i := range attempts[1:] {
		if before, next := attempts[i], attempts[i+1]; before.FinishedAt.IsZero() || next.ClaimedAt.Before(before.FinishedAt) {
			t.Errorf("%s: attempt %d was claimed before attempt %d had ended", what, next.Number, before.Number)
		}
	}
	return ended
}

// nothingLives holds that no Job and no pod of the tenant can run any more, once every Task of it has ended: shared check 2.
func nothingLives(t *testing.T, r *rig.Rig) {
	t.Helper()
	rig.Eventually(t, "nothing to be left that can run", func(ctx context.Context) (bool, error) {
		pods, err := r.Kube.CoreV1().Pods(r.Namespace()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, p := range pods.Items {
			if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && p.DeletionTimestamp == nil {
				return false, fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
			}
			if strings.Contains(strings.Join(p.Finalizers, " "), "slipway.dev/") {
				return false, fmt.Errorf("pod %s is still held", p.Name)
			}
		}
		jobs, err := r.Kube.BatchV1().Jobs(r.Namespace()).List(ctx, metav1.ListOptions{LabelSelector: "slipway.dev/state!=closed"})
		if err != nil {
			return false, err
		}
		for _, j := range jobs.Items {
			if j.DeletionTimestamp == nil {
				return false, fmt.Errorf("job %s is open", j.Name)
			}
		}
		return true, nil
	})
}

// patchStatus writes part of a pod's status, as whoever writes it would.
func patchStatus(t *testing.T, r *rig.Rig, pod *corev1.Pod, status corev1.PodStatus) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Kube.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatalf("write the status of pod %s: %v", pod.Name, err)
	}
}

// playNext binds and runs the pod of the Task's newest Attempt.
func playNext(t *testing.T, r *rig.Rig, user *rig.User, id string, number int) *corev1.Pod {
	t.Helper()
	seen := user.Until(t, id, fmt.Sprintf("to have a Job for attempt %d", number), func(task api.Task) bool {
		return task.Attempt != nil && int(task.Attempt.Number) == number && task.Attempt.Job != nil && task.Attempt.Job.Name != ""
	})
	pod := r.Pod(t, r.Namespace(), seen.Attempt.Job.Name)
	r.Bind(t, pod)
	r.Run(t, pod)
	return pod
}

// holdsFor holds that something stays as it is for a while.
func holdsFor(t *testing.T, length time.Duration, what string, check func(context.Context) (bool, error)) {
	t.Helper()
	for until := time.Now().Add(length); time.Now().Before(until); time.Sleep(200 * time.Millisecond) { // the pace of the reads
		if ok, err := check(t.Context()); err != nil || !ok {
			t.Fatalf("%s: not any more: %v", what, err)
		}
	}
}
