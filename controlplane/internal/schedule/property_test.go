package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// draw makes a schedule and the span of a stop at random, with a ledger that stays below MaxLines.
func draw(t *testing.T, rnd *rand.Rand) (s Schedule, to time.Time) {
	zones := []string{"UTC", "Europe/Berlin", "America/Los_Angeles", "Africa/Cairo", "Australia/Lord_Howe", "Antarctica/Troll", "Asia/Tokyo"}
	zone := zones[rnd.IntN(len(zones))]
	from := time.Date(2026, 1, 1+rnd.IntN(1000), rnd.IntN(24), rnd.IntN(60), rnd.IntN(60), 0, time.UTC)
	if rnd.IntN(2) == 0 { // a day on which clocks change
		changes := []time.Time{
			time.Date(2026, 3, 28, 20, 0, 0, 0, time.UTC), time.Date(2026, 10, 24, 20, 0, 0, 0, time.UTC), time.Date(2026, 3, 8, 3, 0, 0, 0, time.UTC),
			time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC), time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC), time.Date(2028, 12, 31, 3, 0, 0, 0, time.UTC),
		}
		from = changes[rnd.IntN(len(changes))].Add(time.Duration(rnd.IntN(3600)) * time.Second)
	}
	s = Schedule{ID: "s", Enabled: true, Since: from}
	if rnd.IntN(4) == 0 {
		r, err := Parse(Spec{Every: time.Duration(60+rnd.IntN(4000)) * time.Second, Anchor: from.Add(-time.Hour)})
		if err != nil {
			t.Fatalf("parse: %v", err)
		}
		s.Rule = r
	} else {
		s.Rule = mustParse(t, randomExpression(rnd), zone)
	}
	if rnd.IntN(2) == 0 {
		s.Policy.Spread = time.Duration(rnd.IntN(7200)) * time.Second
	}
	for rnd.IntN(2) == 0 {
		s.Blackouts = append(s.Blackouts, mustBlackout(t, BlackoutSpec{
			Name: "b", Cron: randomExpression(rnd), Zone: zone, For: time.Duration(1+rnd.IntN(100)) * time.Minute,
		}))
	}
	return s, from.Add(14 * time.Hour)
}

// verdict is what must not depend on when a look comes.
type verdict struct {
	At      time.Time
	Wall    string
	Outcome Outcome
}

func verdicts(entries []Entry) []verdict {
	var out []verdict
	for _, e := range entries {
		out = append(out, verdict{e.At, e.Wall, e.Outcome})
	}
	return out
}

func TestHoweverAStopIsCutIntoLooksAllRunsTheSame(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 2))
	for range 150 {
		s, to := draw(t, rnd)
		s.Policy.Missed, s.Policy.UpTo, s.Policy.Overlap = MissedAll, MaxLines, OverlapAllow
		if _, until := Covering(s.Blackouts, to); !until.IsZero() {
			continue // the last look would have to wait
		}
		at, cut := s, s
		once, last := run(&at, to)
		var looks []time.Time
		for now := s.Since; now.Before(to); now = now.Add(time.Duration(rnd.Int64N(int64(2 * time.Hour)))) {
			looks = append(looks, now)
			if rnd.IntN(4) == 0 {
				looks = append(looks, now.Add(-time.Duration(rnd.Int64N(int64(time.Hour))))) // the clock goes back
			}
		}
		pieces, end := run(&cut, append(looks, to)...)
		if diff := cmp.Diff(verdicts(once), verdicts(pieces)); diff != "" {
			t.Fatalf("seed %d: %s, %+v from %s: at once, and in %d looks:\n%s", seed, s.Rule, s.Policy, s.Since, len(looks), diff)
		}
		if !last.Due.Equal(end.Due) || !last.Last.Equal(end.Last) {
			t.Fatalf("seed %d: %s: next %s and %s", seed, s.Rule, last.Due, end.Due)
		}
	}
}

func TestNoInstantIsSettledTwiceAndNoneIsLeftOut(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 3))
	missed := []Policy{{}, {Missed: MissedSkip}, {Missed: MissedAll, UpTo: 3}, {Missed: MissedWithin, Within: time.Hour}}
	overlaps := []OverlapPolicy{"", OverlapAllow, OverlapReplace, OverlapQueue}
	for range 150 {
		s, to := draw(t, rnd)
		spread := s.Policy.Spread
		s.Policy = missed[rnd.IntN(len(missed))]
		s.Policy.Spread, s.Policy.Overlap = spread, overlaps[rnd.IntN(len(overlaps))]
		first := s
		var entries []Entry
		for now := s.Since; now.Before(to); now = now.Add(time.Duration(rnd.Int64N(int64(2 * time.Hour)))) {
			s.Live = rnd.IntN(3)
			p := s.Plan(now)
			if again := s.Plan(now); !cmp.Equal(p, again) {
				t.Fatalf("seed %d: %s: two looks at the same state differ", seed, s.Rule)
			}
			if p.Last.Before(s.Last) || !p.Due.IsZero() && !p.Due.After(now) {
				t.Fatalf("seed %d: %s at %s: from %s to %s, due %s", seed, s.Rule, now, s.Last, p.Last, p.Due)
			}
			s.Last = p.Last
			if rest := s.Plan(now); len(rest.Entries) != 0 {
				t.Fatalf("seed %d: %s at %s: a second look settles %v", seed, s.Rule, now, verdicts(rest.Entries))
			}
			entries = append(entries, p.Entries...)
		}
		if !slices.IsSortedFunc(entries, func(a, b Entry) int {
			if a.At.After(b.At) {
				return 1
			}
			return -1 // two at the same instant are out of order
		}) {
			t.Fatalf("seed %d: %s: %v", seed, s.Rule, verdicts(entries))
		}
		if s.Last.IsZero() {
			continue
		}
		if n := s.Rule.Count(first.Since.Add(time.Second), s.Last.Add(time.Second)); n != int64(len(entries)) {
			t.Fatalf("seed %d: %s: %d lines for %d instants", seed, s.Rule, len(entries), n)
		}
	}
}

func TestNextBetweenAndCountAgree(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 4))
	for range 150 {
		s, _ := draw(t, rnd)
		to := s.Since.Add(72 * time.Hour)
		list, _ := s.Rule.Between(s.Since.Add(time.Second), to, MaxListed)
		if n := s.Rule.Count(s.Since.Add(time.Second), to); n != int64(len(list)) {
			t.Fatalf("seed %d: %s from %s: Count is %d of %d", seed, s.Rule, s.Since, n, len(list))
		}
		at := s.Since
		for i, want := range list {
			if i == 200 {
				break
			}
			got, ok := s.Rule.Next(at)
			if !ok || !cmp.Equal(got, want) {
				t.Fatalf("seed %d: %s: after %s: %v, want %v", seed, s.Rule, at, got, want)
			}
			at = got.At
		}
	}
}
