package kube

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/pkg/task"
)

func TestALiveLookReadsTheNodeOfWhatHasNotEnded(t *testing.T) {
	r := newRig(t)
	_, a, pod := r.launch()
	nodes := server.api.CoreV1().Nodes()
	name := r.namespace // a Node of this test's own
	have(nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { _ = nodes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	r.bindTo(pod, name)
	r.running(pod)
	see := func() task.SeenPod { return r.observe(a, true).Pods[0] }
	if p := see(); p.NodeGone || p.NodeSilent {
		t.Errorf("a healthy node is seen as %+v", p)
	}
	silent := `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`
	have(nodes.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(silent), metav1.PatchOptions{}, "status"))(t)
	if p := see(); p.NodeGone || !p.NodeSilent {
		t.Errorf("a silent node is seen as %+v", p)
	}
	taint := `{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]}}`
	have(nodes.Patch(t.Context(), name, types.MergePatchType, []byte(taint), metav1.PatchOptions{}))(t)
	if p := see(); !p.NodeGone {
		t.Errorf("a node out of service is seen as %+v", p)
	}
	if err := nodes.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if s := r.observe(a, true); !s.Pods[0].NodeGone || len(s.GoneNodes) != 1 {
		t.Errorf("a deleted node is seen as %+v", s)
	}
	if s := r.observe(a, false); s.Pods[0].NodeGone || len(s.GoneNodes) != 0 {
		t.Errorf("the cache knows of nodes: %+v", s)
	}
	before := r.client.Calls()[Call{"get", "nodes"}]
	r.ends(pod, corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed"})
	if s := r.observe(a, true); s.Pods[0].NodeGone || r.client.Calls()[Call{"get", "nodes"}] != before {
		t.Error("the node of an ended pod is read")
	}
	a.Pods = []task.KnownPod{{UID: "vanished", Node: name}, {UID: "ended", Node: "elsewhere", Ended: true}}
	if s := r.observe(a, true); len(s.GoneNodes) != 1 || s.GoneNodes[0] != name {
		t.Errorf("of pods that vanished, the gone nodes are %v", s.GoneNodes)
	}
}

func TestWithoutTheRightNothingIsKnownOfNodes(t *testing.T) {
	server.start(t)
	c := (&rig{t: t, namespace: "nowhere"}).newClient(func(cfg *Config) { cfg.REST.Impersonate.UserName = "nobody" })
	if s := c.nodeState(t.Context(), "anything"); s.gone || s.silent {
		t.Errorf("got %+v", s)
	}
}
