package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

// volumeParams are the parameters of the kinds about one volume.
type volumeParams struct {
	PVC   string `json:"pvc"`
	Size  string `json:"size"`
	Class string `json:"class"`
}

// Against says what stands in the cluster against a Task, by JSON pointers into its submit. It knows the kinds volume.*
// and finds nothing against others. What cannot be read stands against nothing: the handler looks again.
func (c *Client) Against(ctx context.Context, t task.Task) (map[string]string, error) {
	var p volumeParams
	switch t.Kind {
	case "volume.resize", "volume.modify", "volume.snapshot":
	default:
		return nil, nil
	}
	if err := json.Unmarshal(t.Params, &p); err != nil {
		return nil, fmt.Errorf("read the parameters of kind %s: %w", t.Kind, err)
	}
	if !c.namespaced(t.Namespace) {
		return nil, nil // it waits until the namespace is enabled, and says so
	}
	wrong := map[string]string{}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	claim, err := c.api.CoreV1().PersistentVolumeClaims(t.Namespace).Get(ctx, p.PVC, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		wrong["/params/pvc"] = "is no PersistentVolumeClaim of namespace " + t.Namespace
	case err != nil:
		return nil, fmt.Errorf("read claim %s/%s: %w", t.Namespace, p.PVC, unreached(err))
	case claim.DeletionTimestamp != nil:
		wrong["/params/pvc"] = "is being deleted"
	case claim.Status.Phase != corev1.ClaimBound:
		wrong["/params/pvc"] = fmt.Sprintf("is %s: only a bound claim has a volume", or(claim.Status.Phase, corev1.ClaimPending))
	case t.Kind == "volume.resize":
		return wrong, c.againstGrowth(ctx, claim, p.Size, wrong)
	}
	return wrong, c.againstClass(ctx, t.Kind, p.Class, wrong)
}

// againstGrowth refuses what a volume can never do. A wish for less than another one that is stuck is not to shrink.
func (c *Client) againstGrowth(ctx context.Context, claim *corev1.PersistentVolumeClaim, size string, wrong map[string]string) error {
	want, err := resource.ParseQuantity(size)
	if err != nil {
		return fmt.Errorf("read a size: %w", err) // the kind has refused it before
	}
	has, asks := claim.Status.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if want.Cmp(has) < 0 && want.Cmp(asks) < 0 {
		wrong["/params/size"] = fmt.Sprintf("is less than the %s that the volume has: it cannot shrink", has.String())
	}
	if want.Cmp(has) <= 0 {
		return nil
	}
	name := ""
	if claim.Spec.StorageClassName != nil {
		name = *claim.Spec.StorageClassName
	}
	if name == "" {
		wrong["/params/pvc"] = "has no StorageClass, so that its volume cannot grow"
		return nil
	}
	class, err := c.api.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		wrong["/params/pvc"] = "is of StorageClass " + name + ", which is not there"
	case err != nil:
		return fmt.Errorf("read StorageClass %s: %w", name, unreached(err))
	case class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion:
		wrong["/params/pvc"] = "is of StorageClass " + name + ", whose volumes cannot grow (allowVolumeExpansion)"
	}
	return nil
}

// againstClass refuses classes that are not there.
func (c *Client) againstClass(ctx context.Context, kind, name string, wrong map[string]string) error {
	var what string
	var err error
	switch {
	case name == "":
		return nil
	case kind == "volume.modify":
		what = "VolumeAttributesClass"
		_, err = c.api.StorageV1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	default:
		what = "VolumeSnapshotClass"
		// No type of it is known here, and none is needed.
		err = c.api.StorageV1().RESTClient().Get().AbsPath("/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses", name).Do(ctx).Error()
	}
	if apierrors.IsNotFound(err) {
		wrong["/params/class"] = "is no " + what + " of the cluster"
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", what, name, unreached(err))
	}
	return nil
}
