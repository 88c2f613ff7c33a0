package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of an interval.
const (
	MinEvery = time.Second
	MaxEvery = 366 * 24 * time.Hour
)

// Spec is a rule as it is written and stored: Cron or Every, not both.
type Spec struct {
	Cron   string        // five fields, or @daily and the like
	Zone   string        // IANA name; needed with Cron, UTC if empty with Every
	Every  time.Duration // whole seconds, MinEvery to MaxEvery
	Anchor time.Time     // what Every is counted from: the first instant; cut to the second
}

// Rule is when: a parsed Spec. It never changes and may be shared.
type Rule struct {
	clock  clock // where every is 0
	zone   *time.Location
	every  int64 // seconds
	anchor int64 // unix
}

// Parse reads a Spec. Its error is an [InvalidError] that names /cron, /zone, /every or /anchor. What it accepts fires
// again within nine years of any instant.
func Parse(s Spec) (*Rule, error) {
	var w wrong
	r := &Rule{zone: time.UTC}
	switch {
	case s.Cron == "" && s.Every == 0:
		w.add("/cron", "is missing; give cron, or every for a plain interval")
	case s.Cron != "" && s.Every != 0:
		w.add("/every", "may not stand beside cron; give one of the two")
	case s.Cron != "":
		c, err := parseCron(s.Cron)
		if err != nil {
			w.add("/cron", "%s", err.Error())
		}
		r.clock = c
	default:
		checkEvery(s.Every, &w)
		if s.Anchor.IsZero() || !inRange(s.Anchor.Unix()) {
			w.add("/anchor", "is missing or outside the years 1 to 9999; an interval is counted from a stored instant")
		}
		r.every, r.anchor = int64(s.Every/time.Second), s.Anchor.Unix()
	}
	if s.Zone != "" || s.Cron != "" {
		zone, err := LoadZone(s.Zone)
		var invalid *InvalidError
		switch {
		case errors.As(err, &invalid):
			w = append(w, invalid.Fields...)
		case err != nil:
			return nil, err
		}
		r.zone = zone
	}
	if err := w.err(); err != nil {
		return nil, err
	}
	return r, nil
}

func checkEvery(every time.Duration, w *wrong) {
	switch {
	case every < MinEvery:
		w.add("/every", "is less than a second; the shortest interval is 1 s")
	case every > MaxEvery:
		w.add("/every", "is more than 366 days; use cron for dates")
	case every%time.Second != 0:
		w.add("/every", "is not in whole seconds; round it")
	}
}

// ParseEvery reads an interval as people write it: numbers with d, h, m or s, the largest first, each once: 5s, 1h30m,
// 2d. Its error is an [InvalidError] for /every; so are the bounds of [Spec].
func ParseEvery(text string) (time.Duration, error) {
	var w wrong
	every, ok := readEvery(text)
	if !ok {
		w.add("/every", "is no interval; write for example 30s, 5m, 1h30m or 2d")
	} else {
		checkEvery(every, &w)
	}
	return every, w.err()
}

func readEvery(text string) (time.Duration, bool) {
	const beyond = 2 * int64(MaxEvery/time.Second) // as good as anything larger
	rest := text
	var sum int64
	for _, u := range []struct {
		letter string
		long   int64
	}{{"d", day}, {"h", 60 * 60}, {"m", 60}, {"s", 1}} {
		digits, after, found := strings.Cut(rest, u.letter)
		if !found {
			continue
		}
		if len(digits) == 0 || len(digits) > 8 || strings.Trim(digits, "0123456789") != "" {
			return 0, false
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return 0, false
		}
		sum += min(n*u.long, beyond)
		rest = after
	}
	return time.Duration(sum) * time.Second, text != "" && rest == ""
}

// Zone is the rule's zone; UTC where none was given.
func (r *Rule) Zone() *time.Location { return r.zone }

// String is the rule in one line, the expression as it is understood: "30 2 * * * Europe/Berlin", "every 5s from …".
func (r *Rule) String() string {
	if r.every > 0 {
		return fmt.Sprintf("every %s from %s", spoken(time.Duration(r.every)*time.Second), time.Unix(r.anchor, 0).UTC().Format(time.RFC3339))
	}
	return r.clock.text + " " + r.zone.String()
}
