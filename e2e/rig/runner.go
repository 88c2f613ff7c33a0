package rig

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/pkg/api"
)

// PlayedRunner speaks the runner's protocol for a pod that the test plays.
type PlayedRunner struct {
	Attempt, Fence int64
	Pod            *corev1.Pod
	Answer         api.StartAnswer

	call *User
}

// StartRunner plays a runner that wins start in pod; while a part that this needs is away it tries again, as a runner does.
func (r *Rig) StartRunner(t testing.TB, pod *corev1.Pod) *PlayedRunner {
	t.Helper()
	p := &PlayedRunner{
		Attempt: labelNumber(t, pod, "slipway.dev/attempt"), Fence: labelNumber(t, pod, "slipway.dev/fence"),
		Pod: pod, call: &User{rig: r, Token: r.PodToken(t, pod)},
	}
	var a Answer
	Eventually(t, "an answer to the start in "+pod.Name, func(ctx context.Context) (bool, error) {
		var err error
		a, err = p.call.Do(ctx, http.MethodPost, "/v1/runner/start", map[string]any{"attempt": p.Attempt, "fence": p.Fence})
		return err == nil && a.Status != http.StatusServiceUnavailable, err
	})
	if a.Status != http.StatusOK {
		t.Fatalf("the start in %s is answered %d %s", pod.Name, a.Status, a.Body)
	}
	p.Answer = decode[api.StartAnswer](t, a)
	p.call = &User{rig: r, Token: p.Answer.SessionKey}
	return p
}

// Finish reports the end of the handler; body is laid over what identifies the Attempt.
func (p *PlayedRunner) Finish(t testing.TB, body map[string]any, want ...int) Answer {
	t.Helper()
	return p.call.Must(t, http.MethodPost, "/v1/runner/finish", p.report(body), want...)
}

// TryFinish reports in the same way, and leaves to the caller what is answered.
func (p *PlayedRunner) TryFinish(ctx context.Context, body map[string]any) (Answer, error) {
	return p.call.Do(ctx, http.MethodPost, "/v1/runner/finish", p.report(body))
}

func (p *PlayedRunner) report(body map[string]any) map[string]any {
	full := map[string]any{"attempt": p.Attempt, "fence": p.Fence, "pod_uid": string(p.Pod.UID)}
	maps.Copy(full, body)
	return full
}

// Beat sends one heartbeat.
func (p *PlayedRunner) Beat(t testing.TB, want ...int) Answer {
	t.Helper()
	return p.call.Must(t, http.MethodPost, "/v1/runner/heartbeat",
		map[string]any{"attempt": p.Attempt, "fence": p.Fence, "pod_uid": string(p.Pod.UID)}, want...)
}

func labelNumber(t testing.TB, pod *corev1.Pod, label string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(pod.Labels[label], 10, 64)
	if err != nil {
		t.Fatalf("read label %s of pod %s: %v", label, pod.Name, err)
	}
	return n
}

// JobOf waits until the Task's newest Attempt has a Job and gives its name.
func (u *User) JobOf(t testing.TB, id string) string {
	t.Helper()
	seen := u.Until(t, id, "to have a Job", func(task api.Task) bool {
		return task.Attempt != nil && task.Attempt.Job != nil && task.Attempt.Job.Name != ""
	})
	return seen.Attempt.Job.Name
}

// PodOf waits until the Job of the Task's newest Attempt has a pod and gives its name.
func (u *User) PodOf(t testing.TB, id string) string {
	t.Helper()
	return u.rig.Pod(t, u.rig.Namespace(), u.JobOf(t, id)).Name
}
