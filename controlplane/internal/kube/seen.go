package kube

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

// found is what the cluster has of one Attempt: at most one Job bears its name, and usually one pod.
type found struct {
	jobs []*batchv1.Job
	pods []*corev1.Pod
}

// running reports whether a pod of it has not ended.
func (f found) running() bool {
	return slices.ContainsFunc(f.pods, func(p *corev1.Pod) bool { return !seenPod(p).Ended() })
}

// Observe shows what the cluster has of a: from the cache, or read from the API server just now.
func (c *Client) Observe(ctx context.Context, a task.Attempt, live bool) (task.Seen, error) {
	f, err := c.find(ctx, a, live)
	if err != nil {
		return task.Seen{}, err
	}
	s := task.Seen{Live: live}
	for _, j := range f.jobs {
		seen := seenJob(j)
		s.Job = &seen
	}
	for _, p := range f.pods {
		s.Pods = append(s.Pods, seenPod(p))
	}
	if live {
		noteNodes(a, &s, func(name string) nodeState { return c.nodeState(ctx, name) })
	}
	return s, nil
}

func (c *Client) find(ctx context.Context, a task.Attempt, live bool) (found, error) {
	if !live {
		return c.cache.find(a), nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	selector := metav1.ListOptions{LabelSelector: c.of(a.ID, a.Fence)}
	jobs, err := c.api.BatchV1().Jobs(a.Namespace).List(ctx, selector)
	if err != nil {
		return found{}, unreached(fmt.Errorf("list jobs of attempt %d: %w", a.ID, err))
	}
	// Pods after the Job: a pod made in between is seen, never one that lacks its Job by the order of reading.
	pods, err := c.api.CoreV1().Pods(a.Namespace).List(ctx, selector)
	if err != nil {
		return found{}, unreached(fmt.Errorf("list pods of attempt %d: %w", a.ID, err))
	}
	var f found
	for i := range jobs.Items {
		f.jobs = append(f.jobs, &jobs.Items[i])
	}
	for i := range pods.Items {
		f.pods = append(f.pods, &pods.Items[i])
	}
	return f, nil
}

func seenJob(j *batchv1.Job) task.SeenJob {
	seen := task.SeenJob{
		UID: string(j.UID), Name: j.Name, Created: j.CreationTimestamp.Time,
		Deleting:  j.DeletionTimestamp != nil,
		Suspended: j.Spec.Suspend != nil && *j.Spec.Suspend,
		Ended:     ended(j),
	}
	if start := j.Status.StartTime; start != nil && !seen.Suspended { // the Job controller moves it with each resume
		seen.Waited = max(start.Sub(j.CreationTimestamp.Time), 0)
	}
	return seen
}

// ended reports whether the Job has its end condition: only then does it bring no further pod.
func ended(j *batchv1.Job) bool {
	for _, cond := range j.Status.Conditions {
		if (cond.Type == batchv1.JobComplete || cond.Type == batchv1.JobFailed) && cond.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func seenPod(p *corev1.Pod) task.SeenPod {
	seen := task.SeenPod{
		UID: string(p.UID), Name: p.Name, Node: p.Spec.NodeName, Created: p.CreationTimestamp.Time,
		Phase: string(p.Status.Phase), Reason: p.Status.Reason, Message: p.Status.Message,
		Deleting: p.DeletionTimestamp != nil,
	}
	for _, cond := range p.Status.Conditions {
		switch {
		case cond.Type == corev1.DisruptionTarget && cond.Status == corev1.ConditionTrue:
			seen.Disruption = or(cond.Reason, "Disruption")
		case cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse && p.Spec.NodeName == "":
			seen.Unschedulable = or(cond.Message, cond.Reason)
		case cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionTrue:
			seen.Waited = max(cond.LastTransitionTime.Sub(p.CreationTimestamp.Time), 0)
		}
	}
	for _, status := range p.Status.InitContainerStatuses {
		c := seenContainer(status)
		c.Before = !sidecar(p, status.Name)
		seen.Containers = append(seen.Containers, c)
	}
	for _, status := range p.Status.ContainerStatuses {
		c := seenContainer(status)
		c.Main = status.Name == MainContainer
		seen.Containers = append(seen.Containers, c)
	}
	return seen
}

// sidecar reports whether an init container is one that runs beside the others.
func sidecar(p *corev1.Pod, name string) bool {
	for _, c := range p.Spec.InitContainers {
		if c.Name == name {
			return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
	}
	return false
}

func seenContainer(status corev1.ContainerStatus) task.SeenContainer {
	seen := task.SeenContainer{Name: status.Name, Running: status.State.Running != nil}
	if w := status.State.Waiting; w != nil {
		seen.Waiting, seen.WaitingFor = w.Reason, w.Message
	}
	if t := status.State.Terminated; t != nil {
		seen.Terminated = &task.Terminated{Ran: !t.StartedAt.IsZero(), ExitCode: int(t.ExitCode), Signal: int(t.Signal), Reason: t.Reason, Message: t.Message}
	}
	return seen
}
