package schedule

import (
	"fmt"
	"time"
)

// Outcome is what became of an Instant.
type Outcome string

// The outcomes.
const (
	Fired      Outcome = "fired"       // a Task is made for it
	Missed     Outcome = "missed"      // it was wanted and came too late: past its window, older than Within, beyond UpTo
	Skipped    Outcome = "skipped"     // the schedule's own policy leaves it out
	BlackedOut Outcome = "blacked_out" // it lies in a blackout
	Forbidden  Outcome = "forbidden"   // an earlier run has not ended
	Gap        Outcome = "gap"         // the clocks jumped over all that the rule names there
)

// Schedule is what a look needs to know of one: its row, read under its lock.
type Schedule struct {
	ID        string // what the spread is drawn from
	Rule      *Rule
	Policy    Policy // one that Check accepts
	Blackouts []*Blackout
	Enabled   bool
	Since     time.Time // since when it is enabled and has this rule: nothing up to then is owed
	Last      time.Time // the last instant that was settled; zero before the first
	Live      int       // Tasks of the schedule that have not ended
}

// Entry is one line of the ledger.
type Entry struct {
	Instant
	Outcome Outcome
	Why     string
	Late    time.Duration // from when it was due until the look; 0 where it did not fire
	Replace bool          // the Tasks that have not ended are to be canceled first
	Count   int64         // 1, or how many instants from First to At the line stands for
	First   time.Time     // where Count is more than 1
}

// Plan is what one look decides. It is to be stored whole, in one transaction.
type Plan struct {
	Entries []Entry   // oldest first, no two at the same instant, at most MaxLines and one
	Last    time.Time // to be stored as Schedule.Last
	Next    Instant   // the next line, where Due is set
	Due     time.Time // when to look again: after now, or zero for never
	Waits   string    // why nothing can fire before Due although the schedule is enabled, or why it never will; mostly empty
}

// Plan looks at the schedule at now, the database's time. Looking again with what it gave, at the same now, gives nothing
// more. Its cost is bounded: by MaxLines, and by the days (not the instants) since the last look.
func (s Schedule) Plan(now time.Time) Plan {
	plan := Plan{Last: s.Last}
	if !s.Enabled {
		plan.Waits = "the schedule is disabled"
		return plan
	}
	after := max(s.Since.Unix(), s.Last.Unix())
	lines, older := s.Rule.newest(after, now.Unix(), MaxLines)
	if n := len(lines); n > 0 && s.due(lines[n-1]).After(now) {
		lines = lines[:n-1] // the spread still holds it back
	}
	if len(lines) == 0 {
		s.ahead(&plan, after, now)
		return plan
	}
	l := look{Schedule: s, now: now, lines: lines}
	entries := l.decide()
	if which, until := Covering(s.Blackouts, now); which != nil && fires(entries) {
		plan.Due = until
		if next, ok := s.Rule.walk(after+1, after+1+horizon).next(); ok {
			plan.Next = s.Rule.instant(next)
		}
		plan.Waits = fmt.Sprintf("what is due waits for the end of blackout %s at %s", which.name, until.UTC().Format(time.RFC3339))
		return plan
	}
	if older > 0 {
		entries = append([]Entry{l.counted(after, older)}, entries...)
	}
	plan.Entries = entries
	plan.Last = entries[len(entries)-1].At
	s.ahead(&plan, plan.Last.Unix(), now)
	return plan
}

// ahead fills in what comes after the settled instants.
func (s *Schedule) ahead(plan *Plan, after int64, now time.Time) {
	next, ok := s.Rule.walk(after+1, max(after, now.Unix())+1+horizon).next()
	if !ok {
		plan.Waits = "no instant is left"
		return
	}
	plan.Next, plan.Due = s.Rule.instant(next), s.due(next)
	if back := time.Unix(after, 0).Sub(now); back > time.Second {
		plan.Waits = fmt.Sprintf("the clock stands %s before %s, up to which every instant is settled",
			spoken(back), time.Unix(after, 0).UTC().Format(time.RFC3339))
	}
}

func fires(entries []Entry) bool {
	for _, e := range entries {
		if e.Outcome == Fired {
			return true
		}
	}
	return false
}

// look is one pass over the lines that are due.
type look struct {
	Schedule
	now   time.Time
	lines []line
}

func (l *look) decide() []Entry {
	entries := make([]Entry, len(l.lines))
	var wanted []int // that neither a gap nor a blackout takes away
	for i, at := range l.lines {
		entries[i] = Entry{Instant: l.Rule.instant(at), Count: 1}
		e := &entries[i]
		if !at.fires {
			e.Outcome, e.Why = Gap, fmt.Sprintf("the clock jumped over %s to %s", e.Jumped.First, e.Jumped.Last)
		} else if b := blackedOut(l.Blackouts, at.at); b != nil {
			e.Outcome, e.Why = BlackedOut, "in blackout "+b.name
		} else {
			wanted = append(wanted, i)
		}
	}
	var runs []*Entry
	for n, i := range wanted {
		e := &entries[i]
		late := l.now.Sub(l.due(l.lines[i]))
		e.Outcome, e.Why = l.late(late, len(wanted)-1-n)
		if e.Outcome == Fired {
			e.Late = late
			runs = append(runs, e)
		}
	}
	l.overlap(runs)
	return entries
}

// late applies window and missed policy to a run that is so late and has so many newer ones that are due as well.
func (l *look) late(late time.Duration, newer int) (Outcome, string) {
	p := l.Policy
	window, limited := p.window()
	if limited && late > window && p.Missed != MissedSkip {
		return Missed, fmt.Sprintf("%s late, and the start window is %s", spoken(late), spoken(window))
	}
	switch p.Missed {
	case MissedSkip:
		if newer > 0 || late > window {
			return Skipped, fmt.Sprintf("%s late, and missed runs are skipped", spoken(late))
		}
	case MissedAll:
		if newer >= p.UpTo {
			return Missed, fmt.Sprintf("missed runs are made up to the number of %d, and %d newer ones are due", p.UpTo, newer)
		}
	case MissedWithin:
		if late > p.Within {
			return Missed, fmt.Sprintf("%s late, and missed runs are made up within %s", spoken(late), spoken(p.Within))
		}
	default:
		if newer > 0 {
			return Skipped, "only the newest of what is due is run"
		}
	}
	if newer > 0 || late > SkipWindow {
		return Fired, fmt.Sprintf("made up, %s late", spoken(late))
	}
	return Fired, "on time"
}

// overlap takes away those runs that may not stand beside others.
func (l *look) overlap(runs []*Entry) {
	live := l.Live
	for i, e := range runs {
		if l.Policy.Overlap == OverlapReplace && i < len(runs)-1 {
			e.refuse(Skipped, "a later one that is due as well replaces it")
			continue
		}
		verdict := l.Policy.Admit(live)
		switch {
		case verdict.Run:
			e.Replace = verdict.Replace
			live++
		case l.Live == 0 && live == 1:
			e.refuse(Forbidden, "an earlier one that was due as well has just begun")
		default:
			e.refuse(Forbidden, verdict.Why)
		}
	}
}

func (e *Entry) refuse(outcome Outcome, why string) {
	e.Outcome, e.Why, e.Late = outcome, why, 0
}

// counted is the one line for the instants before those that are listed. None of them runs.
func (l *look) counted(after, older int64) Entry {
	first, _ := l.Rule.walk(after+1, l.lines[0].at).next()
	before, _ := l.Rule.newest(after, l.lines[0].at-1, 1)
	last := before[len(before)-1]
	e := Entry{Instant: l.Rule.instant(last), Count: older, First: time.Unix(first.at, 0).UTC()}
	if e.Outcome, e.Why = l.late(l.now.Sub(l.due(last)), MaxLines); e.Outcome == Fired {
		e.Outcome, e.Why = Missed, fmt.Sprintf("no more than the newest %d are made up", MaxLines)
	}
	e.Why = "counted, not listed: " + e.Why
	return e
}

// String is the entry for people.
func (e Entry) String() string {
	if e.Count > 1 {
		return fmt.Sprintf("%s %d from %s to %s: %s", e.Outcome, e.Count, e.First.Format(time.RFC3339), e.Instant, e.Why)
	}
	return fmt.Sprintf("%s %s: %s", e.Outcome, e.Instant, e.Why)
}
