package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/pkg/task"
)

// Close lets go of a once its outcome is stored: the Job gets the time after which Kubernetes deletes it, each pod loses
// our finalizer, and both get the label that takes them out of our watches. What could still run is stopped for good
// first. On the straight line that is one patch each. It is called again until it succeeds.
func (c *Client) Close(ctx context.Context, a task.Attempt) error {
	f := c.cache.find(a)
	if len(f.pods) == 0 || len(f.jobs) == 0 && a.JobName != "" || f.running() {
		// Deleted, closed before by a call whose answer was lost, or a cache that is behind: the server knows. What the
		// cache alone shows as running is not deleted: it may have ended well, with a log that people want to read.
		var err error
		if f, err = c.find(ctx, a, true); err != nil {
			return err
		}
	}
	spent := true
	var errs []error
	for _, p := range f.pods {
		if seen := seenPod(p); !seen.Ended() {
			spent = false
			errs = append(errs, c.deletePod(ctx, p))
		}
	}
	for _, j := range f.jobs {
		errs = append(errs, c.closeJob(ctx, j, spent && len(f.pods) > 0))
	}
	for _, p := range f.pods {
		errs = append(errs, c.release(ctx, p))
	}
	return errors.Join(errs...)
}

// closeJob keeps an ended Job for a while; one that could bring another pod is deleted. The Job may say up to a second
// later than its pods that it has ended. One that is being deleted is closed as well: somebody else's finalizer may hold
// it for ever.
func (c *Client) closeJob(ctx context.Context, j *batchv1.Job, spent bool) error {
	if !ended(j) && (!spent || triesAgain(j)) && j.DeletionTimestamp == nil {
		return c.deleteJob(ctx, j)
	}
	if j.Labels[LabelState] == StateClosed {
		return nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:%q}},"spec":{"ttlSecondsAfterFinished":%d}}`,
		j.UID, LabelState, StateClosed, seconds(c.kept.ttl(time.Now())))
	_, err := c.api.BatchV1().Jobs(j.Namespace).Patch(ctx, j.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil && !gone(err) {
		return unreached(fmt.Errorf("close job %s/%s: %w", j.Namespace, j.Name, err))
	}
	return nil
}

// triesAgain reports whether somebody gave a Job retries of its own: they are not ours.
func triesAgain(j *batchv1.Job) bool { return j.Spec.BackoffLimit != nil && *j.Spec.BackoffLimit > 0 }

// release takes our finalizer off a pod, and only ours: the Job controller has one of its own there.
func (c *Client) release(ctx context.Context, p *corev1.Pod) error {
	held := false
	for _, f := range p.Finalizers {
		held = held || f == Finalizer
	}
	if !held && p.Labels[LabelState] == StateClosed {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:%q},"$deleteFromPrimitiveList/finalizers":[%q]}}`,
		p.UID, LabelState, StateClosed, Finalizer)
	return c.patchPod(ctx, p, types.StrategicMergePatchType, patch)
}

// Remove deletes what left a trace and belongs to no Attempt: the Job, and its pods.
func (c *Client) Remove(ctx context.Context, left task.Trace) error {
	a := task.Attempt{ID: left.Attempt, Fence: left.Fence, Namespace: left.Namespace}
	f, err := c.find(ctx, a, true)
	if err != nil {
		return err
	}
	var errs []error
	for _, j := range f.jobs {
		errs = append(errs, c.deleteJob(ctx, j))
	}
	for _, p := range f.pods {
		if err := c.deletePod(ctx, p); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, c.release(ctx, p))
	}
	return errors.Join(errs...)
}

// MakeRoom deletes up to n Jobs of a namespace that were closed and only stand for people to look at, the oldest first:
// a quota that counts Jobs counts finished ones too. It tells how many it deleted.
func (c *Client) MakeRoom(ctx context.Context, namespace string, n int) (int, error) {
	closed, err := c.closedJobs(ctx, namespace)
	if err != nil {
		return 0, err
	}
	slices.SortFunc(closed, func(a, b batchv1.Job) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	made := 0
	for i := range closed[:min(n, len(closed))] {
		if err := c.deleteJob(ctx, &closed[i]); err != nil {
			return made, err
		}
		made++
	}
	return made, nil
}

func (c *Client) closedJobs(ctx context.Context, namespace string) ([]batchv1.Job, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	list, err := c.api.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{LabelSelector: c.ours() + "," + LabelState + "=" + StateClosed})
	if err != nil {
		return nil, unreached(fmt.Errorf("list closed jobs: %w", err))
	}
	return slices.DeleteFunc(list.Items, func(j batchv1.Job) bool { return !ended(&j) || j.DeletionTimestamp != nil }), nil
}
