package chaos

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// fault is one way to break something; it reports whether it took place.
type fault struct {
	kind string
	do   func(ctx context.Context, random *rand.Rand) (note string, took bool)
}

// track is faults that come one after the other.
type track struct {
	name   string
	faults []fault
	rounds int           // how often each of them comes
	within time.Duration // from the beginning of the storm
}

// tracks are all faults. Each kind comes a fifth more often than it has to, because some do not take place: a victim has
// ended, a replica is down.
func (s *storm) tracks() []track {
	least := int(math.Ceil(2 * s.lasts.Minutes()))
	rounds := least + max(1, least/5)
	each := (rounds + replicas - 1) / replicas
	most := s.lasts - 3*time.Second
	all := []track{
		{"pods", s.podFaults(), rounds, most},
		{"nodes", s.nodeFaults(), rounds, s.lasts - 10*time.Second},
		// What ran on a lost node is given up a minute later; that is to be over soon after the storm.
		{"losses", s.lossFaults(), rounds, max(s.lasts/3, s.lasts-time.Minute)},
		{"server", s.serverFaults(), rounds, most},
		{"cluster", s.clusterFaults(), rounds, most},
		{"etcd", s.etcdFaults(), rounds, most},
	}
	for i := range s.rig.Replicas {
		all = append(all,
			track{fmt.Sprintf("replica %d", i), s.replicaFaults(i), each, s.lasts - 8*time.Second},
			track{fmt.Sprintf("database of %d", i), s.databaseFaults(i), each, most},
			track{fmt.Sprintf("cluster of %d", i), s.apiFaults(i), each, most},
		)
	}
	return all
}

// follow plays a track: round after round, the faults of each in a drawn order, at an even pace. What did not take place is
// made good at the end.
func (s *storm) follow(ctx context.Context, t track) {
	random := s.random(t.name)
	every := t.within / time.Duration(t.rounds*len(t.faults))
	var missed []fault
	n := 0
	for range t.rounds {
		for _, i := range random.Perm(len(t.faults)) {
			nap(ctx, time.Until(s.began.Add(time.Duration(n)*every)))
			n++
			if ctx.Err() != nil {
				return
			}
			if !s.strike(ctx, t.faults[i], random) {
				missed = append(missed, t.faults[i])
			}
		}
	}
	for len(missed) > 0 && ctx.Err() == nil {
		if s.strike(ctx, missed[0], random) {
			missed = missed[1:]
		}
	}
}

// strike lets a fault happen; one that finds nothing to break is tried again for a little while.
func (s *storm) strike(ctx context.Context, f fault, random *rand.Rand) bool {
	for range 10 {
		if note, took := f.do(ctx, random); took {
			s.happened(f.kind, note)
			return true
		}
		nap(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			break
		}
	}
	return false
}

// allKinds names every kind of fault once.
func (s *storm) allKinds() (kinds []string) {
	known := map[string]bool{}
	for _, t := range s.tracks() {
		for _, f := range t.faults {
			if !known[f.kind] {
				known[f.kind] = true
				kinds = append(kinds, f.kind)
			}
		}
	}
	return kinds
}
