package cases

import (
	"context"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/e2e/storage"
	"slipway.dev/slipway/pkg/api"
)

func TestCase16(t *testing.T) {
	replay(t, 16, "what a volume can never do is refused at once and blocks nothing; the same passes when its class lets it", func(t *testing.T) {
		r, s, user := volumes(t)
		ns := r.Namespace()
		class := fixedClass(t, r)
		s.Claim(t, ns, "fixed", storage.Claim{Class: class})
		s.Claim(t, ns, "data", storage.Claim{Size: "128Mi"})
		staticClaim(t, r, "static")
		for _, name := range []string{"fixed", "data"} {
			s.Mount(t, ns, name).Delete(t)
		}
		refused := func(params map[string]any, field, reason string) {
			t.Helper()
			a := user.Must(t, http.MethodPost, "/v1/tasks", map[string]any{"kind": "volume.resize", "namespace": ns, "params": params}, http.StatusUnprocessableEntity)
			if text := string(a.Body); !strings.Contains(text, `"pointer":"`+field+`"`) || !strings.Contains(text, reason) {
				t.Errorf("%v: %s", params, text)
			}
		}
		grow := map[string]any{"pvc": "fixed", "size": "128Mi"}
		refused(grow, "/params/pvc", "cannot grow")
		refused(map[string]any{"pvc": "data", "size": "64Mi"}, "/params/size", "it cannot shrink")
		refused(map[string]any{"pvc": "static", "size": "2Gi"}, "/params/pvc", "has no StorageClass")
		// What comes next in the same lane runs.
		outcomeOf[any](t, user, about(t, user, "volume.snapshot", map[string]any{"pvc": "fixed", "class": storage.SnapshotClass}, nil).ID, api.StateSucceeded)
		if is := s.Get(t, ns, "fixed").Spec.Resources.Requests.Storage().String(); is != "64Mi" {
			t.Errorf("a refused wish stands in the claim: %s", is)
		}
		r.Kubectl(t, "patch", "storageclass", class, "-p", `{"allowVolumeExpansion":true}`)
		if got := outcomeOf[sizes](t, user, about(t, user, "volume.resize", grow, nil).ID, api.StateSucceeded); got.Allocated != "128Mi" {
			t.Errorf("once the class lets it: %+v", got)
		}
	})
}

// fixedClass makes a StorageClass whose volumes cannot grow, for one test alone.
func fixedClass(t *testing.T, r *rig.Rig) string {
	t.Helper()
	name := rig.Name("fixed")
	like, err := r.Kube.StorageV1().StorageClasses().Get(t.Context(), storage.Fixed, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Kube.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: like.Provisioner, Parameters: like.Parameters, VolumeBindingMode: like.VolumeBindingMode,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Kube.StorageV1().StorageClasses().Delete(context.Background(), name, metav1.DeleteOptions{}) // the cluster goes anyway
	})
	return name
}

// staticClaim makes a claim of a volume that somebody made by hand, without a class.
func staticClaim(t *testing.T, r *rig.Rig, name string) {
	t.Helper()
	ns, pv, none := r.Namespace(), rig.Name("static"), ""
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	_, err := r.Kube.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pv},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Namespace: ns, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Kube.CoreV1().PersistentVolumes().Delete(context.Background(), pv, metav1.DeleteOptions{}) // the cluster goes anyway
	})
	_, err = r.Kube.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &none, VolumeName: pv, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "claim "+name+" to be bound", func(ctx context.Context) (bool, error) {
		c, err := r.Kube.CoreV1().PersistentVolumeClaims(ns).Get(ctx, name, metav1.GetOptions{})
		return err == nil && c.Status.Phase == corev1.ClaimBound, err
	})
}
