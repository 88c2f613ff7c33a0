package storage

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/rig"
)

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	rig.Eventually(t, what, func(context.Context) (bool, error) { return check(), nil })
}

func TestASlowDriverAnswersLate(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	s.Set(t, Switch{Method: "CreateVolume", Object: ns + "/data", DelayMS: 2000})
	s.Claim(t, ns, "data", Claim{})
	s.UntilBound(t, ns, "data")
	calls := s.Calls(t, "CreateVolume", ns+"/data")
	if len(calls) != 1 || calls[0].Code != "OK" || calls[0].MS < 2000 {
		t.Errorf("the calls are %+v, want one of 2 s", calls)
	}
}

func TestASilentDriverIsGivenUpAndAskedAgain(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	s.Claim(t, ns, "data", Claim{})
	s.UntilBound(t, ns, "data")
	speak := s.Set(t, Switch{Method: "ControllerExpandVolume", Object: ns + "/data", Silent: true})
	s.Ask(t, ns, "data", "128Mi")
	s.Until(t, ns, "data", "to be in doubt", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimControllerResizeInProgress
	})
	eventually(t, "the caller to give up", func() bool {
		calls := s.Calls(t, "ControllerExpandVolume", ns+"/data")
		return len(calls) > 0 && (calls[0].Code == "DeadlineExceeded" || calls[0].Code == "Canceled")
	})
	if held := s.Get(t, ns, "data"); Has(held, corev1.PersistentVolumeClaimFileSystemResizePending) {
		t.Errorf("it grew in silence: %+v", held.Status)
	}
	speak()
	s.Until(t, ns, "data", "to wait for a mount", func(c *corev1.PersistentVolumeClaim) bool {
		return Has(c, corev1.PersistentVolumeClaimFileSystemResizePending)
	})
}

func TestAFailingDriverFailsWithTheChosenCodeAndText(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	heal := s.Set(t, Switch{Object: ns, Method: "ControllerExpandVolume", Code: "OutOfRange", Message: "the pool has 12 MiB"})
	s.Claim(t, ns, "data", Claim{})
	s.UntilBound(t, ns, "data")
	s.Ask(t, ns, "data", "128Mi")
	claim := s.Until(t, ns, "data", "to be refused", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimControllerResizeInfeasible
	})
	if text := messageOf(claim, corev1.PersistentVolumeClaimControllerResizeError); !strings.Contains(text, "the pool has 12 MiB") {
		t.Errorf("the claim says %q", text)
	}
	heal()
	s.Until(t, ns, "data", "to wait for a mount", func(c *corev1.PersistentVolumeClaim) bool {
		return Has(c, corev1.PersistentVolumeClaimFileSystemResizePending)
	})
}

func messageOf(c *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) string {
	for _, condition := range c.Status.Conditions {
		if condition.Type == kind {
			return condition.Message
		}
	}
	return ""
}

func TestANodeThatCannotGrowSaysSo(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	heal := s.Set(t, Switch{Object: ns + "/data", Method: "NodeExpandVolume", Code: "Internal", Message: "resize2fs: bad magic"})
	s.Claim(t, ns, "data", Claim{})
	pod := s.Mount(t, ns, "data")
	s.Ask(t, ns, "data", "128Mi")
	s.Until(t, ns, "data", "to tell of the node's error", func(c *corev1.PersistentVolumeClaim) bool {
		return strings.Contains(messageOf(c, corev1.PersistentVolumeClaimNodeResizeError), "resize2fs: bad magic")
	})
	if size := pod.DF(t); !usable(size, 64) {
		t.Errorf("the pod sees %d bytes though the node could not grow", size)
	}
	heal()
	s.Until(t, ns, "data", "to be grown", func(c *corev1.PersistentVolumeClaim) bool { return Grown(c, "128Mi") })
}

func TestALateFailureLosesTheAnswerAndNotTheWork(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	s.Claim(t, ns, "data", Claim{})
	s.UntilBound(t, ns, "data")
	heal := s.Set(t, Switch{Object: ns + "/taken", Method: "CreateSnapshot", Code: "Unavailable", Message: "connection lost", Late: true})
	s.Snapshot(t, ns, "taken", "data")
	status := s.UntilSnapshot(t, ns, "taken", "to tell of the error", func(now SnapshotStatus) bool { return now.Error != "" })
	if !strings.Contains(status.Error, "connection lost") || status.Ready {
		t.Errorf("the snapshot's status is %+v", status)
	}
	if there := s.Contents(t, ns); len(there.DriverSnapshots) != 1 {
		t.Errorf("the driver has snapshots %v, want the one whose answer was lost", there.DriverSnapshots)
	}
	heal()
	s.UntilSnapshot(t, ns, "taken", "to be ready", func(now SnapshotStatus) bool { return now.Ready })
	if there := s.Contents(t, ns); len(there.DriverSnapshots) != 1 || len(there.SnapshotContents) != 1 {
		t.Errorf("there are %+v, want one snapshot", there)
	}
}

func TestARoundingDriverGivesMoreThanWasAskedFor(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	s.Set(t, Switch{Object: ns, RoundTo: 100 * mib})
	s.Claim(t, ns, "data", Claim{Size: "64Mi"})
	claim := s.UntilBound(t, ns, "data")
	if size := claim.Status.Capacity.Storage(); size.Cmp(resource.MustParse("100Mi")) != 0 {
		t.Errorf("the volume has %s", size)
	}
	pod := s.Mount(t, ns, "data")
	s.Ask(t, ns, "data", "101Mi")
	s.Until(t, ns, "data", "to be grown", func(c *corev1.PersistentVolumeClaim) bool { return Grown(c, "101Mi") })
	// The claim's status.capacity need not tell of what the driver added; the volume's does.
	volume, err := s.Kube.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if size := volume.Spec.Capacity.Storage(); size.Cmp(resource.MustParse("200Mi")) != 0 || !usable(pod.DF(t), 200) {
		t.Errorf("the volume has %s, the pod sees %d bytes", size, pod.DF(t))
	}
}

func TestASnapshotStaysUnreadyWhileTheSwitchIsSet(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	s.Claim(t, ns, "data", Claim{})
	s.UntilBound(t, ns, "data")
	ready := s.Set(t, Switch{Object: ns + "/data", Method: "CreateSnapshot", NotReady: true})
	s.Snapshot(t, ns, "taken", "data")
	status := s.UntilSnapshot(t, ns, "taken", "to be there", func(now SnapshotStatus) bool { return now.Size != "" && now.Content != "" })
	if status.Ready {
		t.Errorf("the snapshot is ready: %+v", status)
	}
	eventually(t, "the driver to be asked again", func() bool { return len(s.Calls(t, "CreateSnapshot", ns+"/taken")) >= 3 })
	ready()
	s.UntilSnapshot(t, ns, "taken", "to be ready", func(now SnapshotStatus) bool { return now.Ready })
}

// The driver is killed while another test uses it, hence not parallel.
func TestADriverThatWasKilledHasWhatItHad(t *testing.T) {
	s, ns := here(t)
	s.Claim(t, ns, "data", Claim{})
	pod := s.Mount(t, ns, "data")
	sum := pod.Write(t, "kept", 64)
	if err := s.Cluster.Signal("loopcsi", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Cluster.RestartDriver(ctx); err != nil {
		t.Fatal(err)
	}
	s.Ask(t, ns, "data", "128Mi")
	s.Until(t, ns, "data", "to be grown", func(c *corev1.PersistentVolumeClaim) bool { return Grown(c, "128Mi") })
	if now := pod.Sum(t, "kept"); now != sum || !usable(pod.DF(t), 128) {
		t.Errorf("the checksum was %s and is %s; the pod sees %d bytes", sum, now, pod.DF(t))
	}
}
