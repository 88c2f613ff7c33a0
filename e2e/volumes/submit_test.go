package volumes

import (
	"net/http"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

func TestWhatAVolumeCanNeverDoIsRefusedAtSubmitAndNamesTheField(t *testing.T) {
	s := set(t)
	s.claim("data", "2Gi")
	grows := s.class
	s.class = rig.Name("fixed")
	_, err := s.rig.Kube.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.class}, Provisioner: "played.slipway.dev",
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.claim("fixed", "1Gi")
	s.make("volumesnapshotclasses", "", map[string]any{"kind": "VolumeSnapshotClass", "metadata": map[string]any{"name": grows}, "driver": "played.slipway.dev", "deletionPolicy": "Delete"})
	t.Cleanup(func() { s.drop("volumesnapshotclasses", "", grows) })
	user := s.rig.User(t, s.namespace)
	body := func(kind, params string) string {
		return `{"kind":"` + kind + `","namespace":"` + s.namespace + `","params":` + params + `}`
	}
	for _, tc := range []struct{ kind, params, field, reason string }{
		{"volume.resize", `{"pvc":"none","size":"3Gi"}`, "/params/pvc", "is no PersistentVolumeClaim"},
		{"volume.resize", `{"pvc":"data","size":"1Gi"}`, "/params/size", "is less than the 2Gi that the volume has"},
		{"volume.resize", `{"pvc":"fixed","size":"2Gi"}`, "/params/pvc", "cannot grow"},
		{"volume.modify", `{"pvc":"data","class":"none"}`, "/params/class", "is no VolumeAttributesClass"},
		{"volume.snapshot", `{"pvc":"data","class":"none"}`, "/params/class", "is no VolumeSnapshotClass"},
		{"volume.snapshot", `{"pvc":"none"}`, "/params/pvc", "is no PersistentVolumeClaim"},
	} {
		for _, path := range []string{"/v1/tasks", "/v1/tasks?dry_run=true"} {
			a := user.Must(t, http.MethodPost, path, body(tc.kind, tc.params), http.StatusUnprocessableEntity)
			if text := string(a.Body); !strings.Contains(text, `"pointer":"`+tc.field+`"`) || !strings.Contains(text, tc.reason) {
				t.Errorf("%s %s: %s", tc.kind, tc.params, text)
			}
		}
	}
	for _, tc := range []struct{ kind, params string }{
		{"volume.resize", `{"pvc":"data","size":"2048Mi"}`},
		{"volume.resize", `{"pvc":"fixed","size":"1Gi"}`},
		{"volume.snapshot", `{"pvc":"data","class":"` + grows + `"}`},
		{"volume.snapshot.cleanup", `{"rule":"default","keep":{"daily":7,"zone":"Europe/Berlin"}}`},
	} {
		user.Must(t, http.MethodPost, "/v1/tasks?dry_run=true", body(tc.kind, tc.params), http.StatusOK)
	}
}

func TestThePodOfAVolumesKindRunsUnderItsAccountWithATokenForTheAPIServer(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	user := s.rig.User(t, s.namespace)
	made := user.Submit(t, map[string]any{"kind": "volume.resize", "namespace": s.namespace, "params": map[string]string{"pvc": "data", "size": "2Gi"}})
	pod := s.rig.Pod(t, s.namespace, user.JobOf(t, made.ID))
	if pod.Spec.ServiceAccountName != "slipway-volume-resize" || pod.Spec.AutomountServiceAccountToken == nil || !*pod.Spec.AutomountServiceAccountToken {
		t.Errorf("it runs as %s, with a token: %v", pod.Spec.ServiceAccountName, pod.Spec.AutomountServiceAccountToken)
	}
	s.rig.Bind(t, pod)
	s.rig.Run(t, pod)
	runner := s.rig.StartRunner(t, pod)
	r := s.start(runner.Answer.Kind, runner.Answer.TaskID, string(runner.Answer.Params))
	s.asked("data", "2Gi")
	s.playClaim("data", grown)
	runner.Finish(t, map[string]any{"outcome": "succeeded", "result": r.ends()}, http.StatusNoContent)
	s.rig.Exit(t, pod, 0, "")
	if end := user.Await(t, made.ID); end.State != api.StateSucceeded {
		t.Errorf("it is %+v", end)
	}
}
