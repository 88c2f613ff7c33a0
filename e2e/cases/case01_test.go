package cases

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/proxy"
	"slipway.dev/slipway/e2e/rig"
)

// The watch position expires and outcomes stop arriving. Shrunk: the block lasts until the gap is found (FULL: a minute),
// and 200 unrelated objects are written (FULL: 3,000); watches are renewed every 4 s.
func TestCase01(t *testing.T) {
	replayAlone(t, 1, "a dropped watch position costs one fresh list and no outcome", func(t *testing.T) {
		t.Run("compacted and restarted behind a block", compactedBehindABlock)
		t.Run("the watch is answered 410", watchIsExpired)
	})
}

func compactedBehindABlock(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API, Proxied: true, Env: quick})
	user, replica := r.User(t, r.Namespace()), r.Replicas[0]
	five := play(t, user, 5)
	began := time.Now()
	unblock := replica.Cluster.Add(proxy.APIFault{Action: proxy.APISilentConnections})
	want := fiveEnd(t, five)
	unrelated(t, r)
	if err := r.Cluster.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Cluster.StopPart(t.Context(), "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if err := r.Cluster.StartPart(t.Context(), "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	replica.WaitHealth(t, true)
	age, err := replica.Metric(t.Context(), "slipway_cluster_sync_age_seconds")
	if blind := time.Since(began).Seconds(); err != nil || age < 3 || age > blind+10 {
		t.Errorf("age of the last good sync is %v (%v), %v s after the block began", age, err, blind)
	}
	if full {
		time.Sleep(time.Until(began.Add(time.Minute))) // the length of the block
	}
	unblock()
	verdicts(t, user, want)
	replica.WaitHealth(t, false)
	whole(t, r, user, idsOf(five))
	gapsTold(t, replica, 4)
}

// unrelated writes objects that push the newest revision away from what the watches have seen.
func unrelated(t *testing.T, r *rig.Rig) {
	t.Helper()
	n := 200
	if full {
		n = 3000
	}
	side(make([]int, n), func(*int) {
		_, err := r.Kube.CoreV1().ConfigMaps(r.Namespace()).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "unrelated-"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("write an unrelated object: %v", err)
		}
	})
}

func watchIsExpired(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API, Proxied: true, Env: quick})
	user, replica := r.User(t, r.Namespace()), r.Replicas[0]
	five := play(t, user, 5)
	watches := proxy.APIMatch{Verbs: []string{"watch"}}
	replica.Cluster.Add(proxy.APIFault{Action: proxy.APIReply, Match: watches, Times: 2, Answer: proxy.APIStatus(410, "Expired", 0)})
	replica.Cluster.Add(proxy.APIFault{Action: proxy.APIExpiredEvent, Match: watches, Times: 2})
	want := fiveEnd(t, five)
	rig.Eventually(t, "the watches to be answered 410 in both ways", func(context.Context) (bool, error) {
		n := replica.Cluster.Counts()
		return n["api_reply_410"] == 2 && n["api_expired_event"] == 2, nil
	})
	verdicts(t, user, want)
	replica.WaitHealth(t, false)
	whole(t, r, user, idsOf(five))
	gapsTold(t, replica, 8) // 4 answers, and the stream under each breaks off too, which a slow machine hears as a gap of its own
}
