package cases

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/proxy"
	"slipway.dev/slipway/e2e/rig"
)

// One API error takes the whole scheduler down. Shrunk: 20 tasks while errors come for 8 s (FULL: 50 in 5 minutes), and an
// outage of 12 s (FULL: 3 minutes).
func TestCase09(t *testing.T) {
	replayAlone(t, 9, "API errors and an outage end no process and no task, and double none", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API, Proxied: true, Env: quick})
		user := r.User(t, r.Namespace())
		all := underErrors(t, r, user)
		one := retryAfter(t, r, user)
		all = append(all, one)
		ten := play(t, user, 10)
		apiServerAway(t, r, user, ten)
		side(ten, func(p *played) { p.exits(t, 0) })
		for _, p := range ten {
			verdicts(t, user, map[string]wanted{p.id: succeeded})
		}
		r.Replicas[0].WaitHealth(t, false)
		whole(t, r, user, append(idsOf(all), idsOf(ten)...))
	})
}

// underErrors runs Tasks while the API server answers with errors at random.
func underErrors(t *testing.T, r *rig.Rig, user *rig.User) []played {
	t.Helper()
	n, length := 20, 8*time.Second
	if full {
		n, length = 50, 5*time.Minute
	}
	began, cluster := time.Now(), r.Replicas[0].Cluster
	ours := proxy.APIMatch{Resources: []string{"jobs", "pods", "pods/log"}} // whoever calls is let in: the test is a caller too
	for _, answer := range []proxy.APIAnswer{
		proxy.APIStatus(500, "InternalError", 0), proxy.APIStatus(502, "", 0), proxy.APIStatus(503, "ServiceUnavailable", 2),
		proxy.APIStatus(504, "Timeout", 0), proxy.APIStatus(429, "TooManyRequests", 5),
	} {
		cluster.Add(proxy.APIFault{Action: proxy.APIReply, Match: ours, Share: 0.06, Answer: answer})
	}
	for _, action := range []proxy.APIAction{proxy.APISever, proxy.APICutBefore, proxy.APICutAfter, proxy.APIHalfBody} {
		cluster.Add(proxy.APIFault{Action: action, Match: ours, Share: 0.06})
	}
	var trouble sync.WaitGroup
	trouble.Go(func() {
		metAll(t, cluster)
		time.Sleep(length - time.Since(began)) // the length of the trouble
		cluster.Clear()
	})
	all := make([]played, n)
	side(all, func(p *played) {
		p.id = user.Submit(t, rig.Command(r.Namespace(), "x")).ID
		p.start(t, user)
		p.insists(t)
	})
	trouble.Wait()
	for _, p := range all {
		verdicts(t, user, map[string]wanted{p.id: succeeded})
	}
	return all
}

// retryAfter holds that a create that was answered 429 is not sent again before its time.
func retryAfter(t *testing.T, r *rig.Rig, user *rig.User) played {
	t.Helper()
	cluster, create := r.Replicas[0].Cluster, proxy.APICall{Verb: "create", Resource: "jobs"}
	cluster.Add(proxy.APIFault{
		Action: proxy.APIReply, Match: proxy.APIMatch{Verbs: []string{"create"}, Resources: []string{"jobs"}}, Times: 1,
		Answer: proxy.APIStatus(429, "TooManyRequests", 5),
	})
	before := cluster.Requests()[create]
	until := func(n int) time.Time {
		rig.Eventually(t, fmt.Sprintf("create %d of the Job", n), func(context.Context) (bool, error) {
			return cluster.Requests()[create] >= before+n, nil
		})
		return time.Now()
	}
	p := played{id: user.Submit(t, rig.Command(r.Namespace(), "x")).ID}
	first := until(1)
	if again := until(2).Sub(first); again < 4500*time.Millisecond {
		t.Errorf("the create came again after %v, and was told to wait for 5 s", again)
	}
	p.start(t, user)
	p.insists(t)
	verdicts(t, user, map[string]wanted{p.id: succeeded})
	return p
}

// apiServerAway stops the API server while Tasks run.
func apiServerAway(t *testing.T, r *rig.Rig, user *rig.User, running []played) {
	t.Helper()
	length := 12 * time.Second // longer than what is known of a caller is good for everything
	if full {
		length = 3 * time.Minute
	}
	stays(t, user, running)
	if err := r.Cluster.StopPart(t.Context(), "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	asked, failed, last := readsAnswer(ctx, user, idsOf(running))
	if failed > 0 || asked < 10 {
		t.Errorf("%d of %d reads failed, the last with %s", failed, asked, last)
	}
	r.Replicas[0].WaitHealth(t, true)
	stays(t, user, running)
	if err := r.Cluster.StartPart(t.Context(), "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
}

// metAll waits until every sort of error was met.
func metAll(t *testing.T, cluster *proxy.API) {
	t.Helper()
	for _, fault := range []string{
		"api_reply_500", "api_reply_502", "api_reply_503", "api_reply_504", "api_reply_429", "api_sever", "api_cut_before", "api_cut_after", "api_half_body",
	} {
		rig.Eventually(t, "fault "+fault, func(context.Context) (bool, error) { return cluster.Counts()[fault] > 0, nil })
	}
}

// readsAnswer asks again and again, until stop, and counts the reads that were not answered from the database.
func readsAnswer(ctx context.Context, user *rig.User, ids []string) (asked, failed int, last string) {
	for ; ctx.Err() == nil; asked++ {
		a, err := user.Do(ctx, http.MethodGet, "/v1/tasks/"+ids[asked%len(ids)], nil)
		if ctx.Err() == nil && (err != nil || a.Status != http.StatusOK) {
			failed++
			last = fmt.Sprint(a.Status, " ", string(a.Body), " ", err)
		}
		time.Sleep(100 * time.Millisecond) // the pace of the reader
	}
	return asked, failed, last
}
