package kube

import (
	"context"
	"errors"
	"net/http"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

// asker is what was refused: a Job, or the pod of a dry run.
type asker struct {
	namespace string
	job       *batchv1.Job
	pod       *corev1.Pod
}

// refusal classifies the API server's no. Causes and details come first; a 403 without a cause (quota, PodSecurity, a
// missing service account and missing rights all look alike) is told apart by facts: has a quota room, and is a bare pod
// taken in the same namespace? Texts are shown, never read.
func (c *Client) refusal(ctx context.Context, err error, what asker) *task.Refusal {
	r := &task.Refusal{Message: err.Error(), Cause: task.RefusedUnknown}
	var status apierrors.APIStatus
	switch {
	case unavailable(err):
		r.Cause, r.RetryAfter = task.RefusedUnavailable, retryAfter(err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), missingNamespace(err):
		r.Cause = task.RefusedNamespace
	case apierrors.IsForbidden(err):
		c.forbidden(ctx, what, r)
	case errors.As(err, &status) && final(status.Status().Code):
		r.Cause = task.RefusedInvalid
	}
	return r
}

// final tells the status codes that the same request gets again.
func final(code int32) bool {
	switch code {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusNotAcceptable:
		return true
	}
	return false
}

// unavailable reports whether err says nothing about the request: the server was not reached, was busy or broken, did not
// finish its answer, or does not know who we are.
func unavailable(err error) bool {
	if err == nil {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // whatever it is, it is not the server's answer
	}
	switch code := status.Status().Code; code {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusUnauthorized:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}

func retryAfter(err error) time.Duration {
	var busy *busyError
	if errors.As(err, &busy) {
		return busy.after
	}
	if after, ok := apierrors.SuggestsClientDelay(err); ok {
		return time.Duration(after) * time.Second
	}
	return 0
}

// missingNamespace reports whether err says that the namespace does not exist.
func missingNamespace(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}

// forbidden completes the refusal of a 403 that names no cause.
func (c *Client) forbidden(ctx context.Context, what asker, r *task.Refusal) {
	full, tracked := c.quota(ctx, what)
	switch {
	case full, tracked && what.job != nil: // one that is not full now has got room since
		r.Cause, r.JobCount = task.RefusedQuota, what.job != nil
	case what.pod != nil:
		r.Cause = c.compare(ctx, what.pod, tracked)
	}
}

// compare tells a pod that is refused for what it is from one that is refused for the state of its namespace, by trying it
// in turn with a pod beyond reproach. Twice, because a quota may come to have room, and lose it, between two calls: an
// Attempt must not end by that. Where a quota tracks what the pod asks for, the other asks for the same.
func (c *Client) compare(ctx context.Context, pod *corev1.Pod, tracked bool) task.RefusalCause {
	bare := barePod(pod)
	if tracked {
		bare.Spec.Containers[0].Resources = pod.Spec.Containers[0].Resources
	}
	for range 2 {
		if c.tryPod(ctx, bare) != nil {
			return task.RefusedUnknown
		}
		switch err := c.tryPod(ctx, pod); {
		case err == nil && tracked:
			return task.RefusedQuota
		case err == nil, !apierrors.IsForbidden(err):
			return task.RefusedUnknown
		}
	}
	return task.RefusedInvalid
}

// barePod is a pod beyond reproach in the place of p: the strictest security, the namespace's own service account, no
// wishes.
func barePod(p *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, GenerateName: p.GenerateName, Labels: p.Labels},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), SecurityContext: restricted(),
			Containers: []corev1.Container{{Name: MainContainer, Image: p.Spec.Containers[0].Image, SecurityContext: unprivileged()}},
		},
	}
}

// quota reports whether a ResourceQuota of the namespace limits what was refused, and whether it has no room for it.
func (c *Client) quota(ctx context.Context, what asker) (full, tracked bool) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	quotas, err := c.api.CoreV1().ResourceQuotas(what.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, false
	}
	uses := usage(what)
	for _, q := range quotas.Items {
		for name, hard := range q.Status.Hard {
			use, asked := uses[name]
			used := q.Status.Used[name]
			used.Add(use)
			tracked = tracked || asked
			full = full || asked && used.Cmp(hard) > 0
		}
	}
	return full, tracked
}

// usage is what a Job or a pod would take of the resources that quotas name.
func usage(what asker) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	if what.job != nil {
		return corev1.ResourceList{"count/jobs.batch": one}
	}
	uses := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one}
	add := func(name corev1.ResourceName, q resource.Quantity) {
		sum := uses[name]
		sum.Add(q)
		uses[name] = sum
	}
	for _, container := range what.pod.Spec.Containers {
		requests := container.Resources.Requests.DeepCopy()
		for name, q := range container.Resources.Limits {
			add("limits."+name, q)
			if _, own := requests[name]; !own { // a limit without a request is the request too
				add("requests."+name, q)
				add(name, q)
			}
		}
		for name, q := range requests {
			add("requests."+name, q)
			add(name, q)
		}
	}
	return uses
}
