package kube

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/pkg/task"
)

// A queueing system suspends a Job as it is created and lets it go when there is room.
func TestAJobThatIsHeldBackRunsNoStartDeadlineAndIsKnownOnceItIsLetGo(t *testing.T) {
	r := newRig(t)
	tk, a := r.attempt(func(tk *task.Task) { tk.Spec.Pod.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "batch"} })
	held := have(r.client.job(tk, a))(t)
	held.Spec.Suspend = new(true)
	jobs := server.api.BatchV1().Jobs(r.namespace)
	if made := have(jobs.Create(t.Context(), held, metav1.CreateOptions{}))(t); made.Labels["kueue.x-k8s.io/queue-name"] != "batch" {
		t.Errorf("labels %v", made.Labels)
	}
	name, uid, err := r.client.Launch(t.Context(), tk, a)
	if err != nil {
		t.Fatal(err)
	}
	a.JobName, a.JobUID, a.State, a.LaunchedAt = name, uid, task.Launched, time.Now()
	for _, live := range []bool{true, false} {
		r.eventually("a suspended job", func(context.Context) bool {
			s := r.observe(a, live)
			return s.Job != nil && s.Job.Suspended && s.Job.Waited == 0
		})
	}
	if d := task.Decide(tk, a, r.observe(a, true), time.Now().Add(24*time.Hour)); d.Action != task.ActWait {
		t.Errorf("a day later: %+v", d)
	}
	created := r.job(a).CreationTimestamp.Time
	r.eventually("two seconds", func(context.Context) bool { return time.Since(created) > 2*time.Second }) // the API counts in seconds
	if _, err := jobs.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := r.pod(a)
	if pod.Labels["kueue.x-k8s.io/queue-name"] != "" {
		t.Error("the queue's label is on the pod")
	}
	for _, live := range []bool{true, false} {
		r.eventually("a job that was let go", func(context.Context) bool {
			s := r.observe(a, live)
			return s.Job != nil && !s.Job.Suspended && s.Job.Waited >= time.Second
		})
	}
}
