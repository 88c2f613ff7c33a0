package volumes

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/runner/kinds/volume"
)

const taskOne = "0198c0de-0000-7000-8000-000000000001"

// bound plays the snapshot controller: a content for a snapshot, with a finalizer as the driver's helper puts it there.
func (s *stage) bound(name, policy string) {
	s.Helper()
	found := s.snapshotUntil(name, func(o *unstructured.Unstructured) bool { return o != nil })
	s.make("volumesnapshotcontents", "", map[string]any{
		"kind":     "VolumeSnapshotContent",
		"metadata": map[string]any{"name": "content-" + name + "-" + s.namespace, "finalizers": []any{"played.slipway.dev/content"}},
		"spec": map[string]any{"deletionPolicy": policy, "volumeSnapshotRef": map[string]any{
			"namespace": s.namespace, "name": name, "uid": string(found.GetUID()),
		}},
	})
	s.playSnapshot(name, `{"boundVolumeSnapshotContentName":"content-`+name+"-"+s.namespace+`"}`)
	s.Cleanup(func() { s.drop("volumesnapshotcontents", "", "content-"+name+"-"+s.namespace) })
}

// snapshotUntil waits for a snapshot, nil where there is none.
func (s *stage) snapshotUntil(name string, is func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	s.Helper()
	var found *unstructured.Unstructured
	rig.Eventually(s, "snapshot "+name, func(ctx context.Context) (bool, error) {
		all, err := s.admin.Resource(snapshotGroup.WithResource("volumesnapshots")).Namespace(s.namespace).List(ctx, metav1.ListOptions{})
		found = nil
		for i := range all.Items {
			if all.Items[i].GetName() == name {
				found = &all.Items[i]
			}
		}
		return err == nil && is(found), err
	})
	return found
}

func (s *stage) contentGone(name string) {
	s.drop("volumesnapshotcontents", "", "content-"+name+"-"+s.namespace)
}

func TestASnapshotIsOneHoweverOftenItsRunnerIsKilled(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	name := volume.SnapshotName("data", taskOne)
	const params = `{"pvc":"data","rule":"default"}`
	for range 2 {
		s.killed("volume.snapshot", taskOne, params, "snapshot.created")
	}
	r := s.start("volume.snapshot", taskOne, params)
	r.says("waiting for the snapshot controller")
	s.bound(name, "Delete")
	r.says("waiting for the driver")
	s.playSnapshot(name, `{"readyToUse":false,"error":{"message":"timed out, trying on"}}`)
	r.says("timed out, trying on")
	s.playSnapshot(name, `{"readyToUse":true,"error":null,"creationTime":"2026-06-01T10:00:00Z","restoreSize":"1Gi"}`)
	r.expect(`"snapshot":"`+name+`"`, `"size":"1Gi"`, `"taken_at":"2026-06-01T10:00:00Z"`)
	if all := s.snapshots(); len(all) != 1 {
		t.Errorf("there are %v", all)
	}
	s.start("volume.snapshot", taskOne, params).expect(`"snapshot":"` + name + `"`)
}

func TestASnapshotThatCannotBeTakenIsRefusedAndLeavesNothing(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	class := s.class
	_, err := s.rig.Kube.CoreV1().PersistentVolumeClaims(s.namespace).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "waiting"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: s.claim("other", "1Gi").Spec.Resources,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.start("volume.snapshot", taskOne, `{"pvc":"none"}`).expect("there is no PVC none")
	s.start("volume.snapshot", taskOne, `{"pvc":"waiting"}`).expect("PVC waiting is Pending")
	s.start("volume.snapshot", taskOne, `{"pvc":"data","class":"none"}`).expect("there is no VolumeSnapshotClass none")
	if all := s.snapshots(); len(all) != 0 {
		t.Errorf("there are %v", all)
	}
}

func TestACanceledSnapshotLeavesNothingOrNamesItsLeftover(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	name := volume.SnapshotName("data", taskOne)
	r := s.start("volume.snapshot", taskOne, `{"pvc":"data"}`)
	r.says("waiting for the snapshot controller")
	s.bound(name, "Delete")
	r.says("waiting for the driver")
	r.cancel(handler.ErrCanceled)
	r.says("waiting for content content-" + name) // the snapshot is gone, its content is not
	s.contentGone(name)
	r.expect("waiting for the driver")
	if strings.Contains(r.ends(), "leftover") || len(s.snapshots()) != 0 || len(s.names("volumesnapshotcontents", "")) != 0 {
		t.Errorf("it ended with %s and left %v, %v; it said:\n%s", r.ends(), s.snapshots(), s.names("volumesnapshotcontents", ""), r.text())
	}
	// Where the driver does not let go, the leftover is named within the grace period.
	const two = "0198c0de-0000-7000-8000-000000000002"
	name = volume.SnapshotName("data", two)
	r = s.start("volume.snapshot", two, `{"pvc":"data"}`)
	s.bound(name, "Delete")
	r.says("waiting for the driver")
	began := time.Now()
	r.cancel(handler.ErrCanceled)
	r.expect("leftover snapshot " + name)
	if took := time.Since(began); took > 28*time.Second {
		t.Errorf("it took %v to say so", took)
	}
}

func TestADeletedSnapshotIsTrulyGone(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	old := func(name, policy string, labels map[string]any) {
		s.make("volumesnapshots", s.namespace, map[string]any{
			"kind": "VolumeSnapshot", "metadata": map[string]any{"name": name, "labels": labels},
			"spec": map[string]any{"source": map[string]any{"persistentVolumeClaimName": "data"}},
		})
		s.bound(name, policy)
	}
	old("gone", "Delete", nil)
	old("kept", "Retain", nil)
	old("pinned", "Delete", map[string]any{"slipway.dev/pinned": "yes"})
	old("used", "Delete", nil)
	start := func(name string) *run {
		return s.start("volume.snapshot.delete", taskOne, `{"pvc":"data","snapshot":"`+name+`"}`)
	}
	start("kept").expect("has the deletionPolicy Retain")
	start("pinned").expect("is pinned by slipway.dev/pinned")
	s.start("volume.snapshot.delete", taskOne, `{"pvc":"other","snapshot":"gone"}`).expect("is not of PVC other but of data")
	group, class := snapshotGroup.Group, s.class
	_, err := s.rig.Kube.CoreV1().PersistentVolumeClaims(s.namespace).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "restored"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class, Resources: s.claim("other", "1Gi").Spec.Resources,
			DataSource: &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "used"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	start("used").expect("snapshot used is in use by PVC restored")
	if all := s.snapshots(); len(all) != 4 {
		t.Fatalf("left are %v", all)
	}
	s.killed("volume.snapshot.delete", taskOne, `{"pvc":"data","snapshot":"gone"}`, "delete.asked")
	// The controller deletes the content as the snapshot goes; the driver takes its time.
	if err := s.admin.Resource(snapshotGroup.WithResource("volumesnapshotcontents")).Delete(t.Context(), "content-gone-"+s.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.play(snapshotGroup.WithResource("volumesnapshotcontents"), "", "content-gone-"+s.namespace, `{"error":{"message":"has dependants"}}`)
	r := start("gone")
	r.says("waiting for content content-gone-" + s.namespace + " to be gone: has dependants")
	s.contentGone("gone")
	r.expect(`"state":"deleted"`)
	start("gone").expect(`"state":"was not there"`)
}

// unbound makes a snapshot whose status never came to name its content.
func (s *stage) unbound(name, policy string) (uid string) {
	s.Helper()
	s.make("volumesnapshots", s.namespace, map[string]any{
		"kind": "VolumeSnapshot", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"source": map[string]any{"persistentVolumeClaimName": "data"}},
	})
	return s.contentOf(name, "", policy)
}

// contentOf makes a content of a snapshot, by the name that the snapshot controller gives or another one.
func (s *stage) contentOf(snapshot, name, policy string) (uid string) {
	s.Helper()
	found := s.snapshotUntil(snapshot, func(o *unstructured.Unstructured) bool { return o != nil })
	if name == "" {
		name = "snapcontent-" + string(found.GetUID())
	}
	s.make("volumesnapshotcontents", "", map[string]any{
		"kind":     "VolumeSnapshotContent",
		"metadata": map[string]any{"name": name, "finalizers": []any{"played.slipway.dev/content"}},
		"spec": map[string]any{"deletionPolicy": policy, "volumeSnapshotRef": map[string]any{
			"namespace": s.namespace, "name": snapshot, "uid": string(found.GetUID()),
		}},
	})
	s.Cleanup(func() { s.drop("volumesnapshotcontents", "", name) })
	return string(found.GetUID())
}

func TestTheContentOfASnapshotThatWasNeverBoundHasToBeGoneToo(t *testing.T) {
	s := set(t)
	s.claim("data", "1Gi")
	start := func(name string) *run {
		return s.start("volume.snapshot.delete", taskOne, `{"pvc":"data","snapshot":"`+name+`"}`)
	}
	s.unbound("kept", "Retain")
	start("kept").expect("has the deletionPolicy Retain")
	uid := s.unbound("gone", "Delete")
	s.contentOf("gone", "odd-"+uid, "Delete")
	r := start("gone")
	r.says("waiting for content snapcontent-" + uid + " to be gone")
	s.drop("volumesnapshotcontents", "", "snapcontent-"+uid)
	r.says("waiting for content odd-" + uid + " to be gone")
	s.drop("volumesnapshotcontents", "", "odd-"+uid)
	r.expect(`"state":"deleted"`)
	// An Attempt that finds the snapshot gone looks for the content, too.
	uid = s.unbound("killed", "Delete")
	s.killed("volume.snapshot.delete", taskOne, `{"pvc":"data","snapshot":"killed"}`, "delete.asked")
	r = start("killed")
	r.says("waiting for content snapcontent-" + uid + " to be gone")
	s.drop("volumesnapshotcontents", "", "snapcontent-"+uid)
	r.expect(`"state":"deleted"`)
	// So does one that gives its own snapshot up.
	taking := s.start("volume.snapshot", taskOne, `{"pvc":"data"}`)
	name := volume.SnapshotName("data", taskOne)
	uid = s.contentOf(name, "", "Delete")
	taking.says("waiting for the snapshot controller")
	taking.cancel(handler.ErrCanceled)
	taking.says("waiting for content snapcontent-" + uid + " to be gone")
	s.drop("volumesnapshotcontents", "", "snapcontent-"+uid)
	if end := taking.ends(); strings.Contains(end, "leftover") {
		t.Error(end)
	}
}

func TestASnapshotSaysOfWhichClaimItIsAndOneMadeAgainIsAnother(t *testing.T) {
	s := set(t)
	uid := s.claim("data", "1Gi").UID
	s.start("volume.snapshot", taskOne, `{"pvc":"data","rule":"default"}`)
	found := s.snapshotUntil(volume.SnapshotName("data", taskOne), func(o *unstructured.Unstructured) bool { return o != nil })
	if got := found.GetLabels()["slipway.dev/pvc-uid"]; got != string(uid) {
		t.Errorf("it says %q, the claim is %s", got, uid)
	}
	for n := range 3 {
		s.good(fmt.Sprint("old-", n), "db", time.Duration(n+90)*time.Hour, map[string]any{"slipway.dev/pvc-uid": "before"}, true)
		s.good(fmt.Sprint("new-", n), "db", time.Duration(n+1)*time.Hour, map[string]any{"slipway.dev/pvc-uid": "now"}, true)
	}
	s.start("volume.snapshot.cleanup", taskOne, `{"rule":"default","keep":{"count":2}}`).expect(`"removed":2`, `"name":"old-2"`, `"name":"new-2"`)
}

func TestALongPlanIsStoredCompressedAndOldPlansOfOtherRulesGo(t *testing.T) {
	s := set(t)
	const many = 700
	for n := range many {
		s.good(fmt.Sprintf("copy-of-a-volume-with-a-name-that-is-rather-long-%04d", n), "data", time.Duration(n+1)*time.Hour, nil, true)
	}
	_, err := s.rig.Kube.CoreV1().ConfigMaps(s.namespace).Patch(t.Context(), volume.PlansName, types.MergePatchType,
		[]byte(`{"data":{"default":"{}","old":"{\"at\":\"2020-01-01T00:00:00Z\"}","young":"{\"at\":\"2999-01-01T00:00:00Z\"}"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.start("volume.snapshot.cleanup", taskOne, `{"rule":"default","keep":{"count":1}}`).expect("confirm: 699")
	kept, err := s.rig.Kube.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), volume.PlansName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(kept.Data) != 1 || kept.Data["young"] == "" || len(kept.BinaryData) != 1 {
		t.Errorf("kept are %v", kept.Data)
	}
	unzip, err := gzip.NewReader(bytes.NewReader(kept.BinaryData["default"]))
	var plan struct{ Decisions []struct{ Reason string } }
	if err == nil {
		err = json.NewDecoder(unzip).Decode(&plan)
	}
	if err != nil || len(plan.Decisions) != many {
		t.Errorf("%d decisions are stored: %v", len(plan.Decisions), err)
	}
	s.start("volume.snapshot.cleanup", taskOne, `{"rule":"default","keep":{"count":2},"confirm":1,"dry_run":true}`).expect("it removes 698 of 700")
}

// good makes a snapshot as volume.snapshot would have, so old, ready and with its content.
func (s *stage) good(name, pvc string, age time.Duration, labels map[string]any, ready bool) {
	s.Helper()
	all := map[string]any{"app.kubernetes.io/managed-by": "slipway", "slipway.dev/retention": "default"}
	for key, value := range labels {
		if all[key] = value; value == nil {
			delete(all, key)
		}
	}
	s.make("volumesnapshots", s.namespace, map[string]any{
		"kind": "VolumeSnapshot", "metadata": map[string]any{"name": name, "labels": all},
		"spec": map[string]any{"source": map[string]any{"persistentVolumeClaimName": pvc}},
	})
	s.playSnapshot(name, fmt.Sprintf(`{"readyToUse":%v,"creationTime":%q}`, ready, time.Now().Add(-age).UTC().Format(time.RFC3339)))
}

// plan reads the plan that is stored.
func (s *stage) plan() (task string, removals []string) {
	s.Helper()
	kept, err := s.rig.Kube.CoreV1().ConfigMaps(s.namespace).Get(s.Context(), volume.PlansName, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	var plan struct {
		Task      string
		Decisions []struct {
			Name, Reason string
			Keep         bool
		}
	}
	if text := kept.Data["default"]; text != "" {
		if err := json.Unmarshal([]byte(text), &plan); err != nil {
			s.Fatal(err)
		}
	}
	for _, d := range plan.Decisions {
		if !d.Keep {
			removals = append(removals, d.Name)
		}
	}
	slices.Sort(removals)
	return plan.Task, removals
}

func TestCleanupRemovesWhatTheRuleDoesNotKeepAndNothingElse(t *testing.T) {
	s := set(t)
	day := 24 * time.Hour
	for n := range 6 {
		s.good(fmt.Sprint("day-", n), "data", time.Duration(n)*day+time.Hour, nil, true)
	}
	s.good("pinned", "data", 9*day, map[string]any{"slipway.dev/pinned": ""}, true)
	s.good("manual", "data", 9*day, map[string]any{"slipway.dev/retention": nil}, true)
	s.good("other-rule", "data", 9*day, map[string]any{"slipway.dev/retention": "weekly"}, true)
	s.good("unready", "data", 9*day, nil, false)
	s.good("data-2-last", "data-2", 99*day, nil, true)
	const params = `{"rule":"default","keep":{"count":3}%s}`
	plain := fmt.Sprintf(params, "")
	s.start("volume.snapshot.cleanup", taskOne, fmt.Sprintf(params, `,"dry_run":true`)).expect(`"planned":3`, `"name":"day-3"`, `"name":"day-4"`, `"name":"day-5"`, "removed by count 3, floor 1")
	if len(s.snapshots()) != 11 {
		t.Fatalf("a dry run left %v", s.snapshots())
	}
	s.killed("volume.snapshot.cleanup", taskOne, plain, "cleanup.planned")
	if task, plan := s.plan(); task != taskOne || !slices.Equal(plan, []string{"day-3", "day-4", "day-5"}) || len(s.snapshots()) != 11 {
		t.Fatalf("before the first removal, %v of %s is stored and %v left", plan, task, s.snapshots())
	}
	s.killed("volume.snapshot.cleanup", taskOne, plain, "cleanup.removed")
	if all := s.snapshots(); len(all) != 10 || slices.Contains(all, "day-5") {
		t.Fatalf("the oldest goes first; left are %v", all)
	}
	s.start("volume.snapshot.cleanup", taskOne, plain).expect(`"removed":2`, `"name":"day-3"`, `"name":"day-4"`)
	want := []string{"data-2-last", "day-0", "day-1", "day-2", "manual", "other-rule", "pinned", "unready"}
	if all := s.snapshots(); !slices.Equal(all, want) {
		t.Errorf("left are %v, want %v", all, want)
	}
	s.start("volume.snapshot.cleanup", taskOne, plain).expect(`"planned":0`)
}

func TestAPlanThatLooksLikeAMistakeIsStoredAndNotCarriedOutUntilItIsConfirmed(t *testing.T) {
	s := set(t)
	for n := range 5 {
		s.good(fmt.Sprint("s", n), "data", time.Duration(n+1)*time.Hour, nil, true)
	}
	s.start("volume.snapshot.cleanup", taskOne, `{"rule":"default","keep":{"count":1}}`).expect("it removes 4 of 5 good copies", "confirm: 4")
	s.start("volume.snapshot.cleanup", taskOne, `{"rule":"default","keep":{"count":1},"confirm":3}`).expect("confirm: 4")
	if _, plan := s.plan(); len(plan) != 4 || len(s.snapshots()) != 5 {
		t.Fatalf("stored %v, left %v", plan, s.snapshots())
	}
	s.start("volume.snapshot.cleanup", taskOne, `{"rule":"default","keep":{"count":1},"confirm":4}`).expect(`"removed":4`)
	s.start("volume.snapshot.cleanup", taskOne, `{"rule":"default","keep":{"count":1,"zone":"Mars/Olympus"}}`).expect("keep.zone is no zone")
}

func TestAListingThatFailsOrAPlanThatCannotBeStoredRemovesNothing(t *testing.T) {
	s := set(t)
	for n := range 4 {
		s.good(fmt.Sprint("s", n), "data", time.Duration(n+1)*time.Hour, nil, true)
	}
	const params = `{"rule":"default","keep":{"count":3}}`
	if err := s.rig.Kube.CoreV1().ConfigMaps(s.namespace).Delete(t.Context(), volume.PlansName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.start("volume.snapshot.cleanup", taskOne, params).expect("store the plan", "nothing was removed")
	// An account that may list no claims cannot know what is in use.
	s.rig.Kubectl(t, "delete", "rolebinding", "-n", s.namespace, "slipway-volume-snapshot-cleanup")
	s.start("volume.snapshot.cleanup", taskOne, params).expect("list the snapshots", "nothing was removed")
	if all := s.snapshots(); len(all) != 4 {
		t.Errorf("left are %v", all)
	}
}
