package chaos

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"slipway.dev/slipway/e2e/proxy"
)

// failpoints are the places at which a replica can be told to die.
var failpoints = []string{
	"launch-before-create", "launch-before-record", "mark-launched", "claim-lanes-locked", "finish-before-commit",
	"settle-decides", "enqueue-before-commit", "enqueue-after-commit",
}

// replicaFaults break one replica's process.
func (s *storm) replicaFaults(i int) []fault {
	p := s.rig.Replicas[i]
	return []fault{
		{"replica_kill", func(ctx context.Context, _ *rand.Rand) (string, bool) {
			p.Kill(s.t)
			s.raise(ctx, i)
			return p.Name, true
		}},
		{"replica_freeze", func(ctx context.Context, random *rand.Rand) (string, bool) {
			p.Freeze(s.t)
			nap(ctx, time.Duration(500+random.IntN(4500))*time.Millisecond)
			p.Wake(s.t)
			return p.Name, true
		}},
		{"replica_restart", func(ctx context.Context, _ *rand.Rand) (string, bool) {
			p.Stop(s.t)
			s.raise(ctx, i)
			return p.Name, true
		}},
		{"replica_failpoint", func(ctx context.Context, random *rand.Rand) (string, bool) {
			at := failpoints[random.IntN(len(failpoints))]
			p.Stop(s.t)
			p.Start(s.t, map[string]string{"SLIPWAY_FAILPOINTS": at + "=kill"})
			died := true
			select {
			case <-p.Ended():
			case <-time.After(8 * time.Second): // nothing came by
				died = false
				p.Kill(s.t)
			case <-ctx.Done():
				died = false
				p.Kill(s.t)
			}
			s.raise(ctx, i)
			return p.Name + " " + at, died
		}},
	}
}

// raise starts a replica and gives it a while to be ready.
func (s *storm) raise(ctx context.Context, i int) {
	p := s.rig.Replicas[i]
	p.Start(s.t)
	for by := time.Now().Add(4 * time.Second); time.Now().Before(by) && ctx.Err() == nil; nap(ctx, 100*time.Millisecond) {
		one, cancel := context.WithTimeout(ctx, time.Second)
		status, _, err := p.Get(one, "/readyz")
		cancel()
		if err == nil && status == http.StatusOK {
			return
		}
	}
}

// databaseFaults break one replica's way to the database.
func (s *storm) databaseFaults(i int) []fault {
	p := s.rig.Replicas[i]
	one := func(f proxy.PostgresFault, most time.Duration) fault {
		return fault{string(f.Kind), func(ctx context.Context, _ *rand.Rand) (string, bool) {
			before := p.Database.Counts()[string(f.Kind)]
			p.Database.Set(f)
			defer p.Database.Set()
			took := func() bool { return p.Database.Counts()[string(f.Kind)] > before }
			for by := time.Now().Add(most); time.Now().Before(by) && ctx.Err() == nil; nap(ctx, 50*time.Millisecond) {
				if f.Times > 0 && p.Database.Counts()[string(f.Kind)] >= before+f.Times {
					break
				}
			}
			return p.Name, took()
		}}
	}
	const short, long = time.Second, 3 * time.Second
	return []fault{
		one(proxy.PostgresFault{Kind: proxy.PostgresSilent}, long),
		one(proxy.PostgresFault{Kind: proxy.PostgresDelay, For: 300 * time.Millisecond, Share: 0.5}, short),
		one(proxy.PostgresFault{Kind: proxy.PostgresCutBeforeCommit, Times: 3}, long),
		one(proxy.PostgresFault{Kind: proxy.PostgresCutAfterCommit, Times: 3}, long),
		one(proxy.PostgresFault{Kind: proxy.PostgresReadOnly, Times: 5}, long),
		one(proxy.PostgresFault{Kind: proxy.PostgresShutdown, Times: 5}, long),
		one(proxy.PostgresFault{Kind: proxy.PostgresSerialization, Times: 5}, long),
		{string(proxy.PostgresTooManyConnections), func(ctx context.Context, _ *rand.Rand) (string, bool) {
			before := p.Database.Counts()[string(proxy.PostgresTooManyConnections)]
			p.Database.Set(proxy.PostgresFault{Kind: proxy.PostgresTooManyConnections})
			defer p.Database.Set()
			p.Database.CutAll() // so that new ones are asked for
			nap(ctx, short)
			return p.Name, p.Database.Counts()[string(proxy.PostgresTooManyConnections)] > before
		}},
		{string(proxy.PostgresCut), func(context.Context, *rand.Rand) (string, bool) {
			if p.Database.Connections() == 0 {
				return "", false
			}
			p.Database.CutAll()
			return p.Name, true
		}},
	}
}

// apiFaults break one replica's way to the API server.
func (s *storm) apiFaults(i int) []fault {
	p := s.rig.Replicas[i]
	one := func(kind string, f proxy.APIFault, most time.Duration, before func()) fault {
		return fault{kind, func(ctx context.Context, _ *rand.Rand) (string, bool) {
			already := sum(p.Cluster.Counts())
			remove := p.Cluster.Add(f)
			defer remove()
			if before != nil {
				before()
			}
			for by := time.Now().Add(most); time.Now().Before(by) && ctx.Err() == nil; nap(ctx, 50*time.Millisecond) {
				if f.Times > 0 && sum(p.Cluster.Counts()) >= already+f.Times {
					break
				}
			}
			return p.Name, sum(p.Cluster.Counts()) > already
		}}
	}
	calls := proxy.APIMatch{Verbs: []string{"get", "list", "create", "update", "patch", "delete", "deletecollection"}}
	watches := proxy.APIMatch{Verbs: []string{"watch"}}
	sever := p.Cluster.Sever
	const short, long = 1500 * time.Millisecond, 3 * time.Second
	return []fault{
		one(string(proxy.APISilentConnections), proxy.APIFault{Action: proxy.APISilentConnections}, long, nil),
		one(string(proxy.APISilentRequests), proxy.APIFault{Action: proxy.APISilentRequests, Match: calls}, short, nil),
		one("api_silent_watches", proxy.APIFault{Action: proxy.APISilentRequests, Match: watches}, long, nil),
		one(string(proxy.APIDelay), proxy.APIFault{Action: proxy.APIDelay, For: 700 * time.Millisecond, Share: 0.7, Match: calls}, short, nil),
		one(string(proxy.APICutBefore), proxy.APIFault{Action: proxy.APICutBefore, Times: 3, Match: calls}, long, nil),
		one(string(proxy.APICutAfter), proxy.APIFault{Action: proxy.APICutAfter, Times: 3, Match: calls}, long, nil),
		one(string(proxy.APIHalfBody), proxy.APIFault{Action: proxy.APIHalfBody, Times: 3, Match: calls}, long, nil),
		one(string(proxy.APISever), proxy.APIFault{Action: proxy.APISever, Times: 2}, long, nil),
		one("api_429", proxy.APIFault{Action: proxy.APIReply, Times: 6, Answer: proxy.APIStatus(429, "TooManyRequests", 1), Match: calls}, long, nil),
		one("api_500", proxy.APIFault{Action: proxy.APIReply, Times: 6, Answer: proxy.APIStatus(500, "InternalError", 0), Match: calls}, long, nil),
		one("api_503", proxy.APIFault{Action: proxy.APIReply, Times: 6, Answer: proxy.APIStatus(503, "ServiceUnavailable", 1), Match: calls}, long, nil),
		one("api_410", proxy.APIFault{Action: proxy.APIReply, Times: 2, Answer: proxy.APIStatus(410, "Expired", 0), Match: watches}, long, sever),
		one(string(proxy.APIExpiredEvent), proxy.APIFault{Action: proxy.APIExpiredEvent, Times: 2, Match: watches}, long, sever),
		one(string(proxy.APIDelayedEvent), proxy.APIFault{Action: proxy.APIDelayedEvent, For: 2 * time.Second, Match: watches}, long, nil),
		one(string(proxy.APIOlderEvent), proxy.APIFault{Action: proxy.APIOlderEvent, Share: 0.5, Match: watches}, long, nil),
		one(string(proxy.APIEndedWatch), proxy.APIFault{Action: proxy.APIEndedWatch, For: 300 * time.Millisecond, Match: watches}, short, sever),
	}
}

func sum(counts map[string]int) (all int) {
	for _, n := range counts {
		all += n
	}
	return all
}
