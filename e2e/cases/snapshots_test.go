package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/e2e/storage"
	"slipway.dev/slipway/pkg/api"
)

// Shrunk: a snapshot each 20 s, cleaned up each 30 s (FULL: a minute and a minute); three later cleanups are looked at.
func TestSnapshotsByScheduleAreTakenKeptByTheirRuleAndRestored(t *testing.T) {
	t.Parallel()
	r, s, user := volumes(t)
	ns := r.Namespace()
	every, cleanEvery := "20s", "30s"
	if full {
		every, cleanEvery = "1m", "1m"
	}
	s.Claim(t, ns, "data", storage.Claim{})
	pod := s.Mount(t, ns, "data")
	sum := pod.Write(t, "bytes", 256)
	// The volume tells what time it is, for as long as the pod lives.
	pod.Run(t, "(while true; do date +%s > now.new && mv now.new now && sync; sleep 0.5; done) >/dev/null 2>&1 &")
	r.Kubectl(t, "label", "pvc", "-n", ns, "data", "snapshots=yes")
	schedule := func(name, every string, template map[string]any) api.Schedule {
		return decoded[api.Schedule](t, user.Must(t, http.MethodPost, "/v1/schedules", map[string]any{
			"namespace": ns, "name": name, "every": every, "template": template, "expect_success_within": 600,
		}, http.StatusCreated))
	}
	snapshots := schedule("snapshots", every, map[string]any{"kind": "volume.snapshot.each", "params": map[string]any{
		"selector": "snapshots=yes", "class": storage.SnapshotClass, "rule": "often", "spread": 5,
	}})
	first := untilSucceeded(t, user, snapshots.ID, 1)[0]
	late := first.EndedAt.Sub(snapshots.NextAt)
	t.Logf("the first snapshot was due at %s and is ready %s later", snapshots.NextAt, late)
	if late > 90*time.Second {
		t.Errorf("the first snapshot is ready %s after it was due", late)
	}
	if got := childResult(t, user, first); got.Size == "" || got.Snapshot == "" {
		t.Errorf("the first snapshot is %+v", got)
	}
	untilSucceeded(t, user, snapshots.ID, 4)
	cleanup := schedule("cleanup", cleanEvery, map[string]any{"kind": "volume.snapshot.cleanup", "params": map[string]any{
		"rule": "often", "keep": map[string]any{"count": 3, "max_share": 0.8},
	}})
	removed := 0
	for n := range 3 {
		done := untilSucceeded(t, user, cleanup.ID, n+1)[n]
		var out struct {
			Good, Removed int
			Removals      []struct{ Name, Reason string }
		}
		if err := json.Unmarshal(done.Result, &out); err != nil {
			t.Fatal(err)
		}
		t.Logf("cleanup %d: %s", n+1, done.Result)
		if out.Good-out.Removed > 3 || len(out.Removals) != out.Removed {
			t.Errorf("cleanup %d leaves %d good ones: %s", n+1, out.Good-out.Removed, done.Result)
		}
		for _, d := range out.Removals {
			if !strings.HasPrefix(d.Reason, "removed") {
				t.Errorf("%s went without a reason: %q", d.Name, d.Reason)
			}
		}
		removed += out.Removed
	}
	if removed == 0 {
		t.Error("nothing was removed")
	}
	if now := decoded[api.Schedule](t, user.Must(t, http.MethodGet, "/v1/schedules/"+cleanup.ID, nil, http.StatusOK)); now.LastSuccessAt.IsZero() || now.NextAt.IsZero() || !now.Healthy {
		t.Errorf("the cleanup shows %+v", now)
	}
	for name, zero := range map[string]bool{"last_success_timestamp_seconds": false, "next_timestamp_seconds": false, "overdue": true} {
		v, err := r.Replicas[0].Metric(t.Context(), `slipway_schedule_`+name+`{schedule="cleanup",schedule_namespace="`+ns+`"}`)
		if err != nil || (v == 0) != zero {
			t.Errorf("%s is %v, %v", name, v, err)
		}
	}
	for _, id := range []string{snapshots.ID, cleanup.ID} {
		user.Must(t, http.MethodPatch, "/v1/schedules/"+id, map[string]any{"enabled": false}, http.StatusOK)
	}
	left := untilSucceeded(t, user, snapshots.ID, 1) // no more are made
	existing := s.Contents(t, ns).Snapshots
	for _, parent := range left {
		if got := childResult(t, user, parent); slices.Contains(existing, ns+"/"+got.Snapshot) {
			restored(t, s, ns, got, sum)
			return
		}
	}
	t.Errorf("no snapshot is left of %v", existing)
}

// restored makes a volume of a snapshot and holds it against the moment at which that was taken.
func restored(t *testing.T, s *storage.Storage, ns string, of snapshotTaken, sum string) {
	t.Helper()
	s.Claim(t, ns, "restored", storage.Claim{Snapshot: of.Snapshot})
	pod := s.Mount(t, ns, "restored")
	if got := pod.Sum(t, "bytes"); got != sum {
		t.Errorf("restored are %s, written were %s", got, sum)
	}
	at, err := strconv.ParseInt(strings.TrimSpace(pod.Run(t, "cat now")), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	said := time.Unix(at, 0)
	if off := of.TakenAt.Sub(said); off < -2*time.Second || off > 5*time.Second {
		t.Errorf("the volume says %s, its snapshot %s was taken at %s", said.UTC(), of.Snapshot, of.TakenAt)
	}
	t.Logf("the volume says %s, its snapshot %s was taken at %s", said.UTC(), of.Snapshot, of.TakenAt)
}

type snapshotTaken struct {
	Snapshot, Size string
	TakenAt        time.Time `json:"taken_at"`
}

// childResult is the result of the one child of a task.
func childResult(t *testing.T, user *rig.User, parent api.Task) snapshotTaken {
	t.Helper()
	whole := user.Task(t, parent.ID)
	if whole.Children == nil || len(whole.Children.Items) != 1 {
		t.Fatalf("task %s has children %+v", parent.ID, whole.Children)
	}
	var got snapshotTaken
	if err := json.Unmarshal(user.Task(t, whole.Children.Items[0].ID).Result, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// untilSucceeded waits until so many tasks of a schedule have succeeded, and gives them, the oldest first. One that ends
// otherwise fails the test.
func untilSucceeded(t *testing.T, user *rig.User, schedule string, n int) []api.Task {
	t.Helper()
	var all []api.Task
	deadline := 3 * time.Minute
	if full {
		deadline = 10 * time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for {
		all = nil
		for _, f := range decoded[api.FirePage](t, user.Must(t, http.MethodGet, "/v1/schedules/"+schedule+"/fires?limit=100", nil, http.StatusOK)).Items {
			if f.Task == "" {
				continue
			}
			switch task := user.Task(t, f.Task); task.State {
			case api.StateSucceeded:
				all = append(all, task)
			case api.StateQueued, api.StateRunning:
			case api.StateFailed, api.StateCanceled:
				t.Fatalf("task %s of the schedule is %s: %s %s", task.ID, task.State, task.Reason, task.Message)
			}
		}
		slices.Reverse(all)
		if len(all) >= n {
			return all
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			t.Fatalf("%d tasks of schedule %s have succeeded, want %d: %v", len(all), schedule, n, fmt.Sprint(ctx.Err()))
		}
	}
}
