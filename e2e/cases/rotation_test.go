package cases

import (
	"testing"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/proxy"
	"slipway.dev/slipway/e2e/rig"
)

func TestAReplicaOutlivesItsTokenAndTheAuthorityOfTheAPIServer(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.API, Proxied: true})
	user, replica := r.User(t, r.Namespace()), r.Replicas[0]
	first := replica.RevocableToken(t)
	replica.Stop(t)
	replica.Start(t)
	replica.WaitReady(t)
	before := replica.Cluster.Requests()
	replica.RevocableToken(t)
	first.Revoke(t)
	one := play(t, user, 1)[0]
	one.exits(t, 0)
	verdicts(t, user, map[string]wanted{one.id: succeeded})
	if after := replica.Cluster.Requests(); after[proxy.APICall{Verb: "create", Resource: "jobs"}] <= before[proxy.APICall{Verb: "create", Resource: "jobs"}] {
		t.Error("the Job was not created through the proxy")
	}

	if err := replica.Cluster.Certify(r.Cluster.HostIP); err != nil {
		t.Fatal(err)
	}
	replica.Cluster.Sever()
	replica.WaitHealth(t, true)
	replica.TrustCluster(t)
	replica.WaitHealth(t, false)
	two := play(t, user, 1)[0]
	two.exits(t, 3)
	verdicts(t, user, map[string]wanted{two.id: exit3})
	if n := replica.Logged(t, `"msg":"starting"`); n != 2 { // the test's own restart
		t.Errorf("the replica started %d times, want 2", n)
	}
}
