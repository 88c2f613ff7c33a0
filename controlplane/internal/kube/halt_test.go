package kube

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/pkg/task"
)

func (r *rig) halt(tk task.Task, a task.Attempt, since time.Duration) {
	r.t.Helper()
	if err := r.client.Halt(r.t.Context(), tk, a, since); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) jobGone(a task.Attempt) bool {
	_, err := server.api.BatchV1().Jobs(a.Namespace).Get(r.t.Context(), a.JobName, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

func (r *rig) fresh(p *corev1.Pod) *corev1.Pod {
	r.t.Helper()
	return have(server.api.CoreV1().Pods(p.Namespace).Get(r.t.Context(), p.Name, metav1.GetOptions{}))(r.t)
}

func TestABoundPodIsHaltedByItsDeadline(t *testing.T) {
	r := newRig(t)
	tk, a, pod := r.launch()
	r.bind(pod)
	r.running(pod)
	r.halt(tk, a, 0)
	is := r.fresh(pod)
	if is.DeletionTimestamp != nil || is.Spec.ActiveDeadlineSeconds == nil || *is.Spec.ActiveDeadlineSeconds != 1 {
		t.Fatalf("deadline %v, deleted %v", is.Spec.ActiveDeadlineSeconds, is.DeletionTimestamp)
	}
	if job := r.job(a); job.DeletionTimestamp != nil {
		t.Fatal("the job is being deleted")
	}
	// A second call changes nothing once the cache has heard of the first.
	r.eventually("the lowered deadline in the cache", func(context.Context) bool {
		p := r.client.cache.pod(pod.Namespace, pod.Name)
		return p != nil && p.Spec.ActiveDeadlineSeconds != nil && *p.Spec.ActiveDeadlineSeconds == 1
	})
	before := r.client.Calls()
	r.halt(tk, a, time.Second)
	if after := r.client.Calls()[Call{"patch", "pods"}]; after != before[Call{"patch", "pods"}] {
		t.Error("it was patched again")
	}
}

func TestAPodThatWasNeverBoundIsDeletedAfterItsJob(t *testing.T) {
	r := newRig(t)
	tk, a, pod := r.launch()
	r.halt(tk, a, 0)
	if !r.jobGone(a) {
		t.Error("the job is still there")
	}
	if is := r.fresh(pod); is.DeletionTimestamp == nil {
		t.Error("the pod is not being deleted")
	}
	// It stays as evidence, can never be bound, and so the attempt is over.
	err := server.api.CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "paper"},
	}, metav1.CreateOptions{})
	if !apierrors.IsConflict(err) {
		t.Errorf("a bind of a deleted pod: %v", err)
	}
	if over, _ := task.Over(tk.Spec, a, r.observe(a, true), time.Now()); !over {
		t.Error("it is not over")
	}
}

func TestAJobWithoutAPodIsDeleted(t *testing.T) {
	r := newRig(t)
	r.quota(corev1.ResourceList{"pods": resource.MustParse("0")})
	tk, a := r.attempt()
	a.JobName, a.JobUID, _ = launchOnly(t, r, tk, a)
	r.eventually("the job in the cache", func(context.Context) bool { return r.observe(a, false).Job != nil })
	r.halt(tk, a, 0)
	if !r.jobGone(a) {
		t.Error("the job is still there")
	}
}

func launchOnly(t *testing.T, r *rig, tk task.Task, a task.Attempt) (name, uid string, err error) {
	t.Helper()
	if name, uid, err = r.client.Launch(t.Context(), tk, a); err != nil {
		t.Fatal(err)
	}
	return name, uid, nil
}

func TestAPodThatDoesNotObeyIsDeleted(t *testing.T) {
	r := newRig(t)
	tk, a, pod := r.launch()
	r.bind(pod)
	r.running(pod)
	r.halt(tk, a, tk.Spec.Grace.Duration()+reportSlack+disobeys)
	if r.jobGone(a) || r.fresh(pod).DeletionTimestamp != nil {
		t.Fatal("deleted before its time")
	}
	r.halt(tk, a, tk.Spec.Grace.Duration()+reportSlack+disobeys+time.Second)
	if !r.jobGone(a) {
		t.Error("the job is still there")
	}
	if r.fresh(pod).DeletionTimestamp == nil {
		t.Error("the pod is not being deleted")
	}
}

func TestASecondPodIsHaltedToo(t *testing.T) {
	r := newRig(t)
	tk, a, pod := r.launch()
	r.bind(pod)
	r.running(pod)
	other := r.fresh(pod).DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Name: pod.Name + "-2", Namespace: pod.Namespace, Labels: pod.Labels, Finalizers: []string{Finalizer}}
	other.Spec.NodeName, other.Status = "", corev1.PodStatus{}
	made := have(server.api.CoreV1().Pods(r.namespace).Create(t.Context(), other, metav1.CreateOptions{}))(t)
	r.sees(made, func(task.SeenPod) bool { return true })
	r.halt(tk, a, 0)
	if is := r.fresh(pod); is.Spec.ActiveDeadlineSeconds == nil || *is.Spec.ActiveDeadlineSeconds != 1 {
		t.Error("the bound one was not asked to stop")
	}
	if r.fresh(made).DeletionTimestamp == nil {
		t.Error("the unbound one is not being deleted")
	}
}

func TestAnotherPodOfTheSameNameIsNotTouched(t *testing.T) {
	r := newRig(t)
	_, _, pod := r.launch()
	old := pod.DeepCopy()
	old.UID = "another"
	for what, do := range map[string]func(context.Context, *corev1.Pod) error{
		"delete": r.client.deletePod, "halt": r.client.lower, "release": r.client.release,
	} {
		if err := do(t.Context(), old); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if is := r.fresh(pod); is.DeletionTimestamp != nil || *is.Spec.ActiveDeadlineSeconds == 1 || !slices.Contains(is.Finalizers, Finalizer) {
		t.Error("it was touched")
	}
}

func TestClosingKeepsTheJobForItsTimeAndLetsThePodGo(t *testing.T) {
	r := newRig(t)
	_, a, pod := r.launch()
	r.bind(pod)
	r.ends(pod, corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"})
	for range 2 { // a repeated call does no harm
		if err := r.client.Close(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	job := r.job(a)
	if job.Labels[LabelState] != StateClosed || job.Spec.TTLSecondsAfterFinished == nil || *job.Spec.TTLSecondsAfterFinished != 3600 {
		t.Errorf("state %q, ttl %v", job.Labels[LabelState], job.Spec.TTLSecondsAfterFinished)
	}
	is := r.fresh(pod)
	if is.Labels[LabelState] != StateClosed || slices.Contains(is.Finalizers, Finalizer) {
		t.Errorf("state %q, finalizers %v", is.Labels[LabelState], is.Finalizers)
	}
	r.eventually("watches without the closed ones", func(context.Context) bool { return !r.client.Shows(a.ID) })
	if s := r.observe(a, true); s.Job == nil || len(s.Pods) != 1 {
		t.Error("the server does not show it any more")
	}
	r.eventually("a count of the closing", func(context.Context) bool {
		r.client.kept.mu.Lock()
		defer r.client.kept.mu.Unlock()
		return len(r.client.kept.minutes) > 0
	})
}

func TestAClosedJobIsDeletedByKubernetesWhenItsTimeIsOver(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.KeepFor = time.Second })
	_, a, pod := r.launch()
	r.bind(pod)
	r.ends(pod, corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed"})
	if err := r.client.Close(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	r.eventually("end of the job", func(context.Context) bool { return r.jobGone(a) })
	r.eventually("end of the pod", func(ctx context.Context) bool {
		_, err := server.api.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestAJobThatSomebodyElseHoldsLeavesTheWatches(t *testing.T) {
	r := newRig(t)
	_, a, pod := r.launch()
	r.bind(pod)
	jobs := server.api.BatchV1().Jobs(r.namespace)
	hold := func(patch string) {
		t.Helper()
		have(jobs.Patch(t.Context(), a.JobName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
	}
	hold(`{"metadata":{"finalizers":["example.com/hold"]}}`)
	t.Cleanup(func() {
		_, _ = jobs.Patch(context.Background(), a.JobName, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	r.ends(pod, corev1.ContainerStateTerminated{ExitCode: 143, Reason: "Error"})
	if err := jobs.Delete(t.Context(), a.JobName, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	r.eventually("the deletion in the cache", func(context.Context) bool { return r.observe(a, false).Job.Deleting })
	if over, why := task.Over(task.DefaultSpec(), a, r.observe(a, true), time.Now()); !over {
		t.Errorf("a Job that is held keeps its lane: %s", why)
	}
	if err := r.client.Close(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	r.eventually("watches without it", func(context.Context) bool { return !r.client.Shows(a.ID) })
	if r.jobGone(a) {
		t.Error("the finalizer of somebody else was taken off")
	}
}

func TestClosingStopsWhatCouldStillRun(t *testing.T) {
	r := newRig(t)
	_, a, pod := r.launch()
	r.bind(pod)
	r.running(pod) // a node that was cut off: fence time has passed
	if err := r.client.Close(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if !r.jobGone(a) {
		t.Error("the job is still there, and could bring another pod")
	}
	r.eventually("a pod that is being deleted and not held by us", func(ctx context.Context) bool {
		is, err := server.api.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && is.DeletionTimestamp != nil && !slices.Contains(is.Finalizers, Finalizer)
	})
}

func TestClosingByACacheThatIsBehindDeletesNothing(t *testing.T) {
	r := newRig(t)
	_, a, pod := r.launch()
	r.bind(pod)
	r.running(pod)
	before := r.client.cache.find(a).pods[0]
	r.ends(pod, corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed"})
	if err := r.client.cache.pods[r.namespace].GetIndexer().Update(before); err != nil {
		t.Fatal(err)
	}
	if err := r.client.Close(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if job := r.job(a); job.DeletionTimestamp != nil || job.Labels[LabelState] != StateClosed {
		t.Errorf("the job is being deleted: %v, state %q", job.DeletionTimestamp, job.Labels[LabelState])
	}
	if is := r.fresh(pod); is.DeletionTimestamp != nil || slices.Contains(is.Finalizers, Finalizer) {
		t.Errorf("the pod is being deleted: %v, finalizers %v", is.DeletionTimestamp, is.Finalizers)
	}
}

func TestEvidenceSurvivesEveryKindOfDelete(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	jobs := server.api.BatchV1().Jobs(r.namespace)
	pods := server.api.CoreV1().Pods(r.namespace)
	byPolicy := func(policy metav1.DeletionPropagation) func(task.Attempt, *corev1.Pod) error {
		return func(a task.Attempt, _ *corev1.Pod) error {
			return jobs.Delete(ctx, a.JobName, metav1.DeleteOptions{PropagationPolicy: &policy})
		}
	}
	for name, c := range map[string]struct {
		remove func(a task.Attempt, p *corev1.Pod) error
		marked bool // the pod itself is being deleted then
	}{
		"background delete of the job": {byPolicy(metav1.DeletePropagationBackground), true},
		"foreground delete of the job": {byPolicy(metav1.DeletePropagationForeground), true},
		"orphaning delete of the job":  {byPolicy(metav1.DeletePropagationOrphan), false},
		"delete of the pod":            {func(_ task.Attempt, p *corev1.Pod) error { return pods.Delete(ctx, p.Name, metav1.DeleteOptions{}) }, true},
		"forced delete of the pod": {func(_ task.Attempt, p *corev1.Pod) error {
			return pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		}, true},
		"eviction": {func(_ task.Attempt, p *corev1.Pod) error {
			return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name}})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, a, pod := r.launch()
			r.bind(pod)
			r.running(pod)
			if err := c.remove(a, pod); err != nil {
				t.Fatal(err)
			}
			if c.marked {
				r.sees(pod, func(s task.SeenPod) bool { return s.Deleting })
			}
			r.ends(pod, corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed", Message: "v1 1 2 succeeded -"})
			a.PodUID, a.State = string(pod.UID), task.Started
			s := r.observe(a, true)
			if len(s.Pods) != 1 || !s.Pods[0].Ended() || s.Pods[0].Deleting != c.marked {
				t.Fatalf("seen %+v", s)
			}
			if name == "eviction" && s.Pods[0].Disruption != "EvictionByEvictionAPI" {
				t.Errorf("disruption %q", s.Pods[0].Disruption)
			}
			v := task.Judge(task.DefaultSpec(), a, s)
			want := task.OutcomeLost // the message is another attempt's
			if !c.marked {
				want = task.OutcomeSucceeded
			}
			if v.Outcome != want {
				t.Errorf("judged %s/%s by %s, want %s", v.Outcome, v.Reason, v.Rule, want)
			}
			if err := r.client.Close(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			r.eventually("a released pod", func(ctx context.Context) bool {
				is, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
				return apierrors.IsNotFound(err) || err == nil && !slices.Contains(is.Finalizers, Finalizer)
			})
		})
	}
}
