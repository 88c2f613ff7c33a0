package r1

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"slipway.dev/slipway/pkg/api"
)

// taskLabel is the one by which a pod names its Task.
const taskLabel = "slipway.dev/task"

// ends notes when the API first shows that a Task has ended, of every third one. It begins to ask when the pod is seen to
// have ended, so that not much is asked.
type ends struct {
	*bench
	stop  func()
	group sync.WaitGroup

	mu    sync.Mutex
	asked map[string]bool
	shown map[string]time.Time
}

func (b *bench) pollEnds(t testing.TB) *ends {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	pods := b.Kube.CoreV1().Pods(b.Namespace())
	list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatalf("list pods: %v", err)
	}
	stream, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: pods.Watch})
	if err != nil {
		t.Fatalf("watch pods: %v", err)
	}
	p := &ends{bench: b, asked: map[string]bool{}, shown: map[string]time.Time{}}
	p.group.Go(func() {
		for e := range stream.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok && pod.Status.Phase == corev1.PodSucceeded {
				p.follow(ctx, pod.Labels[taskLabel])
			}
		}
	})
	p.stop = func() {
		cancel()
		p.group.Wait()
	}
	return p
}

// follow asks for a Task until its end is shown, once.
func (p *ends) follow(ctx context.Context, id string) {
	const each, first = 3, 5 * time.Millisecond
	p.mu.Lock()
	known := p.asked[id]
	p.asked[id] = true
	skip := known || len(p.asked)%each != 0
	p.mu.Unlock()
	if skip {
		return
	}
	p.group.Go(func() {
		for wait := first; ctx.Err() == nil; wait += wait / 5 { // what is slow is not asked about more often
			a, err := p.user.Do(ctx, http.MethodGet, "/v1/tasks/"+id, nil)
			if err == nil && a.Status == http.StatusOK && ended(a.Body) {
				p.mu.Lock()
				p.shown[id] = time.Now()
				p.mu.Unlock()
				return
			}
			time.Sleep(wait)
		}
	})
}

func ended(body []byte) bool {
	var task struct{ State api.State }
	if err := json.Unmarshal(body, &task); err != nil {
		return false // it is asked for again
	}
	return task.State == api.StateSucceeded || task.State == api.StateFailed
}
