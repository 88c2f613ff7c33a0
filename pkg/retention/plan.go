package retention

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Decision is what becomes of one copy, and why.
type Decision struct {
	Name   string    `json:"name"`
	Source string    `json:"source"`
	Taken  time.Time `json:"taken,omitzero"`
	Keep   bool      `json:"keep"`
	Reason string    `json:"reason"` // `kept by count 3, daily 7`, `removed by …`, `left: …`
}

// Plan is what becomes of all of them: one source after the other, the newest copy first.
type Plan struct {
	Decisions []Decision `json:"decisions"`
	Good      int        `json:"good"`   // copies that the rules looked at
	Remove    int        `json:"remove"` // those of them that go
	// Implausible says why somebody has to confirm the plan before it is carried out; empty: nobody has to.
	Implausible string `json:"implausible,omitempty"`
	// Warnings are about sources that are worse off than their rules want.
	Warnings []string `json:"warnings,omitempty"`
}

// Removals names the copies that go, the oldest first: whatever interrupts a run, the newest are there.
func (p Plan) Removals() []Decision {
	var all []Decision
	for _, d := range p.Decisions {
		if !d.Keep {
			all = append(all, d)
		}
	}
	slices.SortStableFunc(all, func(a, b Decision) int {
		return cmp.Or(a.Taken.Compare(b.Taken), strings.Compare(a.Name, b.Name))
	})
	return all
}

// Make plans. The error is a *FieldError. Copies of the same instant are ordered by their names.
func Make(copies []Copy, r Rules, now time.Time) (Plan, error) {
	zone, err := r.zone()
	if err != nil {
		return Plan{}, err
	}
	if err := checkCopies(copies); err != nil {
		return Plan{}, err
	}
	ordered := slices.Clone(copies)
	slices.SortFunc(ordered, func(a, b Copy) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.UID, b.UID), b.Taken.Compare(a.Taken), strings.Compare(b.Name, a.Name))
	})
	plan := Plan{Decisions: make([]Decision, 0, len(copies))}
	for len(ordered) > 0 {
		n := 1
		for n < len(ordered) && ordered[n].Source == ordered[0].Source && ordered[n].UID == ordered[0].UID {
			n++
		}
		planSource(ordered[:n], r, zone, now, &plan)
		ordered = ordered[n:]
	}
	return plan, nil
}

func checkCopies(copies []Copy) error {
	seen := make(map[string]bool, len(copies))
	for i, c := range copies {
		at := fmt.Sprintf("copies.%d.", i)
		switch {
		case c.Name == "":
			return &FieldError{at + "name", "is missing"}
		case seen[c.Name]:
			return &FieldError{at + "name", "stands twice"}
		case c.Source == "" && !c.Foreign:
			return &FieldError{at + "source", "is missing"}
		case c.State != Good && c.State != Unready && c.State != Failed && c.State != Going:
			return &FieldError{at + "state", "is none of good, unready, failed, going"}
		}
		seen[c.Name] = true
	}
	return nil
}

// planSource decides over the copies of one source, the newest first.
func planSource(copies []Copy, r Rules, zone *time.Location, now time.Time, plan *Plan) {
	k := newKeeper(r, zone, now)
	good, removed, ours := 0, 0, false
	for _, c := range copies {
		d := Decision{Name: c.Name, Source: c.Source, Taken: c.Taken, Keep: true}
		ours = ours || !c.Foreign
		if d.Reason = exempt(c, now); d.Reason == "" {
			good++
			plan.Good++
			by := k.keptBy(c)
			switch {
			case len(by) > 0:
				d.Reason = "kept by " + strings.Join(by, ", ")
			case c.InUse != "":
				d.Reason = "kept: in use by " + c.InUse
			default:
				d.Keep, d.Reason = false, "removed by "+k.rules
				removed++
			}
		}
		plan.Decisions = append(plan.Decisions, d)
	}
	plan.Remove += removed
	if plan.Implausible == "" {
		plan.Implausible = implausible(copies[0].Source, removed, good, r)
	}
	switch {
	case ours && good == 0:
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("%s has no good copy", copies[0].Source))
	case good > 0 && k.onlyFloor == good:
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("%s has no good copy but those that the floor keeps", copies[0].Source))
	}
}

// exempt says why the rules do not look at a copy; empty: they do.
func exempt(c Copy, now time.Time) string {
	switch {
	case c.Foreign:
		return "kept: not made under this rule"
	case c.State == Going:
		return "left: it is being deleted already"
	case c.Pinned:
		return "kept: pinned"
	case c.State == Failed:
		return "kept: it failed, and does not count"
	case c.State == Unready:
		return "kept: not ready yet, and does not count"
	case c.Taken.IsZero():
		return "kept: nobody knows when it was taken, it does not count"
	case c.Taken.After(now):
		return "kept: taken in the future, by a clock that is ahead; it does not count"
	}
	return ""
}

// keeper walks the good copies of one source, the newest first.
type keeper struct {
	r         Rules
	oldest    time.Time // by the rule of age
	seen      int
	calendar  []*periods
	rules     string // all of them, for who is kept by none
	onlyFloor int    // copies that nothing else keeps
}

// periods is one rule of the calendar on its way into the past.
type periods struct {
	rule string
	left int
	of   func(time.Time) string
	met  map[string]bool // where a clock goes back over midnight, a day comes twice
}

func newKeeper(r Rules, zone *time.Location, now time.Time) *keeper {
	k := &keeper{r: r, oldest: now.Add(-r.age())}
	var names []string
	if r.Count > 0 {
		names = append(names, fmt.Sprintf("count %d", r.Count))
	}
	if r.Age > 0 {
		names = append(names, "age "+r.age().String())
	}
	for _, p := range []struct {
		word string
		n    int
		of   func(time.Time) string
	}{{"hourly", r.Hourly, hour}, {"daily", r.Daily, day}, {"weekly", r.Weekly, week}, {"monthly", r.Monthly, month}} {
		if p.n == 0 {
			continue
		}
		rule := fmt.Sprintf("%s %d", p.word, p.n)
		names = append(names, rule)
		k.calendar = append(k.calendar, &periods{rule: rule, left: p.n, met: map[string]bool{}, of: func(t time.Time) string { return p.of(t.In(zone)) }})
	}
	if r.floor() > 0 {
		names = append(names, fmt.Sprintf("floor %d", r.floor()))
	}
	k.rules = strings.Join(names, ", ")
	return k
}

// keptBy names the rules that keep the next copy.
func (k *keeper) keptBy(c Copy) []string {
	k.seen++
	var by []string
	if k.seen <= k.r.Count {
		by = append(by, fmt.Sprintf("count %d", k.r.Count))
	}
	if k.r.Age > 0 && !c.Taken.Before(k.oldest) {
		by = append(by, "age "+k.r.age().String())
	}
	for _, p := range k.calendar {
		if period := p.of(c.Taken); !p.met[period] && p.left > 0 {
			p.met[period] = true
			p.left--
			by = append(by, p.rule+" ("+period+")")
		}
	}
	if len(by) == 0 && k.seen <= k.r.floor() {
		k.onlyFloor++
		by = append(by, fmt.Sprintf("floor %d", k.r.floor()))
	}
	return by
}

// The periods that an instant falls into, as the clock of its zone shows them. The offset tells the two passes of an hour
// that comes twice apart.
func hour(t time.Time) string { return t.Format("2006-01-02 15h -07:00") }
func day(t time.Time) string  { return t.Format("2006-01-02") }
func week(t time.Time) string {
	year, week := t.ISOWeek()
	return fmt.Sprintf("%d-W%02d", year, week)
}
func month(t time.Time) string { return t.Format("2006-01") }

// implausible says why what is planned for one source looks like a mistake. Each is judged by itself: many others that lose
// nothing hide nothing. A few removals are no mistake, however few there are: 3 copies of which 1 is kept.
func implausible(source string, removed, good int, r Rules) string {
	switch {
	case removed == 0:
		return ""
	case removed == good:
		return "it removes all good copies of " + source
	case removed >= FewRemoved && float64(removed) > r.maxShare()*float64(good):
		return fmt.Sprintf("it removes %d of %d good copies of %s, a larger share than %v", removed, good, source, r.maxShare())
	}
	return ""
}
