package kube

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

// Launch creates the Job of a, or adopts the one that an earlier call has created. A refusal is a *task.Refusal; a name
// that somebody else's Job bears is task.ErrTaken.
func (c *Client) Launch(ctx context.Context, t task.Task, a task.Attempt) (name, uid string, err error) {
	if !c.namespaced(a.Namespace) {
		return "", "", c.notEnabled(a.Namespace)
	}
	job, err := c.job(t, a)
	if err != nil {
		return "", "", err
	}
	created, err := c.create(ctx, job)
	switch {
	case err == nil:
		return created.Name, string(created.UID), nil
	case apierrors.IsAlreadyExists(err):
		return c.adopt(ctx, job)
	case ctx.Err() != nil:
		return "", "", fmt.Errorf("create job %s/%s: %w", job.Namespace, job.Name, ctx.Err())
	}
	return "", "", c.refusal(ctx, err, asker{namespace: job.Namespace, job: job})
}

func (c *Client) create(ctx context.Context, job *batchv1.Job) (*batchv1.Job, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.api.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
}

// adopt takes the existing Job of that name if it is the wanted one: same Slipway, Task, Attempt and fence, and not
// being deleted.
func (c *Client) adopt(ctx context.Context, want *batchv1.Job) (name, uid string, err error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	is, err := c.api.BatchV1().Jobs(want.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		// Gone since, or nobody answers: the next try finds out.
		return "", "", &task.Refusal{Cause: task.RefusedUnavailable, Message: fmt.Sprintf("read job %s/%s: %v", want.Namespace, want.Name, err)}
	}
	for _, label := range []string{LabelManagedBy, LabelInstance, LabelTask, LabelAttempt, LabelFence} {
		if is.Labels[label] != want.Labels[label] {
			return "", "", fmt.Errorf("adopt job %s/%s: %w: its label %s is %q", want.Namespace, want.Name, task.ErrTaken, label, is.Labels[label])
		}
	}
	if is.DeletionTimestamp != nil {
		return "", "", fmt.Errorf("adopt job %s/%s: %w: it is being deleted", want.Namespace, want.Name, task.ErrTaken)
	}
	return is.Name, string(is.UID), nil
}

// Left finds the Job of a by a pod of it; no name where a has no pod. The Job itself may be gone: somebody has deleted it.
func (c *Client) Left(ctx context.Context, a task.Attempt) (name, uid string, err error) {
	if !c.namespaced(a.Namespace) {
		return "", "", nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	pods, err := c.api.CoreV1().Pods(a.Namespace).List(ctx, metav1.ListOptions{LabelSelector: c.of(a.ID, a.Fence)})
	if err != nil {
		return "", "", &task.Refusal{Cause: task.RefusedUnavailable, Message: fmt.Sprintf("list pods of attempt %d: %v", a.ID, err)}
	}
	if len(pods.Items) == 0 {
		return "", "", nil
	}
	labels := pods.Items[0].Labels
	return labels[batchv1.JobNameLabel], labels[batchv1.ControllerUidLabel], nil
}

// Takes asks whether the API server would take the pod of a Task that is not stored: a *task.Refusal if not.
func (c *Client) Takes(ctx context.Context, t task.Task) error {
	if !c.namespaced(t.Namespace) {
		return c.notEnabled(t.Namespace)
	}
	return c.DryRun(ctx, t, task.Attempt{Namespace: t.Namespace, Kind: t.Kind, Lane: t.Lane, TaskID: t.ID, Number: 1})
}

func (c *Client) notEnabled(namespace string) *task.Refusal {
	return &task.Refusal{Cause: task.RefusedNamespace, Message: "namespace " + namespace + " is not enabled for Slipway"}
}

// DryRun asks the API server whether it would take the pod of a: a *task.Refusal if not. Quota, PodSecurity, a missing
// service account and webhooks refuse the pod, not the Job, and their Events come half a minute late.
func (c *Client) DryRun(ctx context.Context, t task.Task, a task.Attempt) error {
	template, err := c.podTemplate(t, a)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.GenerateName = a.Namespace, c.JobName(t, a)+"-"
	if err := c.tryPod(ctx, pod); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("try a pod in %s: %w", a.Namespace, ctx.Err())
		}
		return c.refusal(ctx, err, asker{namespace: a.Namespace, pod: pod})
	}
	return nil
}

// Rehearse asks the API server by dry run whether it would take a Job like that of a, and its pod: a *task.Refusal if not.
func (c *Client) Rehearse(ctx context.Context, t task.Task, a task.Attempt) error {
	if err := c.DryRun(ctx, t, a); err != nil {
		return err
	}
	job, err := c.job(t, a)
	if err != nil {
		return err
	}
	job.GenerateName, job.Name = job.Name+"-", ""
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	_, err = c.api.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("try a job in %s: %w", a.Namespace, ctx.Err())
	}
	return c.refusal(ctx, err, asker{namespace: job.Namespace, job: job})
}

func (c *Client) tryPod(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	_, err := c.api.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
