package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/rig"
)

// made waits until so many Jobs were ever made in the namespace.
func made(t *testing.T, c *canceling, n int) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) { return len(c.JobsCreated(t, c.Namespace())) >= n, nil }
}

// quotaActs waits until the quota knows what it allows.
func quotaActs(c *canceling) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		q, err := c.Kube.CoreV1().ResourceQuotas(c.Namespace()).Get(ctx, "none", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return len(q.Status.Hard) > 0, nil
	}
}

// toldToStop waits until the pod's deadline is lowered, as the kubelet would see it.
func toldToStop(t *testing.T, c *canceling) {
	t.Helper()
	rig.Eventually(t, "the pod to be told to stop", func(ctx context.Context) (bool, error) {
		p, err := c.Kube.CoreV1().Pods(c.Namespace()).Get(ctx, c.pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		deadline := p.Spec.ActiveDeadlineSeconds
		return deadline != nil && *deadline == 1 || p.DeletionTimestamp != nil, nil
	})
}

// waitsFor waits until a container of a pod waits for one of the reasons.
func waitsFor(r *rig.Rig, pod string, reasons ...string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		p, err := r.Kube.CoreV1().Pods(r.Namespace()).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			if c.State.Waiting != nil && slices.Contains(reasons, c.State.Waiting.Reason) {
				return true, nil
			}
		}
		return false, fmt.Errorf("it is %s", p.Status.Phase)
	}
}

func decodeInto(t *testing.T, a rig.Answer, v any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil {
		t.Fatalf("read %s: %v", a.Body, err)
	}
}
