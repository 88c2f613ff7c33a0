package schedule

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds of blackouts.
const (
	MinBlackout  = time.Minute
	MaxBlackout  = 31 * 24 * time.Hour // of a recurring one
	MaxBlackouts = 50                  // that one schedule may have, those of its namespace and the global ones included
)

// BlackoutSpec is a blackout as it is written and stored: From and To once, or Cron, Zone and For again and again.
type BlackoutSpec struct {
	Name       string
	From, To   time.Time     // From is in it, To is not
	Cron, Zone string        // each start
	For        time.Duration // elapsed time from each start, MinBlackout to MaxBlackout
}

// Blackout is a parsed BlackoutSpec: a time in which nothing fires.
type Blackout struct {
	name     string
	from, to time.Time
	starts   *Rule // nil where it is once
	long     int64 // seconds
}

// ParseBlackout reads a BlackoutSpec. Its error is an [InvalidError] that names /name, /from, /to, /cron, /zone or /for.
func ParseBlackout(s BlackoutSpec) (*Blackout, error) {
	var w wrong
	b := &Blackout{name: s.Name, from: s.From, to: s.To, long: int64(s.For / time.Second)}
	if s.Name == "" {
		w.add("/name", "is missing; the ledger says which blackout it was")
	}
	once, again := !s.From.IsZero() || !s.To.IsZero(), s.Cron != "" || s.For != 0
	switch {
	case once && again:
		w.add("/cron", "may not stand beside from and to; give cron and for, or from and to")
	case again:
		starts, err := Parse(Spec{Cron: s.Cron, Zone: s.Zone})
		var invalid *InvalidError
		switch {
		case errors.As(err, &invalid):
			w = append(w, invalid.Fields...)
		case err != nil:
			return nil, err
		}
		b.starts = starts
		if s.For < MinBlackout || s.For > MaxBlackout || s.For%time.Second != 0 {
			w.add("/for", "is not between 1 minute and 31 days in whole seconds; give how long it lasts from each start")
		}
	case !once:
		w.add("/from", "is missing; give from and to, or cron and for")
	case s.From.IsZero():
		w.add("/from", "is missing beside to")
	case s.To.IsZero():
		w.add("/to", "is missing beside from")
	case !s.To.After(s.From):
		w.add("/to", "is not after from")
	}
	if err := w.err(); err != nil {
		return nil, err
	}
	return b, nil
}

// Name is how the ledger calls it.
func (b *Blackout) Name() string { return b.name }

// Covers says whether t lies in the blackout, and until when it does at least: another window may follow at once.
func (b *Blackout) Covers(t time.Time) (until time.Time, ok bool) {
	if b.starts == nil {
		return b.to, !t.Before(b.from) && t.Before(b.to)
	}
	at := t.Unix()
	if !b.covers(at) {
		return time.Time{}, false
	}
	// Windows that overlap end with the one that began last. Of a month's lines few are gaps.
	starts, _ := b.starts.newest(at-b.long, at, 8)
	for _, l := range slices.Backward(starts) {
		if l.fires {
			return time.Unix(l.at+b.long, 0).UTC(), true
		}
	}
	return time.Time{}, false
}

func (b *Blackout) covers(at int64) bool {
	if b.starts == nil {
		_, ok := b.Covers(time.Unix(at, 0))
		return ok
	}
	for w := b.starts.walk(at-b.long+1, at+1); ; {
		l, ok := w.next()
		if !ok || l.fires {
			return ok
		}
	}
}

// blackedOut gives the first blackout that covers the second at.
func blackedOut(all []*Blackout, at int64) *Blackout {
	for _, b := range all {
		if b.covers(at) {
			return b
		}
	}
	return nil
}

// Covering gives the first of the blackouts that covers t, and until when; nil where none does.
func Covering(all []*Blackout, t time.Time) (which *Blackout, until time.Time) {
	for _, b := range all {
		if until, ok := b.Covers(t); ok {
			return b, until
		}
	}
	return nil, time.Time{}
}

func (b *Blackout) String() string {
	if b.starts == nil {
		return fmt.Sprintf("%s: %s to %s", b.name, b.from.UTC().Format(time.RFC3339), b.to.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s: %s for %s", b.name, b.starts, spoken(time.Duration(b.long)*time.Second))
}
