package cases

import (
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/proxy"
	"slipway.dev/slipway/e2e/rig"
)

// The watch connection dies silently, or merely goes quiet. Shrunk: the silence lasts until it is found (FULL: 5 minutes),
// watches are renewed every 4 s, pings sent after 4 s, and the quiet watch ends every second for 5 s (FULL: every 30 s for 10 minutes).
func TestCase02(t *testing.T) {
	replay(t, 2, "silence is found within its bound, and is never an outcome", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API, Proxied: true, Env: quick})
		user, replica := r.User(t, r.Namespace()), r.Replicas[0]
		var ids []string
		for what, fault := range map[string]proxy.APIFault{
			"nothing passes":              {Action: proxy.APISilentConnections},
			"the watches alone are quiet": {Action: proxy.APISilentRequests, Match: proxy.APIMatch{Verbs: []string{"watch"}}},
		} {
			t.Run(what, func(t *testing.T) { ids = append(ids, silent(t, r, user, fault)...) })
		}
		t.Run("the far end of the connection is gone", func(t *testing.T) {
			three := play(t, user, 3)
			replica.Cluster.Add(proxy.APIFault{Action: proxy.APIDeadConnections})
			want := map[string]wanted{}
			for _, p := range three {
				p.exits(t, 0)
				want[p.id] = succeeded
			}
			began := time.Now()
			verdicts(t, user, want)
			t.Logf("a dead connection was replaced and read after %v", time.Since(began).Round(100*time.Millisecond))
			ids = append(ids, idsOf(three)...)
		})
		t.Run("the watch ends again and again", func(t *testing.T) { ids = append(ids, endsOften(t, r, user)...) })
		replica.WaitHealth(t, false)
		whole(t, r, user, ids)
		gapsTold(t, replica, 12)
	})
}

func silent(t *testing.T, r *rig.Rig, user *rig.User, fault proxy.APIFault) []string {
	t.Helper()
	replica := r.Replicas[0]
	three := play(t, user, 3)
	speak := replica.Cluster.Add(fault)
	began := time.Now()
	want := map[string]wanted{}
	for i, p := range three {
		code, w := 0, succeeded
		if i == 2 {
			code, w = 3, exit3
		}
		p.exits(t, code)
		want[p.id] = w
	}
	replica.WaitHealth(t, true)
	t.Logf("found after %v", time.Since(began).Round(100*time.Millisecond))
	if full {
		time.Sleep(time.Until(began.Add(5 * time.Minute))) // the length of the silence
	}
	speak()
	verdicts(t, user, want)
	replica.WaitHealth(t, false)
	return idsOf(three)
}

func endsOften(t *testing.T, r *rig.Rig, user *rig.User) []string {
	t.Helper()
	every, length := time.Second, 5*time.Second
	if full {
		every, length = 30*time.Second, 10*time.Minute
	}
	one := play(t, user, 1)
	stop := r.Replicas[0].Cluster.Add(proxy.APIFault{Action: proxy.APIEndedWatch, For: every})
	for began := time.Now(); time.Since(began) < length; time.Sleep(length / 20) { // the length of the quiet time
		one[0].runner.Beat(t, 200)
		stays(t, user, one)
	}
	stop()
	if n := r.Replicas[0].Cluster.Counts()["api_ended_watch"]; n < 4 {
		t.Errorf("only %d watches were ended", n)
	}
	one[0].exits(t, 0)
	verdicts(t, user, map[string]wanted{one[0].id: succeeded})
	return idsOf(one)
}
