package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/e2e/rig"
)

// Claim says what a volume is to be.
type Claim struct {
	Class      string // default Loop
	Size       string // default 64Mi
	Snapshot   string // made from this VolumeSnapshot; default: empty
	Clone      string // made from this claim's volume; default: empty
	Attributes string // VolumeAttributesClass; default: none
}

// Claim makes a PersistentVolumeClaim. It goes with the namespace.
func (s *Storage) Claim(t testing.TB, namespace, name string, c Claim) {
	t.Helper()
	if c.Class == "" {
		c.Class = Loop
	}
	if c.Size == "" {
		c.Size = "64Mi"
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &c.Class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(c.Size)}},
		},
	}
	switch {
	case c.Snapshot != "":
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new(snapshots.Group), Kind: "VolumeSnapshot", Name: c.Snapshot}
	case c.Clone != "":
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: c.Clone}
	}
	if c.Attributes != "" {
		claim.Spec.VolumeAttributesClassName = &c.Attributes
	}
	if _, err := s.Kube.CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatalf("make claim %s: %v", name, err)
	}
}

// Get reads a claim.
func (s *Storage) Get(t testing.TB, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim, err := s.Kube.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("read claim %s: %v", name, err)
	}
	return claim
}

// Until waits until a claim is as wanted, which what names, and gives it.
func (s *Storage) Until(t testing.TB, namespace, name, what string, want func(*corev1.PersistentVolumeClaim) bool) *corev1.PersistentVolumeClaim {
	t.Helper()
	var claim *corev1.PersistentVolumeClaim
	rig.Eventually(t, fmt.Sprintf("claim %s %s", name, what), func(ctx context.Context) (bool, error) {
		var err error
		claim, err = s.Kube.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || want(claim) {
			return err == nil, err
		}
		status, err := json.Marshal(claim.Status)
		return false, errors.Join(fmt.Errorf("its status is %s", status), err)
	})
	return claim
}

// UntilBound waits for a claim's volume.
func (s *Storage) UntilBound(t testing.TB, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return s.Until(t, namespace, name, "to be bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
}

// Ask changes the size that a claim asks for.
func (s *Storage) Ask(t testing.TB, namespace, name, size string) {
	t.Helper()
	s.patch(t, namespace, name, map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": size}}})
}

// Modify changes the VolumeAttributesClass that a claim asks for.
func (s *Storage) Modify(t testing.TB, namespace, name, class string) {
	t.Helper()
	s.patch(t, namespace, name, map[string]any{"volumeAttributesClassName": class})
}

func (s *Storage) patch(t testing.TB, namespace, name string, spec map[string]any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatalf("change claim %s: %v", name, err)
	}
	if _, err := s.Kube.CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatalf("change claim %s: %v", name, err)
	}
}

// Has says whether a claim has this condition, with status True.
func Has(c *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) bool {
	for _, condition := range c.Status.Conditions {
		if condition.Type == kind && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// Grown says whether a claim's volume has this size, file system included, and nothing of a growth is open.
func Grown(c *corev1.PersistentVolumeClaim, size string) bool {
	return c.Status.Capacity.Storage().Cmp(resource.MustParse(size)) >= 0 && len(c.Status.AllocatedResourceStatuses) == 0 &&
		!Has(c, corev1.PersistentVolumeClaimResizing) && !Has(c, corev1.PersistentVolumeClaimFileSystemResizePending)
}
