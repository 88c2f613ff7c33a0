package cases

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/e2e/storage"
	"slipway.dev/slipway/pkg/api"
)

// volumes is a Slipway on a node with real volumes.
func volumes(t *testing.T) (*rig.Rig, *storage.Storage, *rig.User) {
	t.Helper()
	r := rig.New(t, rig.Options{Profile: local.Node, Storage: true})
	return r, storage.Of(t, r.Cluster), r.User(t, r.Namespace())
}

// about submits a task of a kind about volumes.
func about(t *testing.T, user *rig.User, kind string, params map[string]any, spec map[string]any) api.Task {
	t.Helper()
	wishes := spec
	if wishes == nil {
		wishes = map[string]any{}
	}
	return user.Submit(t, map[string]any{"kind": kind, "namespace": user.Rig().Namespace(), "params": params, "spec": wishes})
}

// outcomeOf waits for the end of a task and reads its result.
func outcomeOf[T any](t *testing.T, user *rig.User, id string, state api.State) T {
	t.Helper()
	var result T
	task := user.Await(t, id)
	if task.State != state {
		t.Fatalf("the task is %s: %s %s", task.State, task.Reason, task.Message)
	}
	t.Logf("%s %s: %s %s %s", task.Kind, task.Params, task.State, task.Message, task.Result)
	if len(task.Result) > 0 {
		if err := json.Unmarshal(task.Result, &result); err != nil {
			t.Fatalf("read the result %s: %v", task.Result, err)
		}
	}
	return result
}

type sizes struct{ State, Requested, Allocated, Actual, Note string }

const mib = 1 << 20

func TestCase20(t *testing.T) {
	replay(t, 20, "an unmounted volume ends as grown at its next mount, and says what follows; df shows what a success says", func(t *testing.T) {
		r, s, user := volumes(t)
		ns := r.Namespace()
		s.Claim(t, ns, "data", storage.Claim{Size: "64Mi"})
		s.Mount(t, ns, "data").Delete(t) // it has a file system now
		resize := func(size string) api.Task {
			return about(t, user, "volume.resize", map[string]any{"pvc": "data", "size": size}, nil)
		}
		got := outcomeOf[sizes](t, user, resize("128Mi").ID, api.StateSucceeded)
		if got.State != "grown, completes at next mount" || got.Allocated != "128Mi" || got.Actual != "64Mi" {
			t.Errorf("nobody mounts it: %+v", got)
		}
		if got = outcomeOf[sizes](t, user, resize("192Mi").ID, api.StateSucceeded); got.Note != "128Mi completes at next mount, 192Mi follows" {
			t.Errorf("while that is pending: %+v", got)
		}
		pod := s.Mount(t, ns, "data")
		s.Until(t, ns, "data", "to be grown", func(c *corev1.PersistentVolumeClaim) bool { return storage.Grown(c, "192Mi") })
		got = outcomeOf[sizes](t, user, resize("256Mi").ID, api.StateSucceeded)
		if df := pod.DF(t); got.State != "grown" || got.Actual != "256Mi" || df < 200*mib {
			t.Errorf("the pod sees %d bytes of %+v", df, got)
		}
		for _, size := range []string{"256Mi", "262144Ki", "268435456", "0.25Gi", "256.0Mi", "268435456000m"} {
			if got := outcomeOf[sizes](t, user, resize(size).ID, api.StateSucceeded); got.State != "already met" {
				t.Errorf("%s again: %+v", size, got)
			}
		}
		// Its pod stops in the middle.
		off := s.Set(t, storage.Switch{Method: "NodeExpandVolume", Object: ns + "/data", Code: "Unavailable", Message: "not now"})
		midway := resize("320Mi")
		s.Until(t, ns, "data", "to wait for the node", func(c *corev1.PersistentVolumeClaim) bool {
			return storage.Has(c, corev1.PersistentVolumeClaimFileSystemResizePending)
		})
		pod.Delete(t)
		if got = outcomeOf[sizes](t, user, midway.ID, api.StateSucceeded); got.State != "grown, completes at next mount" || got.Actual != "256Mi" {
			t.Errorf("its pod stopped: %+v", got)
		}
		off()
		pod = s.Mount(t, ns, "data")
		s.Until(t, ns, "data", "to be grown", func(c *corev1.PersistentVolumeClaim) bool { return storage.Grown(c, "320Mi") })
		if df := pod.DF(t); df < 260*mib {
			t.Errorf("after the mount the pod sees %d bytes", df)
		}
		// The driver cannot: the wish is taken back, and a smaller one passes.
		off = s.Set(t, storage.Switch{Method: "ControllerExpandVolume", Object: ns + "/data", Code: "InvalidArgument", Message: "pool is full"})
		outcomeOf[any](t, user, resize("1Gi").ID, api.StateFailed)
		off()
		// Full for now: the resizer goes on trying, until a cancel has it take the lower wish.
		off = s.Set(t, storage.Switch{Method: "ControllerExpandVolume", Object: ns + "/data", Code: "Internal", Message: "pool is full for now"})
		canceled := resize("2Gi")
		s.Until(t, ns, "data", "to be refused by the driver", func(c *corev1.PersistentVolumeClaim) bool {
			return storage.Has(c, corev1.PersistentVolumeClaimControllerResizeError) && c.Status.AllocatedResources.Storage().String() == "2Gi"
		})
		user.Must(t, "POST", "/v1/tasks/"+canceled.ID+"/cancel", map[string]any{}, 202, 200)
		if end := user.Await(t, canceled.ID); end.State != api.StateCanceled || strings.Contains(end.Message, "may still grow") {
			t.Errorf("a cancel while the driver refuses: %s %s", end.State, end.Message)
		}
		if c := s.Get(t, ns, "data"); c.Status.AllocatedResources.Storage().Cmp(*c.Spec.Resources.Requests.Storage()) > 0 {
			t.Errorf("after the take-back the resizer works at %v, the claim asks for %v", c.Status.AllocatedResources, c.Spec.Resources.Requests)
		}
		off()
		if got = outcomeOf[sizes](t, user, resize("384Mi").ID, api.StateSucceeded); got.State != "grown" || got.Actual != "384Mi" {
			t.Errorf("after a wish that could not be: %+v", got)
		}
	})
}
