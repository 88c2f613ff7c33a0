package cases

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// The image can never be pulled and the run waits for ever. Shrunk: start and capacity limits of some seconds. The tag that
// a registry does not know, and the registry that comes back, are played: the node pulls from no registry of a test.
func TestCase07(t *testing.T) {
	replay(t, 7, "a start that cannot work is named, and fails fast or waits by cause", func(t *testing.T) {
		t.Run("a real kubelet", cannotStart)
		t.Run("a tag that does not exist", unknownTag)
		t.Run("a registry that comes back", registryComesBack)
	})
}

func cannotStart(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.Node})
	user := r.User(t, r.Namespace())
	forms := startForms(t, r)
	ids := make([]string, len(forms))
	began := time.Now()
	for i, f := range forms {
		ids[i] = user.Submit(t, f.submit).ID
	}
	for i, f := range forms {
		if f.waits != "" {
			user.Until(t, ids[i], "to wait for "+f.waits, func(task api.Task) bool {
				return task.Outcome != "" || task.Waiting != nil && task.Waiting.Reason == f.waits && task.Waiting.Note != ""
			})
		}
	}
	for i, f := range forms {
		ended := endsAs(t, user, f.what, ids[i], f.want)
		if f.fast && ended.EndedAt.Sub(began) > 60*time.Second {
			t.Errorf("%s: it took %v", f.what, ended.EndedAt.Sub(began))
		}
	}
	nothingLives(t, r)
}

// limited is a played task with a start limit of some seconds, and one attempt of its own.
func limited(r *rig.Rig) map[string]any {
	submit := rig.Command(r.Namespace(), "x")
	submit["spec"] = map[string]any{"start_deadline": 4, "grace": 1, "retry": map[string]any{"attempts": 1, "lost": 3}}
	return submit
}

// cannotPull plays a kubelet that pulls in vain until it is told to stop: the pod's own deadline ends it.
func cannotPull(t *testing.T, r *rig.Rig, user *rig.User, id, why string) {
	t.Helper()
	pod := r.Pod(t, r.Namespace(), user.JobOf(t, id))
	r.Bind(t, pod)
	r.Play(t, pod, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: why}})
	user.Until(t, id, "to say what keeps it from starting", func(task api.Task) bool {
		return task.Waiting != nil && task.Waiting.Reason == "start" && strings.Contains(task.Waiting.Note, why)
	})
	rig.Eventually(t, "the pod to be told to stop", func(ctx context.Context) (bool, error) {
		now, err := r.Kube.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && now.Spec.ActiveDeadlineSeconds != nil && *now.Spec.ActiveDeadlineSeconds == 1, err
	})
	patchStatus(t, r, pod, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded"})
}

func unknownTag(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user := r.User(t, r.Namespace())
	id := user.Submit(t, limited(r)).ID
	cannotPull(t, r, user, id, "failed to resolve reference: registry.example/tools:none: not found")
	endsAs(t, user, "a tag that does not exist", id, ending{api.OutcomeTimedOut, "image_pull", wanted{api.StateFailed, "image_pull"}})
	nothingLives(t, r)
}

func registryComesBack(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user := r.User(t, r.Namespace())
	id := user.Submit(t, limited(r)).ID
	cannotPull(t, r, user, id, "dial tcp 10.0.0.9:5000: connect: connection refused")
	pod := playNext(t, r, user, id, 2)
	r.StartRunner(t, pod).Finish(t, map[string]any{"outcome": "succeeded"}, http.StatusNoContent)
	r.Exit(t, pod, 0, "")
	ended := endsAs(t, user, "a registry that comes back", id, ending{api.OutcomeTimedOut, "registry", succeeded})
	if ended.Spent.Lost != 1 || ended.Spent.Attempts > 1 {
		t.Errorf("it has spent %+v, want nothing of the task's own for a registry that was away", ended.Spent)
	}
	nothingLives(t, r)
}

// startForm is one way not to start.
type startForm struct {
	what, waits string
	submit      map[string]any
	fast        bool
	want        ending
}

func startForms(t *testing.T, r *rig.Rig) []startForm {
	t.Helper()
	limit := 20.0
	if full {
		limit = 120
	}
	run := func(image string, spec map[string]any) map[string]any {
		submit := container(t, r, map[string]any{"command": []string{"/bin/busybox", "true"}})
		if image != "" {
			submit["params"].(map[string]any)["image"] = image //nolint:forcetypeassert // made above
		}
		whole := map[string]any{"start_deadline": limit, "capacity_deadline": limit, "grace": 1, "retry": map[string]any{"attempts": 1, "lost": 0}}
		for k, v := range spec {
			whole[k] = v
		}
		submit["spec"] = whole
		return submit
	}
	rejected := ending{api.OutcomeRejected, "config", wanted{api.StateFailed, "config"}}
	late := func(reason string) ending {
		return ending{api.OutcomeTimedOut, reason, wanted{api.StateFailed, reason}}
	}
	// Those that fail fast come before the limit, however late a busy kubelet gets to them.
	fast := map[string]any{"start_deadline": 120}
	key := map[string]any{"start_deadline": 120, "pod": map[string]any{"env": map[string]any{"PASSWORD": map[string]any{"secretRef": map[string]string{"name": "none", "key": "password"}}}}}
	return []startForm{
		{"a registry that nobody serves", "start", run("127.0.0.1:1/none:such", nil), false, late("registry")},
		{"a malformed name", "", run("Registry.Example/UPPER:tag:tag", fast), true, rejected},
		{"a missing secret", "", run("", key), true, rejected},
		{"500 CPUs", "capacity", run("", map[string]any{"requests": map[string]string{"cpu": "500"}}), false, late("unschedulable")},
	}
}
