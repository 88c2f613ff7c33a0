package cases

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// The create is refused and the run is lost, or waited for. Shrunk: the tasks of 30 s end as soon as they have begun.
func TestCase08(t *testing.T) {
	replay(t, 8, "a full quota is waited for at no cost, what can never run fails at once", func(t *testing.T) {
		t.Run("a quota on Jobs", jobsQuota)
		t.Run("a quota on pods", podsQuota)
		t.Run("an invalid template", invalidTemplate)
		t.Run("a namespace that ends", terminatingNamespace)
	})
}

func makeQuota(t *testing.T, r *rig.Rig, name, key, value string) {
	t.Helper()
	hard := corev1.ResourceList{corev1.ResourceName(key): resource.MustParse(value)}
	_, err := r.Kube.CoreV1().ResourceQuotas(r.Namespace()).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make a quota: %v", err)
	}
	rig.Eventually(t, "the quota to be counted", func(ctx context.Context) (bool, error) {
		q, err := r.Kube.CoreV1().ResourceQuotas(r.Namespace()).Get(ctx, name, metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0, err
	})
}

func jobsQuota(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API, Env: map[string]string{"SLIPWAY_CALLER_RATE": "0"}}) // one caller watches all
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	makeQuota(t, r, "jobs", "count/jobs.batch", "2")
	lanes := map[string][]string{} // what was submitted, in order
	var ids []string
	for i := range 10 {
		submit := rig.Command(ns, "x")
		lane := fmt.Sprintf("volume:%s/data-%d", ns, i%3)
		submit["lane"] = lane
		id := user.Submit(t, submit).ID
		ids, lanes[lane] = append(ids, id), append(lanes[lane], id)
	}
	quotaShown := false
	begun := map[string][]string{}
	played := map[string]bool{}
	rig.Eventually(t, "every task to begin", func(context.Context) (bool, error) {
		for _, id := range ids {
			seen := user.Task(t, id)
			quotaShown = quotaShown || seen.Waiting != nil && seen.Waiting.Reason == "quota"
			if played[id] || seen.Attempt == nil || seen.Attempt.Job == nil || seen.Attempt.Job.Name == "" {
				continue
			}
			played[id] = true
			begun[seen.Lane] = append(begun[seen.Lane], id)
			pod := r.Pod(t, ns, seen.Attempt.Job.Name)
			r.Bind(t, pod)
			r.Run(t, pod)
			r.StartRunner(t, pod).Finish(t, map[string]any{"outcome": "succeeded"}, http.StatusNoContent)
			r.Exit(t, pod, 0, "")
		}
		if len(played) < len(ids) {
			return false, fmt.Errorf("%d of %d have begun", len(played), len(ids))
		}
		return true, nil
	})
	for i, id := range ids {
		endsAs(t, user, fmt.Sprintf("task %d", i+1), id, ending{api.OutcomeSucceeded, "", succeeded})
		if made := user.Attempts(t, id); len(made) != 1 {
			t.Errorf("task %d made %d attempts: waiting for a quota is none", i+1, len(made))
		}
	}
	if !quotaShown {
		t.Error("no task ever said that it waits for the quota")
	}
	for lane, order := range lanes {
		if !slices.Equal(begun[lane], order) {
			t.Errorf("lane %s began %v, submitted %v", lane, begun[lane], order)
		}
	}
	nothingLives(t, r)
}

// podsQuota has the same pod taken once before there is a quota: what the dry run said then is remembered, so that the next
// Job is made, and only its pod is refused.
func podsQuota(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	submit := rig.Command(ns, "x")
	submit["spec"] = map[string]any{"requests": map[string]string{"memory": "64Mi"}, "retry": map[string]any{"attempts": 1, "lost": 0}}
	before := user.Submit(t, submit).ID
	first := playNext(t, r, user, before, 1)
	r.StartRunner(t, first).Finish(t, map[string]any{"outcome": "succeeded"}, http.StatusNoContent)
	r.Exit(t, first, 0, "")
	user.Await(t, before)
	makeQuota(t, r, "memory", "requests.memory", "32Mi")
	began := time.Now()
	id := user.Submit(t, submit).ID
	shown := user.Until(t, id, "to wait for the quota outside of the cluster", func(task api.Task) bool {
		return task.State == api.StateQueued && task.Waiting != nil && task.Waiting.Reason == "quota" && strings.Contains(task.Waiting.Note, "quota")
	})
	t.Logf("quota shown after %v", time.Since(began).Round(100*time.Millisecond))
	if shown.Spent.Attempts != 0 || shown.Spent.Lost != 0 {
		t.Errorf("the quota has cost %+v", shown.Spent)
	}
	patch := `{"spec":{"hard":{"requests.memory":"1Gi"}}}`
	if _, err := r.Kube.CoreV1().ResourceQuotas(ns).Patch(t.Context(), "memory", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatalf("make room: %v", err)
	}
	var pod *corev1.Pod
	rig.Eventually(t, "a pod once there is room", func(ctx context.Context) (bool, error) {
		pods, err := r.Kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "slipway.dev/task=" + id})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
		pod = &pods.Items[0]
		return true, nil
	})
	r.Bind(t, pod)
	r.Run(t, pod)
	r.StartRunner(t, pod).Finish(t, map[string]any{"outcome": "succeeded"}, http.StatusNoContent)
	r.Exit(t, pod, 0, "")
	if ended := user.Await(t, id); ended.State != api.StateSucceeded || ended.Spent.Lost != 0 {
		t.Errorf("the task is %s/%s, spent %d of the lost budget", ended.State, ended.Reason, ended.Spent.Lost)
	}
	nothingLives(t, r)
}

func invalidTemplate(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user := r.User(t, r.Namespace())
	submit := rig.Command(r.Namespace(), "x")
	submit["spec"] = map[string]any{"requests": map[string]string{"memory": "64Mi"}, "limits": map[string]string{"memory": "32Mi"}}
	id := user.Submit(t, submit).ID
	ended := endsAs(t, user, "a limit below its request", id, ending{api.OutcomeRejected, "invalid", wanted{api.StateFailed, "invalid"}})
	if !strings.Contains(ended.Message, "must be less than or equal to memory limit") {
		t.Errorf("the message is %q, want the server's", ended.Message)
	}
	if made := user.Attempts(t, id); len(made) != 1 {
		t.Errorf("%d attempts at what can never run", len(made))
	}
	nothingLives(t, r)
}

// The namespace is held in its end by an object with somebody's finalizer, as real ones are, while roles and bindings are
// gone already.
func terminatingNamespace(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API, Namespaces: 2})
	user, ending := r.User(t, r.Namespace()), r.Namespaces[1]
	other := r.User(t, ending)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
	if _, err := r.Kube.CoreV1().ConfigMaps(ending).Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = r.Kube.CoreV1().ConfigMaps(ending).Patch(context.Background(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	submit := rig.Command(ending, "x")
	submit["delay"] = 4
	id := other.Submit(t, submit).ID
	if err := r.Kube.CoreV1().Namespaces().Delete(t.Context(), ending, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var state, reason, message string
	rig.Eventually(t, "the task of the namespace to end", func(context.Context) (bool, error) {
		state = r.Value(t, "SELECT state || '|' || reason || '|' || message FROM slipway.tasks WHERE id = '"+id+"'")
		parts := strings.SplitN(state, "|", 3)
		state, reason, message = parts[0], parts[1], parts[2]
		if state != "failed" {
			return false, fmt.Errorf("it is %s/%s (%s); waits: %s", state, reason, message, r.Value(t, "SELECT coalesce(string_agg(wait || ': ' || wait_note, ', '), '') FROM slipway.attempts"))
		}
		return true, nil
	})
	if reason != "namespace_gone" {
		t.Errorf("it ended %s/%s (%s), want failed/namespace_gone", state, reason, message)
	}
	if ended := user.Submit(t, rig.Command(r.Namespace(), "x")); ended.ID == "" {
		t.Error("the other tenant is not served")
	}
}
