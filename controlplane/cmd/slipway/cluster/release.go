package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// evidence is the finalizer that holds the pods of Tasks until their end is stored.
const evidence = "slipway.dev/evidence"

// Held is a pod that the finalizer holds.
type Held struct{ Namespace, Name, Instance string }

// HeldPods lists the pods of Slipway that the finalizer holds, in one namespace, or in all for "".
func HeldPods(ctx context.Context, api kubernetes.Interface, namespace string) ([]Held, error) {
	var held []Held
	page := metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=slipway", Limit: 500}
	for {
		pods, err := api.CoreV1().Pods(namespace).List(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list the pods: %w", err)
		}
		for _, pod := range pods.Items {
			if slices.Contains(pod.Finalizers, evidence) {
				held = append(held, Held{Namespace: pod.Namespace, Name: pod.Name, Instance: pod.Labels["slipway.dev/instance"]})
			}
		}
		if page.Continue = pods.Continue; page.Continue == "" {
			return held, nil
		}
	}
}

// ReleasePod takes the finalizer off one pod; other finalizers stay.
func ReleasePod(ctx context.Context, api kubernetes.Interface, h Held) error {
	pods := api.CoreV1().Pods(h.Namespace)
	for {
		pod, err := pods.Get(ctx, h.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("release pod %s/%s: %w", h.Namespace, h.Name, err)
		}
		done, err := takeOff(ctx, api, pod)
		if err != nil {
			return fmt.Errorf("release pod %s/%s: %w", h.Namespace, h.Name, err)
		}
		if done {
			return nil
		}
	}
}

// takeOff patches the finalizer away; it is not done where the list has changed meanwhile.
func takeOff(ctx context.Context, api kubernetes.Interface, pod *corev1.Pod) (done bool, err error) {
	at := slices.Index(pod.Finalizers, evidence)
	if at < 0 {
		return true, nil
	}
	path := fmt.Sprintf("/metadata/finalizers/%d", at)
	patch, err := json.Marshal([]map[string]string{{"op": "test", "path": path, "value": evidence}, {"op": "remove", "path": path}})
	if err != nil {
		return false, fmt.Errorf("write a patch: %w", err)
	}
	_, err = api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsInvalid(err) && ctx.Err() == nil {
		return false, nil
	}
	return true, ignoreGone(err)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Held lists the pods that the finalizer holds, in one namespace, or in all for "".
func (c *Cluster) Held(ctx context.Context, namespace string) ([]Held, error) {
	held, err := HeldPods(ctx, c.api, namespace)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("%w. It takes list, get and patch on pods", err)
	}
	return held, err
}

// Release takes the finalizer off one pod.
func (c *Cluster) Release(ctx context.Context, h Held) error { return ReleasePod(ctx, c.api, h) }

// Open counts the Jobs in a namespace whose Attempts are not closed.
func (c *Cluster) Open(ctx context.Context, namespace string) (int, error) {
	jobs, err := c.api.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=slipway,slipway.dev/state!=closed"})
	if err != nil {
		return 0, fmt.Errorf("list the Jobs: %w", err)
	}
	return len(jobs.Items), nil
}
