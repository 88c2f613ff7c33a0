package schedule

import (
	"fmt"
	"time"
)

// Note says what a change of the clocks did to an Instant.
type Note string

// What a change of the clocks does.
const (
	NoteNone    Note = ""
	NoteGap     Note = "gap"     // the clock jumped over wall times that the rule names, right before this instant
	NoteOverlap Note = "overlap" // the clock shows this wall time twice
)

// wallLayout is how a wall time is written: without a zone, for it may not exist.
const wallLayout = "2006-01-02T15:04:05"

// Instant is one moment of a Rule: it fires then, or (Fires is false) the clocks jumped over all that it names there.
type Instant struct {
	At     time.Time // UTC, whole seconds
	Wall   string    // the wall time it was meant for, as 2026-03-29T02:30:00: in a gap one that no clock shows
	Offset string    // of the zone from UTC at that instant, as +02:00
	Fires  bool
	Note   Note
	Jumped Jumped // where Note is gap
}

// Jumped are the wall times of a Rule that do not exist.
type Jumped struct {
	First, Last string
	Count       int64
}

// Next gives the first instant after that one, gap lines included; false if there is none within nine years. Nothing that
// [Parse] accepts is without one before the year 9990.
func (r *Rule) Next(after time.Time) (Instant, bool) {
	from := after.Unix() + 1
	if l, ok := r.walk(from, from+horizon).next(); ok {
		return r.instant(l), true
	}
	return Instant{}, false
}

// MaxListed is the most instants that [Rule.Between] gives at once.
const MaxListed = 10_000

// Between lists the instants from from on and before to, at most n of them (and at most MaxListed), gap lines included.
// More says that there are others; go on from the second after the last one.
func (r *Rule) Between(from, to time.Time, n int) (list []Instant, more bool) {
	limit := ceil(to)
	w := r.walk(ceil(from), limit)
	for n = min(n, MaxListed); ; {
		l, ok := w.next()
		if !ok {
			return list, false
		}
		if len(list) >= n {
			return list, true
		}
		list = append(list, r.instant(l))
	}
}

// Count counts the instants from from on and before to, gap lines included, without listing them.
func (r *Rule) Count(from, to time.Time) int64 { return r.tally(ceil(from), ceil(to)) }

// ceil is the first whole second that is not before t.
func ceil(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

func (r *Rule) instant(l line) Instant {
	at := time.Unix(l.at, 0)
	i := Instant{At: at.UTC(), Wall: wallText(l.wall), Offset: at.In(r.zone).Format("-07:00"), Fires: l.fires}
	switch {
	case l.jumped > 0:
		i.Note = NoteGap
		i.Jumped = Jumped{First: wallText(l.first), Last: wallText(l.last), Count: l.jumped}
	case l.twice:
		i.Note = NoteOverlap
	}
	return i
}

func wallText(wall int64) string { return time.Unix(wall, 0).UTC().Format(wallLayout) }

// String is the instant for people: 2026-03-29T01:00:00Z (2026-03-29T02:30:00 +02:00, gap).
func (i Instant) String() string {
	note := ""
	if i.Note != NoteNone {
		note = ", " + string(i.Note)
	}
	return fmt.Sprintf("%s (%s %s%s)", i.At.Format(time.RFC3339), i.Wall, i.Offset, note)
}
