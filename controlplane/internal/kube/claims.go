package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Claims names the PersistentVolumeClaims of a namespace that a selector of labels matches, in order: those that are bound
// and not being deleted. A list that broke off is an error, never a shorter list.
func (c *Client) Claims(ctx context.Context, namespace, selector string) ([]string, error) {
	const page = 500
	if !c.namespaced(namespace) {
		return nil, nil // none of them could be worked on
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	names := []string{}
	for o := (metav1.ListOptions{LabelSelector: selector, Limit: page}); ; {
		list, err := c.api.CoreV1().PersistentVolumeClaims(namespace).List(ctx, o)
		if err != nil {
			return nil, unreached(fmt.Errorf("list the claims %s of namespace %s: %w", selector, namespace, err))
		}
		for i := range list.Items {
			if claim := &list.Items[i]; claim.DeletionTimestamp == nil && claim.Status.Phase == corev1.ClaimBound {
				names = append(names, claim.Name)
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			slices.Sort(names)
			return names, nil
		}
	}
}
