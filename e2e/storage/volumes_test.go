package storage

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/e2e/rig"
)

const mib = 1 << 20

// usable says whether a file system fits a device of so many MiB: ext4 keeps some of it for itself.
func usable(bytes, device int64) bool { return bytes <= device*mib && bytes >= device*mib*8/10 }

func TestAMountedVolumeGrowsUnderItsPod(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	s.Claim(t, ns, "data", Claim{Size: "64Mi"})
	pod := s.Mount(t, ns, "data")
	if size := pod.DF(t); !usable(size, 64) {
		t.Errorf("the pod sees %d bytes of a volume of 64Mi", size)
	}
	sum := pod.Write(t, "kept", 512)
	s.Ask(t, ns, "data", "128Mi")
	s.Until(t, ns, "data", "to be grown", func(c *corev1.PersistentVolumeClaim) bool { return Grown(c, "128Mi") })
	if size := pod.DF(t); !usable(size, 128) {
		t.Errorf("the pod sees %d bytes of a volume that grew to 128Mi", size)
	}
	if now := pod.Sum(t, "kept"); now != sum {
		t.Errorf("the file's checksum was %s and is %s", sum, now)
	}
}

func TestAVolumeThatNobodyMountsGrowsAtItsNextMount(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	s.Claim(t, ns, "data", Claim{Size: "64Mi"})
	pod := s.Mount(t, ns, "data")
	sum := pod.Write(t, "kept", 512)
	pod.Delete(t)
	s.Ask(t, ns, "data", "128Mi")
	claim := s.Until(t, ns, "data", "to wait for a mount", func(c *corev1.PersistentVolumeClaim) bool {
		return Has(c, corev1.PersistentVolumeClaimFileSystemResizePending)
	})
	if claim.Status.Capacity.Storage().String() != "64Mi" || claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != corev1.PersistentVolumeClaimNodeResizePending {
		t.Errorf("before the mount the status is %+v", claim.Status)
	}
	pod = s.Mount(t, ns, "data")
	s.Until(t, ns, "data", "to be grown", func(c *corev1.PersistentVolumeClaim) bool { return Grown(c, "128Mi") })
	if size := pod.DF(t); !usable(size, 128) {
		t.Errorf("the pod sees %d bytes of a volume that grew to 128Mi", size)
	}
	if now := pod.Sum(t, "kept"); now != sum {
		t.Errorf("the file's checksum was %s and is %s", sum, now)
	}
}

func TestAClaimThatWaitsIsBoundByItsFirstPod(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	s.Claim(t, ns, "data", Claim{Class: Wait})
	s.Mount(t, ns, "data")
	claim := s.Get(t, ns, "data")
	if claim.Status.Phase != corev1.ClaimBound || claim.Annotations["volume.kubernetes.io/selected-node"] != s.Cluster.NodeName {
		t.Errorf("the claim is %s with annotations %v", claim.Status.Phase, claim.Annotations)
	}
}

func TestAClassWithoutExpansionIsNotGrown(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	for _, class := range []string{Fixed, FixedWait} {
		s.Claim(t, ns, class, Claim{Class: class})
		s.Mount(t, ns, class)
		_, err := s.Kube.CoreV1().PersistentVolumeClaims(ns).Patch(t.Context(), class, types.MergePatchType,
			[]byte(`{"spec":{"resources":{"requests":{"storage":"128Mi"}}}}`), metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize") {
			t.Errorf("class %s: growing it gave %v", class, err)
		}
	}
}

func TestASnapshotKeepsTheBytesOfItsMoment(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	s.Claim(t, ns, "data", Claim{Size: "64Mi"})
	pod := s.Mount(t, ns, "data")
	before := pod.Write(t, "file", 2048)
	s.Snapshot(t, ns, "first", "data")
	status := s.UntilSnapshot(t, ns, "first", "to be ready", func(now SnapshotStatus) bool { return now.Ready })
	if status.Size != "64Mi" {
		t.Errorf("the snapshot's size is %q", status.Size)
	}
	after := pod.Write(t, "file", 2048)

	s.Claim(t, ns, "restored", Claim{Class: Wait, Size: "96Mi", Snapshot: "first"})
	restored := s.Mount(t, ns, "restored")
	if sum := restored.Sum(t, "file"); sum != before {
		t.Errorf("restored %s, of the moment is %s", sum, before)
	}
	if size := restored.DF(t); !usable(size, 96) {
		t.Errorf("the pod sees %d bytes of a restored volume of 96Mi", size)
	}
	s.Claim(t, ns, "cloned", Claim{Size: "64Mi", Clone: "data"})
	if sum := s.Mount(t, ns, "cloned").Sum(t, "file"); sum != after {
		t.Errorf("cloned %s, of the moment is %s", sum, after)
	}

	all := s.Contents(t, ns)
	if len(all.SnapshotContents) != 1 || len(all.DriverSnapshots) != 1 || len(all.DriverVolumes) != 3 || len(all.Loops) != 3 {
		t.Errorf("there are %+v", all)
	}
	s.DeleteSnapshot(t, ns, "first")
	s.untilGone(t, ns)
}

func (s *Storage) untilGone(t *testing.T, ns string) {
	t.Helper()
	eventually(t, "the snapshot to be gone", func() bool {
		now := s.Contents(t, ns)
		return len(now.Snapshots)+len(now.SnapshotContents)+len(now.DriverSnapshots) == 0 && len(now.DriverVolumes) == 3
	})
}

func TestAnotherClassReachesTheDriver(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	s.Claim(t, ns, "data", Claim{Attributes: Slow})
	s.UntilBound(t, ns, "data")
	has := func(class string) func(c *corev1.PersistentVolumeClaim) bool {
		return func(c *corev1.PersistentVolumeClaim) bool {
			return c.Status.CurrentVolumeAttributesClassName != nil && *c.Status.CurrentVolumeAttributesClassName == class && c.Status.ModifyVolumeStatus == nil
		}
	}
	s.Until(t, ns, "data", "to have its first class", has(Slow))
	s.Modify(t, ns, "data", Fast)
	s.Until(t, ns, "data", "to have its second class", has(Fast))
	if got := s.IOPS(t, ns, "data"); got != "5000" {
		t.Errorf("the driver has %q IOPS", got)
	}
}

// What a class without a wish gets depends on the machine, so the other tests see only one of the two.
func TestEitherFileSystemIsMountedAndCopied(t *testing.T) {
	t.Parallel()
	s, ns := here(t)
	for _, kind := range []string{"ext4", "xfs"} {
		class := &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: rig.Name(kind)}, Provisioner: Driver,
			Parameters: map[string]string{"csi.storage.k8s.io/fstype": kind},
		}
		if _, err := s.Kube.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.Claim(t, ns, kind, Claim{Class: class.Name})
		pod := s.Mount(t, ns, kind)
		if mounted := pod.Run(t, "grep ' "+folder+" ' /proc/mounts"); !strings.Contains(mounted, " "+kind+" ") {
			t.Errorf("a class of %s mounts %s", kind, mounted)
		}
		sum := pod.Write(t, "file", 1024)
		s.Claim(t, ns, kind+"-copy", Claim{Class: class.Name, Clone: kind})
		if copied := s.Mount(t, ns, kind+"-copy").Sum(t, "file"); copied != sum {
			t.Errorf("%s: copied %s, want %s", kind, copied, sum)
		}
	}
}
