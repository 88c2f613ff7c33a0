package cases

import (
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

// Replicas race through the migration. Nothing is shrunk. A kill in the middle of a migration, and a binary that is
// older than the schema, are tests of package store: there the middle can be hit.
func TestCase35(t *testing.T) {
	replay(t, 35, "five replicas migrate one empty database and all are ready", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API})
		empty := r.EmptyDatabase(t)
		var group sync.WaitGroup
		for i := range 5 {
			group.Go(func() {
				if out, err := r.Migrate(t, empty); err != nil {
					t.Errorf("migration %d: %v\n%s", i+1, err, out)
				}
			})
		}
		group.Wait()
		for range 5 {
			r.AddReplica(t, map[string]string{"SLIPWAY_DATABASE_URL": empty})
		}
		for _, replica := range r.Replicas[1:] {
			replica.WaitReady(t)
		}
		unmigrated := r.AddReplica(t, map[string]string{"SLIPWAY_DATABASE_URL": r.EmptyDatabase(t)})
		select {
		case <-unmigrated.Ended():
			if log := unmigrated.Tail(); !strings.Contains(log, "migrate") {
				t.Errorf("a replica without a schema ended without saying what to do:\n%s", log)
			}
		case <-time.After(30 * time.Second):
			status, body, err := unmigrated.Get(t.Context(), "/readyz")
			if err != nil || status == 200 || !strings.Contains(body, "migrat") {
				t.Errorf("a replica without a schema says %d %q (%v), want not ready and why", status, body, err)
			}
		}
	})
}
