package cases

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/images/archive"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// The image can never be pulled and the run waits for ever. Shrunk: start and capacity limits of some seconds, and a
// registry that is away until the first attempt has ended for that.
func TestCase07(t *testing.T) {
	replay(t, 7, "a start that cannot work is named, and fails fast or waits by cause", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.Node})
		user := r.User(t, r.Namespace())
		empty := serveRegistry(t, r, "", quietRegistry())
		away, back := awayRegistry(t, r)
		image := pushed(t, back, away)
		forms := startForms(t, r, empty, image)
		ids := make([]string, len(forms))
		began := time.Now()
		for i, f := range forms {
			ids[i] = user.Submit(t, f.submit).ID
		}
		for i, f := range forms {
			if f.waits != "" {
				user.Until(t, ids[i], "to wait for "+f.waits, func(task api.Task) bool {
					return task.Outcome != "" || task.Waiting != nil && task.Waiting.Reason == f.waits && task.Waiting.Note != ""
				})
			}
		}
		user.Until(t, ids[len(forms)-1], "to have lost its first attempt to the registry", func(task api.Task) bool {
			return task.Reason == "registry" && task.State == api.StateQueued
		})
		serveRegistry(t, r, away, back)
		for i, f := range forms {
			ended := endsAs(t, user, f.what, ids[i], f.want)
			if f.fast && ended.EndedAt.Sub(began) > 60*time.Second {
				t.Errorf("%s: it took %v", f.what, ended.EndedAt.Sub(began))
			}
			if f.want.task == succeeded {
				if ended.Spent.Lost == 0 || ended.Spent.Attempts > 1 {
					t.Errorf("%s: it has spent %+v, want nothing of the task's own for a registry that was away", f.what, ended.Spent)
				}
			}
		}
		nothingLives(t, r)
	})
}

// startForm is one way not to start.
type startForm struct {
	what, waits string
	submit      map[string]any
	fast        bool
	want        ending
}

func startForms(t *testing.T, r *rig.Rig, empty, image string) []startForm {
	t.Helper()
	limit := 20.0
	if full {
		limit = 120
	}
	run := func(image string, spec map[string]any) map[string]any {
		submit := container(t, r, map[string]any{"command": []string{"/bin/busybox", "true"}})
		if image != "" {
			submit["params"].(map[string]any)["image"] = image //nolint:forcetypeassert // made above
		}
		whole := map[string]any{"start_deadline": limit, "capacity_deadline": limit, "grace": 1, "retry": map[string]any{"attempts": 1, "lost": 0}}
		for k, v := range spec {
			whole[k] = v
		}
		submit["spec"] = whole
		return submit
	}
	rejected := ending{api.OutcomeRejected, "config", wanted{api.StateFailed, "config"}}
	late := func(reason string) ending {
		return ending{api.OutcomeTimedOut, reason, wanted{api.StateFailed, reason}}
	}
	key := map[string]any{"pod": map[string]any{"env": map[string]any{"PASSWORD": map[string]any{"secretRef": map[string]string{"name": "none", "key": "password"}}}}}
	return []startForm{
		{"a tag that does not exist", "start", run(empty+"/tools:none", nil), false, late("image_pull")},
		{"a malformed name", "", run("Registry.Example/UPPER:tag:tag", nil), true, rejected},
		{"a missing secret", "", run("", key), true, rejected},
		{"500 CPUs", "capacity", run("", map[string]any{"requests": map[string]string{"cpu": "500"}}), false, late("unschedulable")},
		{"a registry that comes back", "start", run(image, map[string]any{"retry": map[string]any{"attempts": 1, "lost": 20}}), false, ending{api.OutcomeTimedOut, "registry", succeeded}},
	}
}

// serveRegistry serves a registry to the node, at an address or at a new one.
func serveRegistry(t *testing.T, r *rig.Rig, address string, h http.Handler) string {
	t.Helper()
	if address == "" {
		address = net.JoinHostPort(r.Cluster.HostIP, "0")
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("serve a registry: %v", err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}}
	server.Start()
	t.Cleanup(server.Close)
	if err := r.Cluster.PlainRegistry(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

func quietRegistry() http.Handler { return registry.New(registry.Logger(log.New(io.Discard, "", 0))) }

// awayRegistry is a registry at an address where nobody listens yet.
func awayRegistry(t *testing.T, r *rig.Rig) (address string, h http.Handler) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(r.Cluster.HostIP, "0"))
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Cluster.PlainRegistry(address); err != nil {
		t.Fatal(err)
	}
	return address, quietRegistry()
}

// pushed puts the runner's image, whose busybox stands for any image, into a registry, and names it by another address.
func pushed(t *testing.T, h http.Handler, address string) string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	made, err := archive.Build(context.WithoutCancel(t.Context()), archive.Options{Names: []string{"runner"}, Root: filepath.Join(root, "..", ".."), Log: rig.Progress})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	there, err := archive.Push(t.Context(), made[0], server.Listener.Addr().String()+"/case")
	if err != nil {
		t.Fatal(err)
	}
	return address + there.Ref[len(server.Listener.Addr().String()):]
}
