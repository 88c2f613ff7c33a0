package storage

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.dev/slipway/e2e/rig"
)

var (
	snapshots = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	contents  = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
)

// Snapshot makes a VolumeSnapshot of a claim's volume. It goes with the namespace.
func (s *Storage) Snapshot(t testing.TB, namespace, name, claim string) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"volumeSnapshotClassName": SnapshotClass,
			"source":                  map[string]any{"persistentVolumeClaimName": claim},
		},
	}}
	if _, err := s.Dynamic.Resource(snapshots).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatalf("make snapshot %s: %v", name, err)
	}
}

// DeleteSnapshot asks for the end of a VolumeSnapshot.
func (s *Storage) DeleteSnapshot(t testing.TB, namespace, name string) {
	t.Helper()
	if err := s.Dynamic.Resource(snapshots).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete snapshot %s: %v", name, err)
	}
}

// SnapshotStatus is the status of a VolumeSnapshot.
type SnapshotStatus struct {
	Ready   bool
	Size    string // restoreSize; empty: not known yet
	Content string // name of the VolumeSnapshotContent
	Error   string
}

// UntilSnapshot waits until the status of a VolumeSnapshot is as wanted, which what names, and gives it.
func (s *Storage) UntilSnapshot(t testing.TB, namespace, name, what string, want func(SnapshotStatus) bool) SnapshotStatus {
	t.Helper()
	var status SnapshotStatus
	rig.Eventually(t, fmt.Sprintf("snapshot %s %s", name, what), func(ctx context.Context) (bool, error) {
		object, err := s.Dynamic.Resource(snapshots).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		status = statusOf(object)
		if want(status) {
			return true, nil
		}
		return false, fmt.Errorf("its status is %+v", status)
	})
	return status
}

func statusOf(object *unstructured.Unstructured) SnapshotStatus {
	var status SnapshotStatus
	// A field of another type counts as one that is not there.
	status.Ready, _, _ = unstructured.NestedBool(object.Object, "status", "readyToUse")
	status.Size, _, _ = unstructured.NestedString(object.Object, "status", "restoreSize")
	status.Content, _, _ = unstructured.NestedString(object.Object, "status", "boundVolumeSnapshotContentName")
	status.Error, _, _ = unstructured.NestedString(object.Object, "status", "error", "message")
	return status
}
