package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/pkg/task"
)

// disobeys is how long after the kubelet's own kill a pod counts as not obeying.
const disobeys = 3 * time.Second

// Halt stops what still runs of a, since so long ago. It is called again and again until task.Over says that nothing can
// run any more, and a repeated call does no harm. A pod on a node is stopped by its deadline, which keeps the pod, its
// exit code and its log. What was never bound, or does not obey within its grace period, is deleted: the Job first, so
// that no other pod comes, then its pods, also one that the Job controller made in the meantime.
func (c *Client) Halt(ctx context.Context, t task.Task, a task.Attempt, since time.Duration) error {
	f := c.cache.find(a)
	patient := since <= t.Spec.Grace.Duration()+reportSlack+disobeys
	left, errs := 0, []error(nil)
	for _, p := range f.pods {
		switch seen := seenPod(p); {
		case seen.Ended():
		case seen.Node != "" && patient:
			errs = append(errs, c.lower(ctx, p))
		default:
			left++
		}
	}
	if left > 0 || len(f.pods) == 0 {
		errs = append(errs, c.remove(ctx, a, patient))
	}
	return errors.Join(errs...)
}

// lower gives a pod a deadline that has passed: the kubelet sends SIGTERM within a second and keeps the grace period.
func (c *Client) lower(ctx context.Context, p *corev1.Pod) error {
	if now := p.Spec.ActiveDeadlineSeconds; p.DeletionTimestamp != nil || now != nil && *now <= 1 {
		return nil // it is stopping already
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"activeDeadlineSeconds":1}}`, p.UID)
	return c.patchPod(ctx, p, types.MergePatchType, patch)
}

func (c *Client) patchPod(ctx context.Context, p *corev1.Pod, kind types.PatchType, patch string) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	_, err := c.api.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, kind, []byte(patch), metav1.PatchOptions{})
	if err != nil && !gone(err) {
		return unreached(fmt.Errorf("patch pod %s/%s: %w", p.Namespace, p.Name, err))
	}
	return nil
}

// remove deletes the Job of a and then each of its pods that has not ended. A pod that can still obey its deadline is
// left to it while patient.
func (c *Client) remove(ctx context.Context, a task.Attempt, patient bool) error {
	f, err := c.find(ctx, a, true)
	if err != nil {
		return err
	}
	for _, j := range f.jobs {
		if err := c.deleteJob(ctx, j); err != nil {
			return err
		}
	}
	// Once more: the Job controller may have made a pod before it learnt of the delete.
	if len(f.jobs) > 0 {
		if f, err = c.find(ctx, a, true); err != nil {
			return err
		}
	}
	var errs []error
	for _, p := range f.pods {
		if seen := seenPod(p); !seen.Ended() && (seen.Node == "" || !patient) {
			errs = append(errs, c.deletePod(ctx, p))
		}
	}
	return errors.Join(errs...)
}

// deleteJob deletes j and leaves its pods to the collector and to us.
func (c *Client) deleteJob(ctx context.Context, j *batchv1.Job) error {
	if j.DeletionTimestamp != nil {
		return nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	err := c.api.BatchV1().Jobs(j.Namespace).Delete(ctx, j.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &j.UID}, PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	if err != nil && !gone(err) {
		return unreached(fmt.Errorf("delete job %s/%s: %w", j.Namespace, j.Name, err))
	}
	return nil
}

func (c *Client) deletePod(ctx context.Context, p *corev1.Pod) error {
	if p.DeletionTimestamp != nil {
		return nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	err := c.api.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if err != nil && !gone(err) {
		return unreached(fmt.Errorf("delete pod %s/%s: %w", p.Namespace, p.Name, err))
	}
	return nil
}

// gone reports whether the object of a write is not there any more, or another of its name is.
func gone(err error) bool {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return true
		}
	}
	return false
}
