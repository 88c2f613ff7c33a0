package cases

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// Killed for memory, yet exit code 0, yet "succeeded". Nothing is shrunk.
func TestCase10(t *testing.T) {
	replay(t, 10, "killed for memory is never a plain success; 137 by memory, deadline and cancel are told apart", func(t *testing.T) {
		t.Run("real kills", killedForMemory)
		t.Run("by hand", killedForMemoryByHand)
	})
}

const (
	child  = "tail /dev/zero; exit 0"                  // the parent ignores that its child was killed
	parent = "exec tail /dev/zero"                     // exit 137
	deaf   = `trap "" TERM; while :; do sleep 1; done` // only SIGKILL ends it: exit 137
	memory = "64Mi"
)

func killedForMemory(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.Node})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	limited := func(line string) map[string]any {
		return shell(ns, line, map[string]any{"limits": map[string]string{"memory": memory}, "requests": map[string]string{"memory": "16Mi"}, "grace": 1})
	}
	bare := func(line string, spec map[string]any) map[string]any {
		submit := container(t, r, map[string]any{"command": []string{"sh", "-c", line}, "wrap": false})
		full := map[string]any{"limits": map[string]string{"memory": memory}, "requests": map[string]string{"memory": "16Mi"}, "grace": 1}
		for k, v := range spec {
			full[k] = v
		}
		submit["spec"] = full
		return submit
	}
	memoryGone := ending{api.OutcomeFailed, "oom_killed", noMemory}
	late := ending{api.OutcomeTimedOut, "deadline", wanted{api.StateFailed, "deadline"}}
	stopped := ending{api.OutcomeCanceled, "cancel", wanted{api.StateCanceled, "cancel"}}
	overtime := limited(deaf)
	overtime["spec"].(map[string]any)["run_deadline"] = 4 //nolint:forcetypeassert // made above
	forms := []struct {
		what   string
		submit map[string]any
		cancel bool
		want   ending
	}{
		{"a child, exit 0", limited(child), false, memoryGone},
		{"the parent, exit 137", limited(parent), false, memoryGone},
		{"a child without a runner, exit 0", bare(child, nil), false, memoryGone},
		{"the parent without a runner", bare(parent, nil), false, memoryGone},
		{"137 by deadline", overtime, false, late},
		{"137 by deadline without a runner", bare(deaf, map[string]any{"run_deadline": 4}), false, late},
		{"137 by cancel", limited(deaf), true, stopped},
		{"137 by cancel without a runner", bare(deaf, nil), true, stopped},
	}
	ids := make([]string, len(forms))
	for i, f := range forms {
		ids[i] = user.Submit(t, f.submit).ID
	}
	for i, f := range forms {
		if f.cancel {
			user.Until(t, ids[i], "to be started", started)
			user.Must(t, http.MethodPost, "/v1/tasks/"+ids[i]+"/cancel", nil, http.StatusAccepted)
		}
	}
	for i, f := range forms {
		endsAs(t, user, f.what, ids[i], f.want)
	}
	nothingLives(t, r)
}

func killedForMemoryByHand(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user := r.User(t, r.Namespace())
	for _, f := range []struct {
		what   string
		report map[string]any // nil: the runner says nothing
		want   ending
	}{
		{"without a word", nil, ending{api.OutcomeFailed, "oom_killed", noMemory}},
		{"with a result of its own", map[string]any{"outcome": "succeeded", "result": map[string]any{"rows": 3}}, ending{api.OutcomeSucceeded, "", succeeded}},
	} {
		submit := rig.Command(r.Namespace(), "x")
		submit["spec"] = map[string]any{"retry": map[string]any{"attempts": 1}}
		id := user.Submit(t, submit).ID
		pod := playNext(t, r, user, id, 1)
		runner := r.StartRunner(t, pod)
		if f.report != nil {
			runner.Finish(t, f.report, http.StatusNoContent)
		}
		r.Play(t, pod, corev1.PodSucceeded, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 0, Reason: "OOMKilled", StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
		}})
		endsAs(t, user, f.what, id, f.want)
	}
	nothingLives(t, r)
}
