package cases

import (
	"fmt"
	"slices"
	"testing"

	"slipway.dev/slipway/e2e/storage"
	"slipway.dev/slipway/pkg/api"
)

func TestCase22(t *testing.T) {
	replay(t, 22, "retention counts good copies only and keeps the last; what is restored from the oldest has the bytes of its moment", func(t *testing.T) {
		r, s, user := volumes(t)
		ns := r.Namespace()
		s.Claim(t, ns, "data", storage.Claim{})
		pod := s.Mount(t, ns, "data")
		var names, sums []string
		for range 6 {
			sums = append(sums, pod.Write(t, "bytes", 64))
			pod.Run(t, "sync")
			got := outcomeOf[taken](t, user, about(t, user, "volume.snapshot", map[string]any{"pvc": "data", "class": storage.SnapshotClass, "rule": "default"}, nil).ID, api.StateSucceeded)
			names = append(names, got.Snapshot)
		}
		s.Snapshot(t, ns, "by-hand", "data")
		s.UntilSnapshot(t, ns, "by-hand", "to be ready", func(st storage.SnapshotStatus) bool { return st.Ready })
		off := s.Set(t, storage.Switch{Method: "CreateSnapshot", Object: ns + "/data", NotReady: true})
		s.Snapshot(t, ns, "unready", "data")
		r.Kubectl(t, "label", "volumesnapshot", "-n", ns, "unready", "app.kubernetes.io/managed-by=slipway", "slipway.dev/retention=default")
		cleanup := func(params map[string]any, state api.State) map[string]any {
			params["rule"] = "default"
			return outcomeOf[map[string]any](t, user, about(t, user, "volume.snapshot.cleanup", params, nil).ID, state)
		}
		dry := cleanup(map[string]any{"keep": map[string]any{"count": 5}, "dry_run": true}, api.StateSucceeded)
		wet := cleanup(map[string]any{"keep": map[string]any{"count": 5}}, api.StateSucceeded)
		if fmt.Sprint(dry["removals"]) != fmt.Sprint(wet["removals"]) || fmt.Sprint(wet["removed"]) != "1" {
			t.Errorf("the dry run says %v, the real one %v", dry, wet)
		}
		want := []string{ns + "/by-hand", ns + "/unready"}
		for _, name := range names[1:] {
			want = append(want, ns+"/"+name)
		}
		slices.Sort(want)
		if now := s.Contents(t, ns); !slices.Equal(now.Snapshots, want) || len(now.SnapshotContents) != len(want) {
			t.Errorf("left are %v and %v, want %v", now.Snapshots, now.SnapshotContents, want)
		}
		s.Claim(t, ns, "restored", storage.Claim{Snapshot: names[1]})
		if sum := s.Mount(t, ns, "restored").Sum(t, "bytes"); sum != sums[1] {
			t.Errorf("the oldest holds %s, its moment was %s", sum, sums[1])
		}
		cleanup(map[string]any{"keep": map[string]any{"count": 1}}, api.StateFailed) // four of five: a mistake, perhaps
		cleanup(map[string]any{"keep": map[string]any{"count": 1}, "confirm": 4}, api.StateSucceeded)
		if now := s.Contents(t, ns); !slices.Contains(now.Snapshots, ns+"/"+names[5]) || len(now.Snapshots) != 3 {
			t.Errorf("the last good copy, one by hand and one that is not ready are to stay: %v", now.Snapshots)
		}
		off()
	})
}
