package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Serves says whether the API server knows a group in a version, as snapshot.storage.k8s.io/v1: whether its definitions are
// installed. Every account may ask.
func (c *Client) Serves(ctx context.Context, groupVersion string) (bool, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	err := c.api.CoreV1().RESTClient().Get().AbsPath("/apis", groupVersion).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, unreached(fmt.Errorf("ask for %s: %w", groupVersion, err))
	}
	return true, nil
}
