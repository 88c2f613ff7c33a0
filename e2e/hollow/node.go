package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leaseEvery is how often a kubelet renews its Lease.
const leaseEvery = 10 * time.Second

// Node is one hollow node: its kubelet and its way to the control plane.
type Node struct {
	Name string

	fleet    *Fleet
	way      *way
	ctx      context.Context // until the machine is switched off
	fleetCtx context.Context // of the whole fleet
	off      context.CancelFunc

	mu  sync.Mutex
	cut chan struct{} // closed when the cut is over; nil while there is none
}

// join makes a node and registers it.
func (f *Fleet) join(ctx context.Context) error {
	f.mu.Lock()
	f.made++
	name := fmt.Sprintf("%s%d", f.prefix(), f.made)
	f.mu.Unlock()
	w, err := newWay(ctx, f.o.Host, f.o.Service)
	if err != nil {
		return fmt.Errorf("make node %s: %w", name, err)
	}
	n := &Node{Name: name, fleet: f, way: w, fleetCtx: ctx}
	n.ctx, n.off = context.WithCancel(ctx)
	f.group.Go(func() {
		<-n.ctx.Done()
		w.close()
	})
	if err := n.register(ctx); err != nil {
		n.off()
		return fmt.Errorf("register node %s: %w", name, err)
	}
	f.group.Go(n.renew)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes = append(f.nodes, n)
	return nil
}

func (n *Node) register(ctx context.Context) error {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("1000"),
	}
	now := metav1.Now()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{"kubernetes.io/hostname": n.Name}}}
	node.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}},
	}
	patch, err := json.Marshal(map[string]any{"status": node.Status})
	if err != nil {
		return err
	}
	return n.call(ctx, func(ctx context.Context) error {
		nodes := n.fleet.o.Kube.CoreV1().Nodes()
		if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		_, err := nodes.Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

// renew keeps the Lease, as long as the node is heard.
func (n *Node) renew() {
	leases := n.fleet.o.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Namespace: corev1.NamespaceNodeLease}}
	for n.ctx.Err() == nil {
		now, seconds := metav1.NowMicro(), int32(40)
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &n.Name, LeaseDurationSeconds: &seconds, RenewTime: &now}
		_ = n.call(n.ctx, func(ctx context.Context) (err error) { // the next one may pass
			var kept *coordinationv1.Lease
			if lease.ResourceVersion == "" {
				kept, err = leases.Create(ctx, lease, metav1.CreateOptions{})
			} else {
				kept, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
			}
			if err == nil {
				lease = kept
			}
			return err
		})
		nap(n.ctx, leaseEvery)
	}
}

// call talks to the API server for the kubelet: again until it is answered, and not while the node is cut off. An answer
// that will not change is given as the error.
func (n *Node) call(ctx context.Context, do func(context.Context) error) error {
	for {
		if err := n.heard(ctx); err != nil {
			return err
		}
		err := do(ctx)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsAlreadyExists(err) {
			return err
		}
		nap(ctx, 200*time.Millisecond)
	}
}

// heard waits until the node is not cut off.
func (n *Node) heard(ctx context.Context) error {
	for {
		n.mu.Lock()
		cut := n.cut
		n.mu.Unlock()
		if cut == nil {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-cut:
		}
	}
}

func (n *Node) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut != nil
}

// setCut cuts the node off from the API server and from the control plane, or lets it back.
func (n *Node) setCut(cut bool) {
	n.mu.Lock()
	switch {
	case cut && n.cut == nil:
		n.cut = make(chan struct{})
	case !cut && n.cut != nil:
		close(n.cut)
		n.cut = nil
	}
	n.mu.Unlock()
	n.way.silence(cut)
	for _, l := range n.fleet.livesOf(n) {
		l.stir()
	}
}

func (f *Fleet) livesOf(n *Node) (all []*life) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.lives {
		if l.node == n {
			all = append(all, l)
		}
	}
	return all
}
