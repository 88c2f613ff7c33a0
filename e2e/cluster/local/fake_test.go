package local

import "testing"

func TestFakeNodesEndAPodAtOnceAndHoldTheOneToHoldAlsoWhenTheClusterIsTunedMeanwhile(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a control plane, and compiles it if need be; not under -short")
	}
	ctx := t.Context()
	o := Options{Name: "test-fake", Profile: Fake, Log: t.Output()}
	downAtEnd(t, o.Name)
	c := must(t)(Up(ctx, o))
	kubectl(t, c, "create", "job", "ends", "--image=any")
	kubectl(t, c, "create", "job", "holds", "--image="+FakeHold)
	stock := pid(t, c, "kube-controller-manager")
	if err := c.Tune(ctx, true); err != nil {
		t.Fatal(err)
	}
	if pid(t, c, "kube-controller-manager") == stock {
		t.Error("the controller-manager runs on with the rates that it had")
	}
	kubectl(t, c, "wait", "--for=condition=complete", "job/ends", "--timeout=60s")
	kubectl(t, c, "wait", "--for=jsonpath={.status.phase}=Running", "pods", "-l", "job-name=holds", "--timeout=60s")
	if _, err := Up(ctx, Options{Name: o.Name, Profile: Fake, Tuned: true}); err != nil {
		t.Errorf("the tuned cluster is not the one that is kept: %v", err)
	}
	goneAfterDown(t, c)
}
