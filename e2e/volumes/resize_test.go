package volumes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/handler"
)

const (
	inProgress = `"allocatedResources":{"storage":"2Gi"},"allocatedResourceStatuses":{"storage":"ControllerResizeInProgress"},"conditions":[{"type":"Resizing","status":"True"}]`
	pending    = `"allocatedResources":{"storage":"2Gi"},"allocatedResourceStatuses":{"storage":"NodeResizePending"},"conditions":[{"type":"FileSystemResizePending","status":"True"}]`
	grown      = `{"capacity":{"storage":"2Gi"},"allocatedResources":{"storage":"2Gi"},"allocatedResourceStatuses":null,"conditions":[]}`
)

// mount makes a pod that has the claim, on a node.
func (s *stage) mount(name, claim string) {
	s.Helper()
	no := false
	pod, err := s.rig.Kube.CoreV1().Pods(s.namespace).Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no,
			SecurityContext:              &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "db", Image: "db", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	s.rig.Bind(s, pod)
}

func TestResize(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	s.mount("db", "data")
	s.Run("succeeds when the file system has grown, and not before", func(t *testing.T) {
		s := &stage{T: t, rig: s.rig, namespace: s.namespace, admin: s.admin, class: s.class}
		r := s.start("volume.resize", "t1", `{"pvc":"data","size":"2Gi"}`)
		s.asked("data", "2Gi")
		r.says("device 1Gi, file system 1Gi, waiting for the resizer")
		s.playClaim("data", `{`+inProgress+`}`)
		r.says("waiting for the driver to grow the device to 2Gi")
		s.playClaim("data", `{`+pending+`}`)
		r.says("device 2Gi, file system 1Gi, waiting for node resize under pod db")
		s.playClaim("data", `{"allocatedResourceStatuses":{"storage":"NodeResizeInProgress"}}`)
		r.says("waiting for node resize, which is under way")
		s.playClaim("data", grown)
		r.expect(`"state":"grown"`, `"requested":"2Gi"`, `"allocated":"2Gi"`, `"actual":"2Gi"`)
	})
	s.Run("finds the same size in six spellings already met, and refuses to shrink", func(t *testing.T) {
		s := &stage{T: t, rig: s.rig, namespace: s.namespace, admin: s.admin, class: s.class}
		for _, size := range []string{"2Gi", "2048Mi", "2097152Ki", "2147483648", "2.0Gi", "2147483648000m"} {
			s.start("volume.resize", "t2", `{"pvc":"data","size":"`+size+`"}`).expect(`"state":"already met"`)
		}
		s.start("volume.resize", "t3", `{"pvc":"data","size":"1Gi"}`).expect("PVC data has 2Gi: a volume cannot shrink to 1Gi")
		s.start("volume.resize", "t4", `{"pvc":"none","size":"1Gi"}`).expect("there is no PVC none")
	})
	s.Run("ends with an infeasible one and takes the wish back", func(t *testing.T) {
		s := &stage{T: t, rig: s.rig, namespace: s.namespace, admin: s.admin, class: s.class}
		r := s.start("volume.resize", "t5", `{"pvc":"data","size":"3Gi"}`)
		s.asked("data", "3Gi")
		s.playClaim("data", `{"allocatedResources":{"storage":"3Gi"},"allocatedResourceStatuses":{"storage":"ControllerResizeInfeasible"},"conditions":[{"type":"ControllerResizeError","status":"True","message":"pool is full"}]}`)
		r.expect("the driver cannot: pool is full")
		s.asked("data", "2147483649")
		// A smaller wish than the one that stuck, and larger than the volume, is none to shrink.
		r = s.start("volume.resize", "t6", `{"pvc":"data","size":"2560Mi"}`)
		s.asked("data", "2560Mi")
		s.playClaim("data", `{"capacity":{"storage":"3Gi"},"allocatedResources":{"storage":"3Gi"},"allocatedResourceStatuses":null,"conditions":[]}`)
		r.expect(`"requested":"2560Mi"`, `"actual":"3Gi"`) // the driver rounds
		s.start("volume.resize", "t7", `{"pvc":"data","size":"2560Mi"}`).expect(`"state":"already met"`)
	})
	s.Run("is taken back by a cancel before the driver has it, and may go on after", func(t *testing.T) {
		s := &stage{T: t, rig: s.rig, namespace: s.namespace, admin: s.admin, class: s.class}
		r := s.start("volume.resize", "t8", `{"pvc":"data","size":"4Gi"}`)
		s.asked("data", "4Gi")
		r.cancel(handler.ErrCanceled)
		r.expect("waiting for the resizer")
		s.asked("data", "3221225473")
		r = s.start("volume.resize", "t9", `{"pvc":"data","size":"5Gi"}`)
		s.asked("data", "5Gi")
		s.playClaim("data", `{"allocatedResources":{"storage":"5Gi"},"allocatedResourceStatuses":{"storage":"ControllerResizeInProgress"}}`)
		r.says("grow the device to 5Gi")
		r.cancel(handler.ErrDeadline)
		r.expect("failed, may still grow to 5Gi: the driver has not answered")
		s.asked("data", "3221225473")
		// A pod that is stopped does not know whether for a cancel: it takes the wish back, too.
		s.playClaim("data", `{"allocatedResources":{"storage":"3Gi"},"allocatedResourceStatuses":null,"conditions":[]}`)
		r = s.start("volume.resize", "t10", `{"pvc":"data","size":"6Gi"}`)
		s.asked("data", "6Gi")
		r.cancel(handler.ErrTerminated)
		r.ends()
		s.asked("data", "3221225473")
		r = s.start("volume.resize", "t10", `{"pvc":"data","size":"6Gi"}`)
		s.asked("data", "6Gi")
		s.playClaim("data", `{"capacity":{"storage":"6Gi"},"allocatedResources":{"storage":"6Gi"}}`)
		r.expect(`"state":"grown"`)
	})
}

func TestResizeOfAVolumeThatNobodyMountsSaysThatItCompletesAtTheNextMount(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	r := s.start("volume.resize", "t1", `{"pvc":"data","size":"2Gi"}`)
	s.asked("data", "2Gi")
	s.playClaim("data", `{`+pending+`}`)
	r.expect(`"state":"grown, completes at next mount"`, `"actual":"1Gi"`, `"allocated":"2Gi"`)
	r = s.start("volume.resize", "t2", `{"pvc":"data","size":"3Gi"}`)
	r.expect(`"note":"2Gi completes at next mount, 3Gi follows"`)
	if c := s.claimUntil("data", "to ask for 3Gi", func(*corev1.PersistentVolumeClaim) bool { return true }); c.Spec.Resources.Requests.Storage().Cmp(resource.MustParse("3Gi")) != 0 {
		t.Errorf("it asks for %v", c.Spec.Resources.Requests)
	}
}

func TestAResizeThatIsKilledAfterItAskedEndsRightInTheNextAttempt(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	s.mount("db", "data")
	const params = `{"pvc":"data","size":"2Gi"}`
	s.killed("volume.resize", "t1", params, "resize.asked")
	r := s.start("volume.resize", "t1", params)
	r.says("waiting for the resizer")
	s.playClaim("data", grown)
	r.expect(`"state":"grown"`)
}

func TestAClassThatCannotExpandIsRefusedByTheServerAndNothingIsLeft(t *testing.T) {
	s := set(t)
	s.class = rig.Name("fixed")
	s.claim("data", "1Gi")
	s.start("volume.resize", "t1", `{"pvc":"data","size":"2Gi"}`).expect("ask for 2Gi", "forbidden")
	s.asked("data", "1Gi")
}

func TestModify(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	const silver, gold = `{"currentVolumeAttributesClassName":"silver","modifyVolumeStatus":null}`, `{"currentVolumeAttributesClassName":"gold","modifyVolumeStatus":null}`
	wants := func(class string) {
		t.Helper()
		s.claimUntil("data", "to ask for "+class, func(c *corev1.PersistentVolumeClaim) bool {
			return c.Spec.VolumeAttributesClassName != nil && *c.Spec.VolumeAttributesClassName == class
		})
	}
	// From no class there is no way back.
	r := s.start("volume.modify", "t1", `{"pvc":"data","class":"silver"}`)
	wants("silver")
	r.cancel(handler.ErrCanceled)
	r.expect("failed, may still change to class silver: a claim never goes back to no class")
	s.killed("volume.modify", "t2", `{"pvc":"data","class":"silver"}`, "modify.asked")
	r = s.start("volume.modify", "t2", `{"pvc":"data","class":"silver"}`)
	s.playClaim("data", `{"modifyVolumeStatus":{"targetVolumeAttributesClassName":"silver","status":"Pending"}}`)
	r.says("waiting for class silver, which is missing or cannot be used")
	s.playClaim("data", silver)
	r.expect(`"state":"changed"`)
	s.start("volume.modify", "t3", `{"pvc":"data","class":"silver"}`).expect(`"state":"already met"`)
	r = s.start("volume.modify", "t4", `{"pvc":"data","class":"gold"}`)
	wants("gold")
	s.playClaim("data", `{"modifyVolumeStatus":{"targetVolumeAttributesClassName":"gold","status":"Infeasible"},"conditions":[{"type":"ModifyVolumeError","status":"True","message":"no such IOPS"}]}`)
	r.expect("the driver cannot: no such IOPS")
	wants("silver")
	s.playClaim("data", silver)
	r = s.start("volume.modify", "t5", `{"pvc":"data","class":"gold"}`)
	wants("gold")
	s.playClaim("data", `{"modifyVolumeStatus":{"targetVolumeAttributesClassName":"gold","status":"InProgress"},"conditions":[]}`)
	r.says("waiting for the driver to apply class gold")
	s.playClaim("data", gold)
	r.expect(`"state":"changed"`, `"from":"silver"`)
}
