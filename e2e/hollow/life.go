package hollow

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leastGrace is what a kubelet gives a container also where the grace period is 0.
const leastGrace = 2 * time.Second

// life is one pod on its node, from the moment the kubelet sees it until its object is gone.
type life struct {
	uid  types.UID
	node *Node

	mu     sync.Mutex
	latest *corev1.Pod // what the watch shows
	known  *corev1.Pod // what the kubelet has seen of that: nothing new while its node is cut off
	gone   bool        // the object is not there any more
	main   *container  // while it runs
	frozen bool

	wake   chan struct{} // something may have changed
	faults chan func(*end)
	status *statuses
	since  time.Time // the start time of the pod
}

// end is how a pod is being brought to its end.
type end struct {
	told    bool // SIGTERM was sent
	kill    <-chan time.Time
	killAt  time.Time
	reason  string // status.reason
	message string
	evicted bool // by the kubelet
}

func newLife(n *Node, pod *corev1.Pod) *life {
	l := &life{
		uid: pod.UID, node: n, latest: pod, known: pod,
		wake: make(chan struct{}, 1), faults: make(chan func(*end), 4), since: time.Now(),
	}
	l.status = &statuses{life: l, dirty: make(chan struct{}, 1), done: make(chan struct{})}
	return l
}

// show takes what the watch shows; nil means that the object is gone.
func (l *life) show(pod *corev1.Pod) {
	l.mu.Lock()
	if pod == nil {
		l.gone = true
	} else {
		l.latest = pod
	}
	l.mu.Unlock()
	l.stir()
}

func (l *life) stir() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// look is what the kubelet knows of the pod.
func (l *life) look() (pod *corev1.Pod, gone bool) {
	cut := l.node.isCut()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !cut {
		l.known = l.latest
	}
	return l.known, l.gone && !cut
}

func (l *life) run(ctx context.Context) {
	defer l.node.fleet.forget(l)
	publishing := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); <-publishing }()
	go func() {
		defer close(publishing)
		l.status.publish(ctx)
	}()
	last := l.work(ctx)
	if ctx.Err() != nil {
		return // the machine is off
	}
	l.status.end(last)
	l.bury(ctx)
}

// work brings the pod from its start to the status of its end.
func (l *life) work(ctx context.Context) corev1.PodStatus {
	if h, ok := l.node.fleet.hindrance(); ok {
		l.status.set(waiting(l.since, h.Reason, h.Message))
		if !l.pass(ctx, h.For) {
			return l.neverStarted()
		}
	}
	pod, gone := l.look()
	if gone || pod.DeletionTimestamp != nil {
		return l.neverStarted()
	}
	root, err := l.makeRoot(ctx, pod)
	defer func() { _ = os.RemoveAll(root) }() // a leftover in the fleet's folder harms nobody
	if err != nil {
		return failedToStart(l.since, pod, err)
	}
	for _, spec := range pod.Spec.InitContainers {
		c, err := l.start(pod, spec, root)
		if err != nil {
			return failedToStart(l.since, pod, err)
		}
		if e := l.supervise(ctx, c, pod); c.code() != 0 || e.told {
			return ended(l.since, pod, c, e)
		}
	}
	c, err := l.start(pod, pod.Spec.Containers[0], root)
	if err != nil {
		return failedToStart(l.since, pod, err)
	}
	l.setMain(c)
	defer l.setMain(nil)
	l.status.set(running(l.since, pod, c))
	e := l.supervise(ctx, c, pod)
	c.said = message(root, pod.Spec.Containers[0])
	return ended(l.since, pod, c, e)
}

func (l *life) setMain(c *container) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.main = c
}

// message reads the termination message.
func message(root string, spec corev1.Container) string {
	const most = 4096
	text, err := os.ReadFile(filepath.Join(root, terminationPath(spec)))
	if err != nil {
		return ""
	}
	return string(text[:min(len(text), most)])
}

// pass waits; false means that the pod is not to be started any more.
func (l *life) pass(ctx context.Context, d time.Duration) bool {
	over := time.After(d)
	for {
		pod, gone := l.look()
		if gone || pod.DeletionTimestamp != nil || time.Until(l.deadline(pod)) <= 0 {
			return false
		}
		select {
		case <-over:
			return true
		case <-l.wake:
		case <-time.After(time.Until(l.deadline(pod))):
		case <-ctx.Done():
			return false
		}
	}
}

// deadline is when the pod has been active for too long.
func (l *life) deadline(pod *corev1.Pod) time.Time {
	if s := pod.Spec.ActiveDeadlineSeconds; s != nil {
		return l.since.Add(time.Duration(*s) * time.Second)
	}
	return l.since.Add(24 * time.Hour)
}

// supervise waits for the end of c and stops it when the pod is deleted or has been active for too long.
func (l *life) supervise(ctx context.Context, c *container, pod *corev1.Pod) (e end) {
	gone := false
	for {
		var late <-chan time.Time
		switch {
		case pod.DeletionTimestamp != nil || gone:
			grace := leastGrace
			if s := pod.DeletionGracePeriodSeconds; s != nil && !gone {
				grace = max(grace, time.Duration(*s)*time.Second)
			}
			e.stop(c, grace)
		case !e.told:
			late = time.After(time.Until(l.deadline(pod)))
		}
		select {
		case <-c.done:
			return e
		case <-ctx.Done():
			c.signal(syscall.SIGKILL)
			<-c.done
			return e
		case <-late:
			e.reason, e.message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
			e.stop(c, graceOf(pod))
		case <-e.kill:
			e.kill = nil
			c.signal(syscall.SIGKILL)
		case fault := <-l.faults:
			fault(&e)
		case <-l.wake:
			pod, gone = l.look()
		}
	}
}

func graceOf(pod *corev1.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return max(leastGrace, time.Duration(*s)*time.Second)
	}
	return 30 * time.Second
}

// stop sends SIGTERM once and sees to it that SIGKILL follows after grace; a shorter grace period replaces a longer one.
func (e *end) stop(c *container, grace time.Duration) {
	if !e.told {
		e.told = true
		c.signal(syscall.SIGTERM)
	}
	if by := time.Now().Add(grace); e.killAt.IsZero() || by.Before(e.killAt) {
		e.killAt = by
		e.kill = time.After(grace)
	}
}

// neverStarted is the end of a pod that was deleted, or too long active, before its containers were made.
func (l *life) neverStarted() corev1.PodStatus {
	pod, _ := l.look()
	return unknown(l.since, pod, time.Until(l.deadline(pod)) <= 0)
}

// bury waits for the deletion of an ended pod and makes it final. Whether the object goes is up to its finalizers.
func (l *life) bury(ctx context.Context) {
	shown := l.status.done
	for {
		pod, gone := l.look()
		if gone {
			return
		}
		if pod.DeletionTimestamp != nil && l.status.ended() {
			now, uid := int64(0), pod.UID
			_ = l.node.call(ctx, func(ctx context.Context) error { // not found is what is wanted
				return l.node.fleet.o.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
					GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid},
				})
			})
			return
		}
		select {
		case <-l.wake:
		case <-shown:
			shown = nil
		case <-ctx.Done():
			return
		}
	}
}
