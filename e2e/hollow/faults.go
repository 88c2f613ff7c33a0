package hollow

import (
	"context"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Hindrance keeps the next pod from starting for a while.
type Hindrance struct {
	Reason, Message string // what its container waits for, as ImagePullBackOff or just ContainerCreating
	For             time.Duration
}

// Hinder hinders the next pod that comes to its start.
func (f *Fleet) Hinder(h Hindrance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hindrances = append(f.hindrances, h)
}

func (f *Fleet) hindrance() (Hindrance, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.hindrances) == 0 {
		return Hindrance{}, false
	}
	h := f.hindrances[0]
	f.hindrances = f.hindrances[1:]
	return h, true
}

// Pod is a pod whose main container runs.
type Pod struct {
	Namespace, Name, Job, Node string
	Task                       string // by its label

	life *life
	main *container
}

// Running lists the pods whose main container runs, on nodes that are heard, by name.
func (f *Fleet) Running() []Pod {
	f.mu.Lock()
	lives := make([]*life, 0, len(f.lives))
	for _, l := range f.lives {
		lives = append(lives, l)
	}
	f.mu.Unlock()
	var all []Pod
	for _, l := range lives {
		l.mu.Lock()
		if l.main != nil && !l.frozen && !l.gone && l.latest.DeletionTimestamp == nil {
			all = append(all, Pod{
				Namespace: l.latest.Namespace, Name: l.latest.Name, Job: l.latest.Labels["batch.kubernetes.io/job-name"],
				Node: l.node.Name, Task: l.latest.Labels["slipway.dev/task"], life: l, main: l.main,
			})
		}
		l.mu.Unlock()
	}
	all = slices.DeleteFunc(all, func(p Pod) bool { return p.life.node.isCut() })
	slices.SortFunc(all, func(a, b Pod) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// Kill ends the container's first process by SIGKILL, and so all of it.
func (p Pod) Kill() { p.main.signal(syscall.SIGKILL) }

// OOM does the same in the shape of a kill for want of memory.
func (p Pod) OOM() {
	p.do(func(*end) {
		p.main.oom = true
		p.main.signal(syscall.SIGKILL)
	})
}

// Evict ends the pod as a kubelet under pressure does.
func (p Pod) Evict() {
	p.do(func(e *end) {
		e.reason, e.message, e.evicted = "Evicted", "The node was low on resource: memory.", true
		e.stop(p.main, leastGrace)
	})
}

func (p Pod) do(fault func(*end)) {
	select {
	case p.life.faults <- fault:
	default: // it is being broken already
	}
}

// Freeze stops every process of the container for a while.
func (p Pod) Freeze(ctx context.Context, d time.Duration) {
	p.freezing(true)
	p.main.freeze()
	nap(ctx, d)
	p.main.wake()
	p.freezing(false)
}

func (p Pod) freezing(on bool) {
	p.life.mu.Lock()
	defer p.life.mu.Unlock()
	p.life.frozen = on
}

// Nodes lists the nodes that are there and heard.
func (f *Fleet) Nodes() []*Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	var heard []*Node
	for _, n := range f.nodes {
		if !n.isCut() {
			heard = append(heard, n)
		}
	}
	return heard
}

// Cut cuts a node off from the API server and the control plane for a while; its processes run on.
func (f *Fleet) Cut(ctx context.Context, n *Node, d time.Duration) {
	n.setCut(true)
	nap(ctx, d)
	n.setCut(false)
}

// Lose cuts a node off for good. After a while somebody deletes its Node, and the pod garbage collector deletes what was
// bound to it; a new node takes its place. The machine runs on for as long as linger says, unheard, and is then switched
// off.
func (f *Fleet) Lose(ctx context.Context, n *Node, after, linger time.Duration) error {
	n.setCut(true)
	f.group.Go(func() {
		nap(n.fleetCtx, linger)
		n.off()
	})
	nap(ctx, after)
	ctx = n.fleetCtx // what has begun is brought to its end
	f.mu.Lock()
	f.nodes = slices.DeleteFunc(f.nodes, func(is *Node) bool { return is == n })
	f.mu.Unlock()
	f.again(ctx, func(ctx context.Context) error {
		return f.o.Kube.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
	})
	for _, l := range f.livesOf(n) {
		l.mu.Lock()
		pod := l.latest
		l.mu.Unlock()
		f.collect(ctx, pod)
	}
	return f.join(ctx)
}

// collect is the pod garbage collector for one pod whose node is gone.
func (f *Fleet) collect(ctx context.Context, pod *corev1.Pod) {
	f.again(ctx, func(ctx context.Context) error {
		now, err := f.o.Kube.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil || now.UID != pod.UID {
			return err
		}
		if !over(now) {
			now.Status.Phase = corev1.PodFailed
			now.Status.Conditions = append(now.Status.Conditions, disrupted("DeletionByPodGC"))
			if _, err := f.o.Kube.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		zero := int64(0)
		return f.o.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	})
}

// again calls the API server until the call has passed or its object is gone.
func (f *Fleet) again(ctx context.Context, do func(context.Context) error) {
	for ctx.Err() == nil {
		if err := do(ctx); err == nil || apierrors.IsNotFound(err) {
			return
		}
		nap(ctx, 200*time.Millisecond)
	}
}
