//go:build failpoints

package cases

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"slipway.dev/slipway/e2e/perform"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/e2e/storage"
	"slipway.dev/slipway/runner/kinds/volume"
)

// left waits until what there is is what was there before, and these snapshots with their contents and files: devices come
// and go a moment later.
func left(t *testing.T, s *storage.Storage, ns string, before storage.Contents, snapshots ...string) {
	t.Helper()
	want := []string{}
	for _, name := range snapshots {
		want = append(want, ns+"/"+name)
	}
	slices.Sort(want)
	rig.Eventually(t, fmt.Sprintf("nothing to be left but %v", want), func(context.Context) (bool, error) {
		now := s.Contents(t, ns)
		files := slices.DeleteFunc(slices.Clone(now.Files), func(file string) bool { return slices.Contains(before.Files, file) })
		ok := slices.Equal(now.Snapshots, want) && slices.Equal(now.DriverSnapshots, want) && len(now.SnapshotContents) == len(want) &&
			len(files) == 2*len(want) && len(now.Files) == len(before.Files)+len(files)
		now.Snapshots, now.DriverSnapshots, now.SnapshotContents, now.Files = before.Snapshots, before.DriverSnapshots, before.SnapshotContents, before.Files
		if ok && fmt.Sprint(now) == fmt.Sprint(before) {
			return true, nil
		}
		return false, fmt.Errorf("there is %+v, before was %+v", s.Contents(t, ns), before)
	})
}

func TestAVolumesKindThatIsKilledAtAnyStepEndsRightInTheNextAttemptAndLeavesWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	r, s, _ := volumes(t)
	ns := r.Namespace()
	s.Claim(t, ns, "data", storage.Claim{Size: "64Mi", Attributes: storage.Slow})
	pod := s.Mount(t, ns, "data")
	before := s.Contents(t, ns)
	// again runs a Task that is killed at a step, and then its next Attempt.
	again := func(kind, task, params, step string, result any) {
		t.Helper()
		run := perform.Run{Kind: kind, Namespace: ns, Task: task, Params: params, Attempt: 1, Config: perform.As(t, r.Config, r.Kube, ns, kind)}
		run.Killed(t, step)
		run.Attempt = 2
		run.Succeeds(t, result)
		t.Logf("%s killed at %s, then: %+v", kind, step, result)
	}

	var grown sizes
	again("volume.resize", "t1", `{"pvc":"data","size":"128Mi"}`, "resize.asked", &grown)
	if df := pod.DF(t); grown.State != "grown" || grown.Actual != "128Mi" || df < 100*mib {
		t.Errorf("the pod sees %d bytes of %+v", df, grown)
	}
	left(t, s, ns, before)

	var changed struct{ State, From string }
	again("volume.modify", "t2", fmt.Sprintf(`{"pvc":"data","class":%q}`, storage.Fast), "modify.asked", &changed)
	if iops := s.IOPS(t, ns, "data"); changed.State != "changed" || changed.From != storage.Slow || iops != "5000" {
		t.Errorf("the driver gives it %s: %+v", iops, changed)
	}
	left(t, s, ns, before)
	for mark := range s.Get(t, ns, "data").Annotations {
		if mark == "slipway.dev/resize-asked" || mark == "slipway.dev/modify-asked" {
			t.Errorf("the mark %s is left", mark)
		}
	}

	var names []string
	for n := range 4 {
		var got taken
		id := fmt.Sprintf("0198c0de-0000-7000-8000-00000000000%d", n)
		again("volume.snapshot", id, fmt.Sprintf(`{"pvc":"data","class":%q,"rule":"default"}`, storage.SnapshotClass), "snapshot.created", &got)
		if names = append(names, got.Snapshot); got.Snapshot != volume.SnapshotName("data", id) {
			t.Errorf("taken is %+v", got)
		}
		left(t, s, ns, before, names...)
	}
	var deleted struct{ State string }
	again("volume.snapshot.delete", "t3", fmt.Sprintf(`{"pvc":"data","snapshot":%q}`, names[3]), "delete.asked", &deleted)
	left(t, s, ns, before, names[:3]...)
	var cleaned struct{ Removed int }
	again("volume.snapshot.cleanup", "t4", `{"rule":"default","keep":{"count":1}}`, "cleanup.removed", &cleaned)
	if cleaned.Removed != 1 { // the one before it was removed by the Attempt that was killed
		t.Errorf("the next attempt has removed %d", cleaned.Removed)
	}
	left(t, s, ns, before, names[2])
}
