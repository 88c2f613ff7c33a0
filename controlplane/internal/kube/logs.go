package kube

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/pkg/task"
)

// LogOptions says what of a log is wanted.
type LogOptions struct {
	PodUID string // empty: of the pod that won start, else of the newest
	Follow bool
	Tail   int64 // lines from the end; 0: all
}

// Logs opens the log of a's pod. It ends when the container has ended, when the node rotates or drops it, or when ctx is
// done: its end says nothing about the Attempt. No pod is task.ErrNotFound.
func (c *Client) Logs(ctx context.Context, a task.Attempt, o LogOptions) (io.ReadCloser, error) {
	f := c.cache.find(a)
	if len(f.pods) == 0 {
		var err error
		if f, err = c.find(ctx, a, true); err != nil {
			return nil, err
		}
	}
	pod := pick(f.pods, or(o.PodUID, a.PodUID))
	if pod == nil {
		return nil, fmt.Errorf("read the log of attempt %d: its pod: %w", a.ID, task.ErrNotFound)
	}
	want := &corev1.PodLogOptions{Container: MainContainer, Follow: o.Follow}
	if o.Tail > 0 {
		want.TailLines = &o.Tail
	}
	stream, err := c.api.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, want).Stream(ctx)
	if err != nil {
		return nil, unreached(fmt.Errorf("read the log of pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	return stream, nil
}

func pick(pods []*corev1.Pod, uid string) *corev1.Pod {
	var newest *corev1.Pod
	for _, p := range pods {
		if uid != "" && string(p.UID) == uid {
			return p
		}
		if uid == "" && (newest == nil || p.CreationTimestamp.After(newest.CreationTimestamp.Time)) {
			newest = p
		}
	}
	return newest
}
