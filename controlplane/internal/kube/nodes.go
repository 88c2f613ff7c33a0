package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

// nodeState is what is known of a Node. The zero value knows nothing.
type nodeState struct {
	gone   bool // deleted, or said by a person to be out of service
	silent bool // its kubelet has not been heard for a while
}

// noteNodes adds to s what look says of the Nodes of pods that have not ended, and of those that are gone without a word.
func noteNodes(a task.Attempt, s *task.Seen, look func(name string) nodeState) {
	states := map[string]nodeState{}
	at := func(name string) nodeState {
		state, known := states[name]
		if !known && name != "" {
			state = look(name)
			states[name] = state
			if state.gone {
				s.GoneNodes = append(s.GoneNodes, name)
			}
		}
		return state
	}
	shown := map[string]bool{}
	for i := range s.Pods {
		p := &s.Pods[i]
		shown[p.UID] = true
		if !p.Ended() {
			state := at(p.Node)
			p.NodeGone, p.NodeSilent = state.gone, state.silent
		}
	}
	for _, p := range append(a.Pods[:len(a.Pods):len(a.Pods)], task.KnownPod{UID: a.PodUID, Node: a.Node}) {
		if !p.Ended && !shown[p.UID] {
			at(p.Node)
		}
	}
}

// nodeState reads a Node. A Node that was deleted and made anew under its name is not gone: its kubelet speaks for it.
// Where the Node cannot be read, nothing is known of it.
func (c *Client) nodeState(ctx context.Context, name string) nodeState {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	n, err := c.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nodeState{gone: true}
	case err != nil:
		return nodeState{}
	}
	return stateOf(n)
}

func stateOf(n *corev1.Node) nodeState {
	var s nodeState
	for _, taint := range n.Spec.Taints {
		s.gone = s.gone || taint.Key == corev1.TaintNodeOutOfService
	}
	for _, cond := range n.Status.Conditions {
		s.silent = s.silent || cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionUnknown
	}
	return s
}
