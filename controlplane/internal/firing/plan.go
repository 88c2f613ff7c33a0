package firing

import (
	"fmt"
	"slices"
	"time"

	"slipway.dev/slipway/controlplane/internal/schedule"
)

// Fire is one instant of a schedule and what becomes of it.
type Fire struct {
	At      time.Time
	Nominal string // its wall times, with offset and zone
	Outcome string
	Why     string
	Submit  bool // a Task is to be stored
	Wait    bool // only once the schedule's live Tasks have ended
}

// Decision is what one look at a schedule decided.
type Decision struct {
	Fires      []Fire
	Considered time.Time // up to here every instant is decided; zero: as before
	Next       time.Time // when to look again; zero: never
	Broken     string    // why it cannot fire
	Waits      string    // why nothing fires before Next, where that is to be said
}

// Refused is the outcome of an instant whose Task a rule or a missing right kept out.
const Refused = "refused"

// Decide looks at a schedule at now, the database's time. What refuses its rights, where something does, refuses each fire.
func Decide(s Schedule, around Around, now time.Time, refusal string) Decision {
	read, err := read(s, around)
	if err != nil {
		return Decision{Broken: err.Error()}
	}
	p := read.Plan(now)
	d := Decision{Considered: p.Last, Next: p.Due, Waits: p.Waits}
	for _, e := range p.Entries {
		f := Fire{At: e.At, Nominal: nominal(e.Instant, s.Zone), Outcome: string(e.Outcome), Why: e.Why}
		if e.Count > 1 {
			f.Nominal = fmt.Sprintf("%d instants from %s to %s", e.Count, e.First.Format(time.RFC3339), e.At.Format(time.RFC3339))
		}
		if e.Outcome == schedule.Fired {
			f.Submit, f.Wait = true, e.Replace || waits(read.Policy.Overlap)
			if refusal != "" {
				f.Submit, f.Outcome, f.Why = false, Refused, refusal
			}
		}
		d.Fires = append(d.Fires, f)
	}
	return d
}

func waits(o schedule.OverlapPolicy) bool {
	return o == schedule.OverlapQueue || o == schedule.OverlapReplace
}

func nominal(i schedule.Instant, zone string) string {
	text := i.Wall + i.Offset + " " + zone
	switch {
	case i.Note == schedule.NoteGap && i.Jumped.Count > 1:
		text += fmt.Sprintf(" (the clock jumped over %d times from %s to %s)", i.Jumped.Count, i.Jumped.First, i.Jumped.Last)
	case i.Note == schedule.NoteGap:
		text += " (the clock jumped over " + i.Jumped.First + ")"
	case i.Note == schedule.NoteOverlap:
		text += " (a time that the clock shows twice)"
	}
	return text
}

// Hand is what somebody asked for by hand: one run now, or the instants of a range.
type Hand struct {
	Range       bool
	From, To    time.Time // of a range: To is not in it
	Most        int       // of a range: at most so many
	NewestFirst bool
	Overlap     string // of a range: instead of the schedule's; empty: the schedule's
	Done        []time.Time
}

// ByHand decides what somebody asked for. A schedule that is broken can be run, and not replayed.
func ByHand(s Schedule, around Around, now time.Time, h Hand) Decision {
	overlap := schedule.OverlapPolicy(s.Overlap)
	if h.Overlap != "" {
		overlap = schedule.OverlapPolicy(h.Overlap)
	}
	var d Decision
	if !h.Range {
		d.Fires = []Fire{{At: unusual(now), Nominal: wall(now, s.Zone), Why: "run by hand"}}
	} else {
		read, err := read(s, around)
		if err != nil {
			return Decision{Broken: err.Error()}
		}
		d.Fires = replayed(read.Rule, s.Zone, now, h)
	}
	live := len(s.Live)
	for i := range d.Fires {
		f := &d.Fires[i]
		if forbidden := overlap == schedule.OverlapForbid || overlap == ""; forbidden && live > 0 || live >= schedule.MaxLive {
			f.Outcome, f.Why = string(schedule.Forbidden), fmt.Sprintf("%d runs before have not ended", live)
			continue
		}
		f.Outcome, f.Submit, f.Wait = string(schedule.Fired), true, waits(overlap)
		live++
	}
	return d
}

// replayed are the instants of a range that have not fired yet and were due before now.
func replayed(rule *schedule.Rule, zone string, now time.Time, h Hand) (all []Fire) {
	to := h.To
	if to.After(now) {
		to = now
	}
	list, _ := rule.Between(h.From, to, schedule.MaxListed)
	for _, i := range list {
		if i.Fires && !slices.ContainsFunc(h.Done, i.At.Equal) {
			all = append(all, Fire{At: i.At, Nominal: nominal(i, zone), Why: "replayed by hand"})
		}
	}
	if h.NewestFirst {
		slices.Reverse(all)
	}
	return all[:min(len(all), h.Most)]
}

// unusual is now as no rule names it: rules name whole seconds.
func unusual(now time.Time) time.Time {
	at := now.Truncate(time.Microsecond)
	if at.Nanosecond() == 0 {
		at = at.Add(time.Microsecond)
	}
	return at
}

func wall(at time.Time, zone string) string {
	in, err := schedule.LoadZone(zone)
	if err != nil {
		in = time.UTC
	}
	return at.In(in).Format("2006-01-02T15:04:05-07:00") + " " + in.String()
}
