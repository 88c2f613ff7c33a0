package storage

import (
	"os"
	"testing"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// here is the cluster that the tests share, and a namespace of the test's own.
func here(t *testing.T) (s *Storage, namespace string) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a whole cluster, and compiles it if need be; not under -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	s = Of(t, rig.SharedCluster(t, local.Node, true))
	return s, s.Namespace(t)
}
