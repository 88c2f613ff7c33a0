package kube

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

// claim makes a PersistentVolumeClaim that asks for one size and, where has is not empty, is bound and has another.
func (r *rig) claim(name, asks, has string) {
	r.t.Helper()
	ctx, claims := r.t.Context(), server.api.CoreV1().PersistentVolumeClaims(r.namespace)
	made := have(claims.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "shop"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: new("none"),
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(asks)}},
		},
	}, metav1.CreateOptions{}))(r.t)
	if has == "" {
		return
	}
	made.Status.Phase = corev1.ClaimBound
	made.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(has)}
	have(claims.UpdateStatus(ctx, made, metav1.UpdateOptions{}))(r.t)
}

func TestEachClaimCountsAsWhatItAsksForOrHasWhicheverIsMore(t *testing.T) {
	r := newRig(t)
	if use, err := r.client.StorageUse(t.Context(), r.namespace); err != nil || use == nil || len(use) != 0 {
		t.Errorf("without a claim: %v %v", use, err)
	}
	r.claim("pending", "1Gi", "")
	r.claim("rounded", "1500M", "2Gi")
	r.claim("growing", "3Gi", "1Gi")
	r.claim("taken-back", "2Gi", "1Gi") // and its driver still has the larger wish
	ctx, claims := t.Context(), server.api.CoreV1().PersistentVolumeClaims(r.namespace)
	claim := have(claims.Get(ctx, "taken-back", metav1.GetOptions{}))(t)
	claim.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")}
	have(claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}))(t)
	use, err := r.client.StorageUse(t.Context(), r.namespace)
	if want := map[string]int64{"pending": 1 << 30, "rounded": 2 << 30, "growing": 3 << 30, "taken-back": 4 << 30}; err != nil || !maps.Equal(use, want) {
		t.Errorf("%v %v, want %v", use, err, want)
	}
	names, err := r.client.Claims(t.Context(), r.namespace, "app=shop")
	if err != nil || fmt.Sprint(names) != "[growing rounded taken-back]" {
		t.Errorf("bound: %v %v", names, err)
	}
	if _, err := r.client.StorageUse(t.Context(), "default"); err == nil || errors.Is(err, task.ErrUnavailable) {
		t.Errorf("a namespace that is not enabled: %v", err)
	}
	if _, err := r.client.Claims(t.Context(), "default", "app=shop"); err == nil || errors.Is(err, task.ErrUnavailable) {
		t.Errorf("its claims: %v", err)
	}
}
