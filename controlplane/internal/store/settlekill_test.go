//go:build failpoints

package store_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"slipway.dev/slipway/controlplane/internal/failpoint"
	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

const settleVariable = "SLIPWAY_TEST_SETTLE"

// TestSettleHelper is the process that another test kills; it does nothing by itself.
func TestSettleHelper(t *testing.T) {
	url := os.Getenv(settleVariable)
	if url == "" {
		t.Skip("run by TestSettlingGoesOnAfterAKillAtEachOfItsSteps")
	}
	s := pgtest.Open(t, store.Config{URL: url, Replica: "killed", MaxConns: 2})
	for more := true; more; {
		var err error
		if more, err = s.Settle(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
}

// settleUntilKilled settles in a process of its own, which dies at its second hit of a place.
func (d database) settleUntilKilled(place string) {
	d.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestSettleHelper$")
	cmd.Env = append(os.Environ(), settleVariable+"="+d.url, fmt.Sprintf("%s=%s@2=kill", failpoint.Variable, place))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		d.t.Fatalf("the process did not die at %s: %v\n%s", place, err, out)
	}
}

func TestSettlingGoesOnAfterAKillAtEachOfItsSteps(t *testing.T) {
	for _, place := range []string{"settle-decides", "settle-before-commit", "settle-after-commit"} {
		t.Run(place, func(t *testing.T) {
			d := newDatabase(t)
			bad := item("volume:ns/2")
			bad.Task.Spec.Retry.Attempts = 1
			parent := d.one(composite("branch:ns/a", item("volume:ns/1"), bad, item("volume:ns/3")))
			whatever := itemWith(func(i *store.Item) { i.After, i.RunIf = []string{parent.ID}, store.AllFinished }).of("")
			next := d.one(whatever)
			strict := itemWith(func(i *store.Item) { i.After = []string{parent.ID} }).of("")
			never := d.one(strict)
			d.claim(1)
			d.settleUntilKilled(place) // children enter
			d.settle()
			claims := d.claim(10)
			if len(claims) != 3 {
				t.Fatalf("%d children run", len(claims))
			}
			for i, c := range claims[:2] {
				v := success
				if c.Task.Lane == "volume:ns/2" {
					v = failure
				}
				d.finish(c, v)
				if i == 0 {
					d.settle()
				}
			}
			// The rest is canceled: children stop, the parent ends, dependents go on.
			if _, err := d.Cancel(t.Context(), parent.ID, "bob", ""); err != nil {
				t.Fatal(err)
			}
			d.settleUntilKilled(place)
			d.settle()
			d.finish(claims[2], task.Verdict{Outcome: task.OutcomeCanceled, Reason: task.ReasonCanceled})
			d.settle()
			d.wantState(parent.ID, task.Canceled, task.ReasonCanceled)
			d.wantState(never.ID, task.Failed, task.ReasonDependency)
			if c := d.claimOne(); c.Task.ID != next.ID {
				t.Fatal("what runs whatever the end of its parent does not")
			}
			if got, _ := d.get(parent.ID); got.Message != "succeeded 1 of 3" && got.Message != "succeeded 2 of 3" {
				t.Errorf("message %q", got.Message)
			}
			if n := value[int](d, "select count(*) from slipway.events where task = (select key from slipway.tasks where id = '"+parent.ID+"') and type = 'canceled'"); n != 1 {
				t.Errorf("%d ends of the parent are noted", n)
			}
		})
	}
}
