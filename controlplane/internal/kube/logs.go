package kube

import (
	"context"
	"fmt"
	"io"
	"time"

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
	return c.stream(ctx, pod, want)
}

// stream opens a log. The opening has its time like any call, the reading takes as long as it takes.
func (c *Client) stream(ctx context.Context, pod *corev1.Pod, want *corev1.PodLogOptions) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(c.cfg.Timeout, func() { cancel(context.DeadlineExceeded) })
	stream, err := c.api.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, want).Stream(ctx)
	if late.Stop(); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if stream != nil {
			_ = stream.Close()
		}
		cancel(nil)
		return nil, unreached(fmt.Errorf("read the log of pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	return openLog{stream, cancel}, nil
}

// openLog is a stream whose context ends with it.
type openLog struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (l openLog) Close() error {
	defer l.cancel(nil)
	return l.ReadCloser.Close()
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
