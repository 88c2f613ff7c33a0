package firing

import (
	"slices"
	"time"

	"slipway.dev/slipway/controlplane/internal/schedule"
)

// Coming is an instant that lies ahead.
type Coming struct {
	At, Due  time.Time // Due is moved by the spread
	Nominal  string
	Fires    bool   // false: the clocks jump over all that the rule names there
	Note     string // gap, overlap, or empty
	Blackout string // the one that covers it
}

// Preview lists the next instants after from, at most n, and says in plain words when the schedule fires.
func Preview(s Schedule, around Around, from time.Time, n int) (all []Coming, words string, err error) {
	if s.AnchorAt.IsZero() {
		s.AnchorAt = from
	}
	read, err := read(s, around)
	if err != nil {
		return nil, "", err
	}
	i, ok := read.Rule.Next(from)
	for ok && len(all) < n {
		next, more := read.Rule.Next(i.At)
		spread := s.Spread
		if more {
			spread = min(spread, next.At.Sub(i.At)) // runs never change places
		}
		c := Coming{At: i.At, Due: i.At, Nominal: nominal(i, s.Zone), Fires: i.Fires, Note: string(i.Note)}
		if i.Fires {
			c.Due = i.At.Add(schedule.Delay(s.ID, i.At, spread))
		}
		if which, _ := schedule.Covering(read.Blackouts, i.At); which != nil {
			c.Blackout = which.Name()
		}
		all = append(all, c)
		i, ok = next, more
	}
	return all, read.Rule.Explain(), nil
}

// Collision is a minute in which several schedules fire.
type Collision struct {
	Minute time.Time
	Count  int
	Names  []string // namespace/name, sorted; at most 20
}

// Collisions finds the minutes from from on and before to in which at least two of the schedules fire, the fullest first,
// at most so many. Schedules that are disabled or broken fire in none.
func Collisions(all []Schedule, from, to time.Time, most int) []Collision {
	const named = 20
	names := map[int64][]string{}
	for _, s := range all {
		if !s.Enabled {
			continue
		}
		read, err := read(s, Around{})
		if err != nil {
			continue
		}
		last := int64(-1)
		list, _ := read.Rule.Between(from, to, schedule.MaxListed)
		for _, i := range list {
			if minute := i.At.Unix() / 60; i.Fires && minute != last {
				last = minute
				names[minute] = append(names[minute], s.Namespace+"/"+s.Name)
			}
		}
	}
	var out []Collision
	for minute, who := range names {
		if len(who) > 1 {
			slices.Sort(who)
			out = append(out, Collision{Minute: time.Unix(minute*60, 0).UTC(), Count: len(who), Names: who[:min(len(who), named)]})
		}
	}
	slices.SortFunc(out, func(a, b Collision) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return a.Minute.Compare(b.Minute)
	})
	return out[:min(len(out), most)]
}
