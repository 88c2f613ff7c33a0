package cases

import (
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

// backbone is the first version whose databases and pods an upgrade has to cope with.
const backbone = "0d3baad2370ff4ac145804f0f31b82154c09e1c1"

// The order of DESIGN 10.3: migrate first, then roll; meanwhile old and new stand side by side. Each replica's Jobs call
// that replica, so that who launched a pod is who answers its runner.
func TestOldAndNewControlPlanesAndRunnersWorkSideBySideOnOneDatabase(t *testing.T) {
	t.Parallel()
	old := rig.Earlier(t, backbone)
	r := rig.New(t, rig.Options{Profile: local.Node, Version: old, Direct: true, Env: map[string]string{"SLIPWAY_RUNNER_IMAGE": old.Runner}})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	verdicts(t, user, map[string]wanted{user.Submit(t, shell(ns, "true", nil)).ID: succeeded})
	underway := user.Submit(t, shell(ns, "sleep 20", nil)).ID
	user.Until(t, underway, "to be started", started)
	ofOld := r.AddReplica(t, map[string]string{"SLIPWAY_RUNNER_IMAGE": r.Runner()}) // runs on; a start on this schema is refused
	ofOld.WaitReady(t)

	r.Upgrade(t)
	pairing := map[string]string{r.Replicas[0].Name: "old control plane, old runner", ofOld.Name: "old control plane, new runner"}
	add := func(what, image string) {
		pairing[r.AddReplica(t, map[string]string{"SLIPWAY_RUNNER_IMAGE": image}).Name] = what
	}
	add("new control plane, new runner", r.Runner())
	add("new control plane, old runner", old.Runner)
	for _, replica := range r.Replicas {
		replica.WaitReady(t)
	}

	seen := map[string]int{}
	for round := 0; round < 10 && len(seen) < len(pairing); round++ {
		want := map[string]wanted{}
		for _, replica := range r.Replicas {
			via := user.Via(replica.Address)
			for range 2 {
				want[via.Submit(t, shell(ns, "echo ok", nil)).ID] = succeeded
				want[via.Submit(t, shell(ns, "exit 3", nil)).ID] = exit3
			}
		}
		verdicts(t, user, want)
		for id := range want {
			seen[pairing[user.Attempts(t, id)[0].Replica]]++
		}
	}
	r.Replicas[len(r.Replicas)-1].Stop(t) // that runner wraps nothing; the two are rolled together
	ranByNewOnes(t, r, user, pairing)
	for _, what := range pairing {
		fmt.Fprintf(rig.Progress, "%s: %d tasks\n", what, seen[what])
		if seen[what] == 0 {
			t.Errorf("no task was run by: %s", what)
		}
	}
	verdicts(t, user, map[string]wanted{underway: succeeded})

	for _, replica := range r.Replicas { // the roll is over
		if pairing[replica.Name][:3] == "old" {
			replica.Stop(t)
		}
	}
	verdicts(t, user, map[string]wanted{user.Submit(t, shell(ns, "true", nil)).ID: succeeded})
}

// ranByNewOnes submits what the old version does not know while both run: it would launch the image without its wrapping.
// What the old version takes in meanwhile it runs as before.
func ranByNewOnes(t *testing.T, r *rig.Rig, user *rig.User, pairing map[string]string) {
	t.Helper()
	var newOnes []*rig.User
	for _, replica := range r.Replicas {
		if strings.HasPrefix(pairing[replica.Name], "new") && replica.Running() {
			newOnes = append(newOnes, user.Via(replica.Address))
		}
	}
	want := map[string]wanted{}
	for n := range 8 {
		wrapped := container(t, r, map[string]any{"command": []string{"/bin/busybox", "sh", "-c", `test -s "$SLIPWAY_PARAMS" && echo '"wrapped"' > $SLIPWAY_RESULT`}})
		want[newOnes[n%len(newOnes)].Submit(t, wrapped).ID] = succeeded
	}
	verdicts(t, user, want)
	for id := range want {
		for _, a := range user.Attempts(t, id) {
			if by := pairing[a.Replica]; !strings.HasPrefix(by, "new") {
				t.Errorf("an attempt of a kind that the old version does not know was claimed by: %s", by)
			}
		}
		if got := string(user.Await(t, id).Result); got != `"wrapped"` {
			t.Errorf("the task was not wrapped: its result is %s", got)
		}
	}
}
