package schedule

import (
	"fmt"
	"testing"
	"time"
)

func TestTheDelayIsStableSpreadOutAndBelowTheSpread(t *testing.T) {
	const spread = time.Minute
	seen := make([]int, 60)
	for i := range 6000 {
		id := fmt.Sprintf("schedule-%d", i)
		d := Delay(id, anchor, spread)
		if d < 0 || d >= spread || d != Delay(id, anchor, spread) || d%time.Millisecond != 0 {
			t.Fatalf("%s: %s", id, d)
		}
		seen[d/time.Second]++
	}
	for second, n := range seen {
		if n < 50 || n > 170 { // 100 expected
			t.Errorf("%d of 6000 fall into second %d", n, second)
		}
	}
	if got := Delay("s", anchor, spread); got != 42*time.Second+969*time.Millisecond {
		t.Errorf("the delay of s at the anchor has become %s: a new version would move every schedule", got)
	}
	if Delay("s", anchor, 0) != 0 || Delay("s", anchor, -1) != 0 {
		t.Error("a delay without a spread")
	}
}

func TestTheSpreadNeverReachesTheNextInstant(t *testing.T) {
	s := half(t, Policy{Spread: MaxSpread, Missed: MissedAll, UpTo: MaxLines, Overlap: OverlapQueue})
	s.Last = clockAt("00:00")
	var fired int
	var before time.Time
	for now := clockAt("00:00"); now.Before(clockAt("23:00")); now = now.Add(10 * time.Second) {
		p := s.Plan(now)
		for _, e := range p.Entries {
			if e.Late < 0 || e.Late >= 10*time.Second || now.Sub(e.At) > 30*time.Minute || !e.At.After(before) {
				t.Fatalf("at %s: %+v", now, e)
			}
			fired, before = fired+1, e.At
		}
		if !p.Due.After(now) || p.Due.Sub(p.Next.At) >= 30*time.Minute {
			t.Fatalf("at %s: due %s for %s", now, p.Due, p.Next)
		}
		s.Last = p.Last
	}
	if fired < 44 || fired > 46 {
		t.Errorf("%d fired", fired)
	}
}
