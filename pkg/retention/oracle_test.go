package retention_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/pkg/retention"
)

// The oracle decides over each copy by itself, from the definition: a copy stays by a rule if fewer than N others stand
// before it. It finds periods by walking the clock back to their beginning, not by naming them.

// begins walks back from t, by steps at which clocks are moved, to the beginning of the period that t is in.
func begins(t time.Time, zone *time.Location, unit string) [6]int {
	l := t.In(zone)
	switch unit {
	case "hour": // its beginning is where the clock shows a full hour, or was moved
		_, offset := l.Zone()
		at := l.Truncate(time.Second)
		for at.Minute() != 0 || at.Second() != 0 {
			before := at.Add(-time.Second)
			if _, o := before.Zone(); o != offset {
				break
			}
			at = before
			if at.Second() == 0 && at.Minute() != 0 { // a minute at a time, where no clock is moved in between
				if _, o := at.Add(-time.Minute).Zone(); o == offset {
					at = at.Add(-time.Minute)
				}
			}
		}
		return [6]int{int(at.Unix())}
	case "day":
		return [6]int{l.Year(), int(l.Month()), l.Day()}
	case "week": // days since a Monday long ago
		noon := time.Date(l.Year(), l.Month(), l.Day(), 12, 0, 0, 0, time.UTC)
		monday := time.Date(1969, time.December, 29, 12, 0, 0, 0, time.UTC)
		return [6]int{int(noon.Sub(monday)/(24*time.Hour)) / 7}
	}
	return [6]int{l.Year() * 12, int(l.Month())}
}

// counts tells whether a copy is one that rules look at.
func counts(c retention.Copy, now time.Time) bool {
	return !c.Foreign && !c.Pinned && c.State == retention.Good && !c.Taken.IsZero() && !c.Taken.After(now)
}

// newer tells which of two comes first.
func newer(a, b retention.Copy) bool {
	return a.Taken.After(b.Taken) || a.Taken.Equal(b.Taken) && a.Name > b.Name
}

// oracle gives the names that go.
func oracle(all []retention.Copy, r retention.Rules, now time.Time) []string {
	zone := time.UTC
	if r.Zone != "" {
		zone, _ = time.LoadLocation(r.Zone)
	}
	floor := 1
	if r.Floor != nil {
		floor = *r.Floor
	}
	places := map[string]map[string][6]int{}
	for unit, n := range map[string]int{"hour": r.Hourly, "day": r.Daily, "week": r.Weekly, "month": r.Monthly} {
		places[unit] = map[string][6]int{}
		for _, c := range all {
			if n > 0 && counts(c, now) {
				places[unit][c.Name] = begins(c.Taken, zone, unit)
			}
		}
	}
	var gone []string
	for _, c := range all {
		if !counts(c, now) || c.InUse != "" {
			continue
		}
		var before []retention.Copy
		for _, o := range all {
			if o.Source == c.Source && o.UID == c.UID && counts(o, now) && newer(o, c) {
				before = append(before, o)
			}
		}
		keep := len(before) < r.Count || len(before) < floor || r.Age > 0 && now.Sub(c.Taken).Seconds() <= r.Age
		for unit, n := range map[string]int{"hour": r.Hourly, "day": r.Daily, "week": r.Weekly, "month": r.Monthly} {
			mine := places[unit][c.Name]
			later, first := map[[6]int]bool{}, true
			for _, o := range before {
				theirs := places[unit][o.Name]
				first = first && theirs != mine
				later[theirs] = true
			}
			keep = keep || n > 0 && first && len(later) < n
		}
		if !keep {
			gone = append(gone, c.Name)
		}
	}
	slices.Sort(gone)
	return gone
}

// mistake tells whether a source loses all of its good copies, or, where that are four or more, too large a part of them.
func mistake(all []retention.Copy, gone []string, r retention.Rules, now time.Time) bool {
	share := 0.5
	if r.MaxShare != nil {
		share = *r.MaxShare
	}
	for _, of := range all {
		goes, stays := 0, 0
		for _, c := range all {
			switch {
			case c.Source != of.Source || c.UID != of.UID || !counts(c, now):
			case slices.Contains(gone, c.Name):
				goes++
			default:
				stays++
			}
		}
		if goes > 0 && stays == 0 || goes > 3 && float64(goes)/float64(goes+stays) > share {
			return true
		}
	}
	return false
}

var zones = []string{
	"", "UTC", "Europe/Berlin", "America/New_York", "America/Los_Angeles", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu",
	"Africa/Cairo", "Asia/Beirut", "America/Havana", "Pacific/Apia", "Pacific/Kiritimati", "Africa/Casablanca", "Asia/Tehran", "America/Asuncion",
}

// changes are instants around which clocks are moved somewhere.
var changes = []string{
	"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-03-08T10:00:00Z", "2026-11-01T06:00:00Z", "2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z",
	"2011-12-30T10:00:00Z", "2009-11-01T02:31:00Z", "2010-11-07T02:31:00Z", "2024-04-25T22:00:00Z", "2024-10-31T21:00:00Z", "2026-03-28T22:00:00Z",
	"2026-01-01T00:00:00Z", "2024-12-31T12:00:00Z", "2026-12-28T00:00:00Z",
}

// history draws copies as clusters leave them: in a rhythm, with failures, doubles and strangers.
func history(r *rand.Rand) ([]retention.Copy, retention.Rules, time.Time) {
	now, _ := time.Parse(time.RFC3339, changes[r.IntN(len(changes))])
	now = now.Add(time.Duration(r.IntN(72*3600)-36*3600) * time.Second)
	steps := []time.Duration{time.Minute, 10 * time.Minute, 29 * time.Minute, time.Hour, 7 * time.Hour, 24 * time.Hour, 9 * 24 * time.Hour}
	var all []retention.Copy
	for source := range 1 + r.IntN(3) {
		at := now.Add(time.Duration(r.IntN(7200)-3600) * time.Second)
		step := steps[r.IntN(len(steps))]
		uid := ""
		for n := range r.IntN(40) {
			c := retention.Copy{
				Name: fmt.Sprintf("s%d-%02d", source, n), Source: fmt.Sprintf("data-%d", source), Taken: at, State: retention.Good,
				Pinned: r.IntN(15) == 0, Foreign: r.IntN(15) == 0,
			}
			switch r.IntN(12) {
			case 0:
				c.State = retention.Failed
			case 1:
				c.State = retention.Unready
			case 2:
				c.InUse = "PVC restored"
			case 3:
				c.Taken = time.Time{}
			case 4:
				c.State = retention.Going
			}
			if r.IntN(25) == 0 { // further back there was another claim of the name, or nobody knows which
				uid = []string{"", "a", "b"}[r.IntN(3)]
			}
			c.UID = uid
			all = append(all, c)
			if r.IntN(10) > 0 { // else two of the same instant
				at = at.Add(-time.Duration(float64(step) * (0.2 + 1.2*r.Float64()))).Truncate(time.Second)
			}
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	some := func(most int) int {
		if r.IntN(2) == 0 {
			return 0
		}
		return r.IntN(most)
	}
	rules := retention.Rules{
		Count: some(8), Age: float64(some(20 * 24 * 3600)), Hourly: some(30), Daily: some(9), Weekly: some(5), Monthly: some(4),
		Zone: zones[r.IntN(len(zones))],
	}
	if r.IntN(3) == 0 {
		rules.Floor = new(r.IntN(4))
	}
	if r.IntN(3) == 0 {
		rules.MaxShare = new(float64(r.IntN(11)) / 10)
	}
	return all, rules, now
}

func TestThePlanIsThatOfAnIndependentPlanner(t *testing.T) {
	histories, removed := 20_000, 0
	if raceDetector && os.Getenv("RETENTION_ORACLE") != "full" {
		histories = 1_000
	}
	for seed := range uint64(histories) {
		all, rules, now := history(rand.New(rand.NewPCG(seed, 7)))
		plan, err := retention.Make(all, rules, now)
		if err != nil {
			continue // no rule at all was drawn
		}
		var got []string
		for _, d := range plan.Removals() {
			got = append(got, d.Name)
		}
		removed += len(got)
		slices.Sort(got)
		if want := oracle(all, rules, now); !slices.Equal(got, want) {
			t.Fatalf("seed %d, %+v at %v:\ngot  %v\nwant %v", seed, rules, now, got, want)
		}
		if want := mistake(all, got, rules, now); want != (plan.Implausible != "") {
			t.Fatalf("seed %d, %+v at %v: a mistake is %v, the plan says %q", seed, rules, now, want, plan.Implausible)
		}
		holds(t, seed, all, rules, now, plan)
	}
	if removed < histories {
		t.Errorf("only %d copies were removed in %d histories: nothing was tried", removed, histories)
	}
}

// holds checks what is true of every plan.
func holds(t *testing.T, seed uint64, all []retention.Copy, rules retention.Rules, now time.Time, plan retention.Plan) {
	t.Helper()
	byName := map[string]retention.Copy{}
	left := map[string]int{}
	for _, c := range all {
		byName[c.Name] = c
	}
	if len(plan.Decisions) != len(all) {
		t.Fatalf("seed %d: %d decisions over %d copies", seed, len(plan.Decisions), len(all))
	}
	good := map[string]int{}
	for _, d := range plan.Decisions {
		c := byName[d.Name]
		word := "kept"
		if !d.Keep {
			word = "removed by "
		}
		if c.State == retention.Going && !c.Foreign {
			word = "left: "
		}
		if !strings.HasPrefix(d.Reason, word) {
			t.Fatalf("seed %d: %s has the reason %q", seed, d.Name, d.Reason)
		}
		if !d.Keep && (c.State != retention.Good || c.Pinned || c.Foreign || c.InUse != "") {
			t.Fatalf("seed %d: %+v is removed", seed, c)
		}
		if counts(c, now) {
			good[c.Source+"/"+c.UID]++
			if d.Keep {
				left[c.Source+"/"+c.UID]++
			}
		}
	}
	floor := 1
	if rules.Floor != nil {
		floor = *rules.Floor
	}
	for source, n := range good {
		if left[source] < min(n, floor) {
			t.Fatalf("seed %d: %d good copies of %s are left, the floor is %d", seed, left[source], source, floor)
		}
	}
	// A run that was interrupted is finished by the next: what is left of the plan is the plan of what is left.
	gone := plan.Removals()
	if len(gone) == 0 {
		return
	}
	half := map[string]bool{}
	for _, d := range gone[:len(gone)/2] {
		half[d.Name] = true
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(c retention.Copy) bool { return half[c.Name] })
	again, err := retention.Make(rest, rules, now)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	name := func(all []retention.Decision) (names []string) {
		for _, d := range all {
			names = append(names, d.Name)
		}
		return names
	}
	if got, want := name(again.Removals()), name(gone[len(gone)/2:]); !slices.Equal(got, want) {
		t.Fatalf("seed %d: after half of it, the plan is %v and not %v", seed, got, want)
	}
	if again.Implausible != "" && plan.Implausible == "" {
		t.Fatalf("seed %d: half of a plausible plan is %s", seed, again.Implausible)
	}
}
