package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StorageUse reads how many bytes each PersistentVolumeClaim of a namespace asks for, or has or is being given where that is
// more, whatever state it is in. A list that broke off is an error, never a shorter list.
func (c *Client) StorageUse(ctx context.Context, namespace string) (map[string]int64, error) {
	if !c.namespaced(namespace) {
		return nil, fmt.Errorf("read the claims of namespace %s: it is not enabled", namespace)
	}
	use := map[string]int64{}
	err := c.eachClaim(ctx, namespace, "", func(claim *corev1.PersistentVolumeClaim) {
		for _, sizes := range []corev1.ResourceList{claim.Spec.Resources.Requests, claim.Status.Capacity, claim.Status.AllocatedResources} {
			size := sizes[corev1.ResourceStorage]
			use[claim.Name] = max(use[claim.Name], size.Value())
		}
	})
	return use, err
}

// Claims names the PersistentVolumeClaims of a namespace that a selector of labels matches, in order: those that are bound
// and not being deleted. A list that broke off is an error, never a shorter list.
func (c *Client) Claims(ctx context.Context, namespace, selector string) ([]string, error) {
	if !c.namespaced(namespace) { // none of them could be worked on
		return nil, fmt.Errorf("list the claims of namespace %s: it is not enabled", namespace)
	}
	names := []string{}
	err := c.eachClaim(ctx, namespace, selector, func(claim *corev1.PersistentVolumeClaim) {
		if claim.DeletionTimestamp == nil && claim.Status.Phase == corev1.ClaimBound {
			names = append(names, claim.Name)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (c *Client) eachClaim(ctx context.Context, namespace, selector string, look func(*corev1.PersistentVolumeClaim)) error {
	const page = 500
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for o := (metav1.ListOptions{LabelSelector: selector, Limit: page}); ; {
		list, err := c.api.CoreV1().PersistentVolumeClaims(namespace).List(ctx, o)
		if err != nil {
			return unreached(fmt.Errorf("list the claims %s of namespace %s: %w", selector, namespace, err))
		}
		for i := range list.Items {
			look(&list.Items[i])
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return nil
		}
	}
}
