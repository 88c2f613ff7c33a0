package volumes

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/pkg/handler"
)

const growing = `{"allocatedResources":{"storage":"3Gi"},"allocatedResourceStatuses":{"storage":"ControllerResizeInProgress"},` +
	`"conditions":[{"type":"Resizing","status":"True"},{"type":"ControllerResizeError","status":"True","message":"pool is full"}]}`

// unmarked waits until nobody is said to have asked.
func (s *stage) unmarked(name string) {
	s.Helper()
	s.claimUntil(name, "to be without a mark", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations["slipway.dev/resize-asked"] == "" && c.Annotations["slipway.dev/modify-asked"] == ""
	})
}

// change changes a claim as somebody else does.
func (s *stage) change(name, patch string) {
	s.Helper()
	_, err := s.rig.Kube.CoreV1().PersistentVolumeClaims(s.namespace).Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) wants(name, class string) {
	s.Helper()
	s.claimUntil(name, "to ask for class "+class, func(c *corev1.PersistentVolumeClaim) bool {
		return c.Spec.VolumeAttributesClassName != nil && *c.Spec.VolumeAttributesClassName == class
	})
}

func TestATakeBackIsCleanOnlyOnceTheResizerHasTakenTheLowerWish(t *testing.T) {
	s := set(t)
	for name, taken := range map[string]string{
		"taken":   `{"allocatedResources":{"storage":"1073741825"},"conditions":[{"type":"Resizing","status":"True"}]}`,
		"cleared": `{"allocatedResources":{"storage":"1Gi"},"allocatedResourceStatuses":null,"conditions":[]}`,
		"refused": `{"allocatedResourceStatuses":{"storage":"ControllerResizeInfeasible"}}`,
	} {
		s.claim(name, "1Gi")
		r := s.start("volume.resize", "t-"+name, `{"pvc":"`+name+`","size":"3Gi"}`)
		s.asked(name, "3Gi")
		s.playClaim(name, growing)
		r.says("pool is full")
		r.cancel(handler.ErrCanceled)
		s.asked(name, "1073741825")
		r.says("waiting for the resizer to give up its target of 3Gi")
		s.playClaim(name, taken)
		if end := r.ends(); strings.Contains(end, "may still grow") {
			t.Errorf("%s: %s", name, end)
		}
		s.unmarked(name)
	}
	// A resizer that began again knows nothing of the error and keeps to its target.
	s.claim("forgot", "1Gi")
	r := s.start("volume.resize", "t-forgot", `{"pvc":"forgot","size":"3Gi"}`)
	s.asked("forgot", "3Gi")
	s.playClaim("forgot", growing)
	r.says("pool is full")
	r.cancel(handler.ErrCanceled)
	r.expect("failed, may still grow to 3Gi: the driver has not answered, or the resizer not looked again")
	s.asked("forgot", "1073741825")
}

func TestWhatAKilledAttemptAskedForIsTakenBackByOneThatIsStoppedBeforeItsFirstStep(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	const params = `{"pvc":"data","size":"2Gi"}`
	for _, cause := range []error{handler.ErrCanceled, handler.ErrDeadline} {
		s.killed("volume.resize", "t1", params, "resize.asked")
		s.asked("data", "2Gi")
		r := s.attempt(2, cause, "volume.resize", "t1", params)
		if end := r.ends(); strings.Contains(end, "may still grow") {
			t.Error(end)
		}
		s.asked("data", "1073741825")
		s.unmarked("data")
	}
	// Killed again while it lowers the wish, the next one knows that it did.
	s.killed("volume.resize", "t2", params, "resize.asked")
	s.playClaim("data", `{"allocatedResources":{"storage":"2Gi"},"allocatedResourceStatuses":{"storage":"ControllerResizeInProgress"}}`)
	s.change("data", `{"metadata":{"annotations":{"slipway.dev/resize-asked":"t2 1073741825"}},"spec":{"resources":{"requests":{"storage":"1073741825"}}}}`)
	s.attempt(3, handler.ErrCanceled, "volume.resize", "t2", params).expect("may still grow to 2Gi")
}

func TestAWishOfSomebodyElseForTheSameIsNotTakenBack(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	s.change("data", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
	for attempt := range 2 {
		r := s.attempt(attempt+1, nil, "volume.resize", "t1", `{"pvc":"data","size":"2Gi"}`)
		r.says("asks for 2Gi already, by somebody else")
		r.cancel(handler.ErrCanceled)
		r.ends()
		s.asked("data", "2Gi")
	}
	s.change("data", `{"spec":{"volumeAttributesClassName":"gold"}}`)
	s.playClaim("data", `{"currentVolumeAttributesClassName":"silver"}`)
	r := s.start("volume.modify", "t2", `{"pvc":"data","class":"gold"}`)
	r.says("by somebody else")
	r.cancel(handler.ErrCanceled)
	r.ends()
	s.wants("data", "gold")
}

func TestTheClassThatIsPutBackIsTheOneBeforeTheFirstAsk(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	s.change("data", `{"spec":{"volumeAttributesClassName":"silver"}}`)
	s.playClaim("data", `{"currentVolumeAttributesClassName":"silver"}`)
	const params = `{"pvc":"data","class":"gold"}`
	s.killed("volume.modify", "t1", params, "modify.asked")
	// The driver is at it, and the claim shows the new class already.
	s.playClaim("data", `{"currentVolumeAttributesClassName":"gold","modifyVolumeStatus":{"targetVolumeAttributesClassName":"gold","status":"InProgress"}}`)
	r := s.attempt(2, handler.ErrCanceled, "volume.modify", "t1", params)
	s.wants("data", "silver")
	r.says("waiting for the resizer to give up class gold")
	s.playClaim("data", `{"modifyVolumeStatus":{"targetVolumeAttributesClassName":"silver","status":"InProgress"}}`)
	if end := r.ends(); strings.Contains(end, "may still change") {
		t.Error(end)
	}
	s.unmarked("data")
	s.playClaim("data", `{"currentVolumeAttributesClassName":"silver","modifyVolumeStatus":null}`)
	s.killed("volume.modify", "t2", params, "modify.asked")
	s.playClaim("data", `{"currentVolumeAttributesClassName":"gold","modifyVolumeStatus":null}`)
	s.attempt(2, nil, "volume.modify", "t2", params).expect(`"state":"changed"`, `"from":"silver"`)
	s.unmarked("data")
}

func TestAClaimThatIsDeletedWhileItGrowsMayNotStillGrow(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	s.killed("volume.resize", "t1", `{"pvc":"data","size":"2Gi"}`, "resize.asked")
	if err := s.rig.Kube.CoreV1().PersistentVolumeClaims(s.namespace).Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.change("data", `{"metadata":{"finalizers":null}}`)
	end := s.attempt(2, nil, "volume.resize", "t1", `{"pvc":"data","size":"2Gi"}`).ends()
	if !strings.Contains(end, "there is no PVC data") || strings.Contains(end, "may still grow") {
		t.Error(end)
	}
	s.claim("other", "1Gi")
	r := s.start("volume.resize", "t2", `{"pvc":"other","size":"2Gi"}`)
	s.asked("other", "2Gi")
	r.says("waiting for the resizer")
	if err := s.rig.Kube.CoreV1().PersistentVolumeClaims(s.namespace).Delete(t.Context(), "other", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.change("other", `{"metadata":{"finalizers":null}}`)
	end = r.ends()
	if !strings.Contains(end, "PVC other") || strings.Contains(end, "may still grow") {
		t.Error(end)
	}
}
