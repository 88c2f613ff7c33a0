package cases

import (
	"fmt"
	"slices"
	"testing"

	"slipway.dev/slipway/e2e/storage"
	"slipway.dev/slipway/pkg/api"
)

type taken struct{ Snapshot, Size, Content string }

// kept is what lasts: a device goes a moment after its last pod.
func kept(c storage.Contents) storage.Contents {
	c.Loops, c.Mounts = nil, nil
	return c
}

func TestCase21(t *testing.T) {
	replay(t, 21, "a snapshot is ready, refused or gone: no retry and no restart leaves a second one, or litter", func(t *testing.T) {
		r, s, user := volumes(t)
		ns := r.Namespace()
		s.Claim(t, ns, "data", storage.Claim{})
		s.Claim(t, ns, "waits", storage.Claim{Class: storage.Wait})
		s.Mount(t, ns, "data").Delete(t)
		before := kept(s.Contents(t, ns))
		for _, params := range []map[string]any{{"pvc": "data", "class": "none"}, {"pvc": "waits"}} {
			user.Must(t, "POST", "/v1/tasks", map[string]any{"kind": "volume.snapshot", "namespace": ns, "params": params}, 422)
		}
		snapshot := func(spec map[string]any) api.Task {
			return about(t, user, "volume.snapshot", map[string]any{"pvc": "data", "class": storage.SnapshotClass}, spec)
		}
		off := s.Set(t, storage.Switch{Method: "CreateSnapshot", Object: ns + "/data", NotReady: true})
		outcomeOf[any](t, user, snapshot(map[string]any{"run_deadline": 8, "retry": map[string]any{"attempts": 2, "backoff": 1}}).ID, api.StateFailed)
		canceled := snapshot(nil)
		user.Until(t, canceled.ID, "to wait for the driver", func(api.Task) bool { return len(s.Contents(t, ns).Snapshots) == 1 })
		user.Must(t, "POST", "/v1/tasks/"+canceled.ID+"/cancel", map[string]any{}, 202, 200)
		outcomeOf[any](t, user, canceled.ID, api.StateCanceled)
		if now := kept(s.Contents(t, ns)); fmt.Sprint(now) != fmt.Sprint(before) {
			t.Errorf("a deadline and a cancel leave %+v, before was %+v", now, before)
		}
		killed := snapshot(nil)
		user.Until(t, killed.ID, "to have asked for its snapshot", func(api.Task) bool { return len(s.Contents(t, ns).Snapshots) == 1 })
		r.Kubectl(t, "delete", "pod", "-n", ns, "--grace-period=0", "--force", "--wait=false", user.PodOf(t, killed.ID))
		user.Until(t, killed.ID, "to be tried again", func(task api.Task) bool { return task.Attempt != nil && task.Attempt.Number > 1 })
		off()
		got := outcomeOf[taken](t, user, killed.ID, api.StateSucceeded)
		if now := s.Contents(t, ns); !slices.Equal(now.Snapshots, []string{ns + "/" + got.Snapshot}) || got.Size == "" || len(user.Attempts(t, killed.ID)) < 2 {
			t.Errorf("after a restart there are %v, taken is %+v", now.Snapshots, got)
		}
		outcomeOf[any](t, user, about(t, user, "volume.snapshot.delete", map[string]any{"pvc": "data", "snapshot": got.Snapshot}, nil).ID, api.StateSucceeded)
		if now := kept(s.Contents(t, ns)); fmt.Sprint(now) != fmt.Sprint(before) {
			t.Errorf("after all %+v is left, before was %+v", now, before)
		}
	})
}
