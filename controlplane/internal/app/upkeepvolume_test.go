package app

import (
	"context"
	"errors"
	"strings"
	"testing"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/controlplane/internal/kube"
	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/pkg/api"
)

// storageCity is a cluster that may or may not have snapshots, and namespaces that are enabled for volumes.
type storageCity struct {
	noCluster
	served  bool
	down    error
	enabled string
}

func (c *storageCity) Serves(_ context.Context, groupVersion string) (bool, error) {
	return c.served && groupVersion == "snapshot.storage.k8s.io/v1", c.down
}

func (c *storageCity) Allowed(_ context.Context, id kube.Identity, a kube.Access) (bool, string, error) {
	return id.User == "system:serviceaccount:"+c.enabled+":slipway-volume-snapshot-cleanup" && a.Verb == "delete" &&
		a.Resource == "volumesnapshots" && a.Namespace == c.enabled, "", nil
}

func TestANamespaceGetsItsSchedulesOfVolumesOnceItHasSnapshotsAndIsEnabledForThem(t *testing.T) {
	s := pgtest.New(t)
	c := &storageCity{}
	w := townOver(t, s, kinds.BuiltIn())
	p := plane{config: Config{Upkeep: "ops"}, log: quiet, store: s, kinds: kinds.BuiltIn(), cluster: c}
	all := func() []api.Schedule {
		return must[api.SchedulePage](w, w.send("ada", "GET", "/v1/schedules?namespace=shop", ""), 200).Items
	}
	for _, step := range []struct {
		what   string
		change func()
		made   bool
	}{
		{"the cluster has no snapshots", func() { c.enabled = "shop" }, false},
		{"it is enabled without volumes", func() { c.enabled, c.served = "bank", true }, false},
		{"the API server does not answer", func() { c.enabled, c.down = "shop", errors.New("down") }, false},
		{"all is there", func() { c.down = nil }, true},
		{"the next start", func() {}, true},
	} {
		step.change()
		if made, err := p.ensureVolumes(t.Context(), "shop"); made != step.made || (err != nil) != (c.down != nil) || (len(all()) > 0) != step.made {
			t.Fatalf("%s: made %v, %v, there are %d", step.what, made, err, len(all()))
		}
	}
	for _, is := range all() {
		if cleanup := is.Name == "slipway-snapshot-cleanup"; is.Enabled != cleanup || cleanup && (is.NextAt.IsZero() || is.Template.Kind != "volume.snapshot.cleanup") || is.ExpectSuccessWithin == 0 {
			t.Errorf("%s: %+v", is.Name, is)
		}
	}
	cleanup := all()[0]
	fire := must[api.Fire](w, w.send("ada", "POST", "/v1/schedules/"+cleanup.ID+"/run", ""), 201)
	made := must[api.Task](w, w.send("ada", "GET", "/v1/tasks/"+fire.Task, ""), 200)
	if made.Kind != "volume.snapshot.cleanup" || made.Lane != "volume-rules:shop/default" {
		t.Errorf("its task: %+v", made)
	}
	must[api.Schedule](w, w.send("ada", "PATCH", "/v1/schedules/"+cleanup.ID, `{"template":{"params":{"keep":{"count":9}}},"enabled":false}`), 200)
	if _, err := p.ensureVolumes(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	if now := all()[0]; now.Enabled || !strings.Contains(string(now.Template.Params), `"count":`) {
		t.Errorf("the next start has changed it: %+v", now)
	}
}
