package cases

import (
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/proxy"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// A lagging cache makes the controller launch work a second time. Shrunk: 60 tasks (FULL: 300), whose events come 4 s late
// (FULL: 20 s).
func TestCase03(t *testing.T) {
	replay(t, 3, "late and older events change nothing: one Job each, and no end is taken back", func(t *testing.T) {
		n, late := 60, 4*time.Second
		if full {
			n, late = 300, 20*time.Second
		}
		r := rig.New(t, rig.Options{Profile: local.API, Proxied: true, Replicas: 2})
		user := r.User(t, r.Namespace())
		watches := proxy.APIMatch{Verbs: []string{"watch"}}
		for _, replica := range r.Replicas {
			replica.Cluster.Add(proxy.APIFault{Action: proxy.APIDelayedEvent, Match: watches, For: late})
			replica.Cluster.Add(proxy.APIFault{Action: proxy.APIOlderEvent, Match: watches, Share: 0.3})
		}
		all := make([]played, n)
		for i := range all {
			all[i].id = user.Submit(t, rig.Command(r.Namespace(), "x")).ID
		}
		side(all, func(p *played) { // 20 at a time: the cap of a namespace
			p.start(t, user)
			p.insists(t)
		})
		for _, p := range all {
			if ended := user.Await(t, p.id); ended.State != api.StateSucceeded {
				t.Errorf("task %s ended %s/%s", p.id, ended.State, ended.Reason)
			}
		}
		for began := time.Now(); time.Since(began) < 2*late; time.Sleep(late / 4) { // the time that late events take
			for _, p := range all {
				if is := user.Task(t, p.id); is.State != api.StateSucceeded {
					t.Fatalf("task %s went back to %s", p.id, is.State)
				}
			}
		}
		whole(t, r, user, idsOf(all))
		for _, replica := range r.Replicas {
			if n := replica.Cluster.Counts(); n["api_older_event"] < 10 || n["api_delayed_event"] < 100 {
				t.Errorf("faults of %s: %v", replica.Name, n)
			}
		}
	})
}
