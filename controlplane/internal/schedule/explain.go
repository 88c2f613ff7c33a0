package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	monthNames = []string{"", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}
	dayNames   = []string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
)

// Explain says in plain English when the rule fires, and what it does when clocks change.
func (r *Rule) Explain() string {
	if r.every > 0 {
		return fmt.Sprintf("Every %s, counted from %s. Changes of clocks do not matter.",
			spoken(time.Duration(r.every)*time.Second), time.Unix(r.anchor, 0).UTC().Format(time.RFC3339))
	}
	text := r.clock.times() + ", " + r.clock.days() + r.clock.months() + ", " + r.zone.String() + " time."
	if r.fixedOffset() {
		return text
	}
	if r.clock.real {
		return text + " Where clocks change it fires at each time that the clock shows: twice in a repeated hour, not at all for times left out."
	}
	return text + " Where clocks change it fires once: right after a gap that leaves it out, at the first pass of a repeated hour."
}

// fixedOffset says that the zone has no change of clocks ahead of the middle of 2030.
func (r *Rule) fixedOffset() bool {
	_, to := time.Date(2030, time.June, 15, 0, 0, 0, 0, r.zone).ZoneBounds()
	return to.IsZero()
}

func (c *clock) times() string {
	minutes, hours := values(c.minute), values(c.hour)
	fields := strings.Fields(c.text)
	everyHour := len(hours) == 24
	switch {
	case everyHour && len(minutes) == 60:
		return "Every minute"
	case everyHour && even(minutes, 60):
		return fmt.Sprintf("Every %d minutes", minutes[1]-minutes[0]) + offset(minutes[0])
	case everyHour:
		return "At " + numbers("minute", minutes) + " of every hour"
	case len(minutes) == 1 && even(hours, 24) && strings.Contains(fields[1], "/"):
		return fmt.Sprintf("Every %d hours at minute %d, from %02d:%02d on", hours[1]-hours[0], minutes[0], hours[0], minutes[0])
	case len(minutes)*len(hours) <= 6:
		var at []string
		for _, h := range hours {
			for _, m := range minutes {
				at = append(at, fmt.Sprintf("%02d:%02d", h, m))
			}
		}
		return "At " + and(at)
	case len(minutes) == 60:
		return "Every minute of " + numbers("hour", hours)
	}
	return "At " + numbers("minute", minutes) + " of " + numbers("hour", hours)
}

func offset(first int) string {
	if first == 0 {
		return ""
	}
	return fmt.Sprintf(" from minute %d on", first)
}

// even says that the values go round with one step.
func even(of []int, round int) bool {
	if len(of) < 2 {
		return false
	}
	step := of[1] - of[0]
	for i := 1; i < len(of); i++ {
		if of[i]-of[i-1] != step {
			return false
		}
	}
	return of[0]+round-of[len(of)-1] == step
}

func (c *clock) days() string {
	dom := "on " + numbers("day", values(c.dom)) + " of the month"
	var named []string
	week := values(c.dow)
	if len(week) > 1 && week[0] == 0 { // Sunday last, as in a calendar
		week = append(week[1:], 7)
	}
	for _, run := range runs(week) {
		named = append(named, spell(run, func(n int) string { return dayNames[n%7] }))
	}
	dow := "on " + and(named)
	switch {
	case c.anyDom && c.anyDow:
		return "every day"
	case c.anyDow:
		return dom
	case c.anyDom:
		return dow
	}
	return dom + " or " + dow + " (either is enough)"
}

func (c *clock) months() string {
	all := values(c.month)
	if len(all) == 12 {
		return ""
	}
	var named []string
	for _, run := range runs(all) {
		named = append(named, spell(run, func(n int) string { return monthNames[n] }))
	}
	return ", in " + and(named)
}

// values are the numbers of a set.
func values(set uint64) []int {
	var out []int
	for ; set != 0; set &= set - 1 {
		out = append(out, bits.TrailingZeros64(set))
	}
	return out
}

// runs groups neighbours.
func runs(of []int) [][2]int {
	var out [][2]int
	for _, n := range of {
		if last := len(out) - 1; last >= 0 && out[last][1] == n-1 {
			out[last][1] = n
		} else {
			out = append(out, [2]int{n, n})
		}
	}
	return out
}

func spell(run [2]int, name func(int) string) string {
	switch run[1] - run[0] {
	case 0:
		return name(run[0])
	case 1:
		return name(run[0]) + " and " + name(run[1])
	}
	return name(run[0]) + " to " + name(run[1])
}

// numbers writes "minute 5" or "minutes 0 to 10 and 30"; long lists are cut.
func numbers(unit string, of []int) string {
	if len(of) == 1 {
		return unit + " " + strconv.Itoa(of[0])
	}
	var parts []string
	for _, run := range runs(of) {
		if run[1]-run[0] == 1 {
			parts = append(parts, strconv.Itoa(run[0]), strconv.Itoa(run[1]))
			continue
		}
		parts = append(parts, spell(run, strconv.Itoa))
	}
	if len(parts) > 8 {
		return fmt.Sprintf("%ss %s, … %s (%d in all)", unit, strings.Join(parts[:4], ", "), parts[len(parts)-1], len(of))
	}
	return unit + "s " + and(parts)
}

func and(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(slices.Clone(parts[:last]), ", ") + " and " + parts[last]
}

// spoken is a duration as people write it: 1h30m, 2d, 0.4s.
func spoken(d time.Duration) string {
	if d < 0 {
		return "-" + spoken(-d)
	}
	if d < 10*time.Second && d%time.Second != 0 {
		return d.Round(100 * time.Millisecond).String()
	}
	d = d.Round(time.Second)
	var text strings.Builder
	for _, u := range []struct {
		letter string
		long   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if n := d / u.long; n > 0 {
			fmt.Fprintf(&text, "%d%s", n, u.letter)
			d %= u.long
		}
	}
	if text.Len() == 0 {
		return "0s"
	}
	return text.String()
}
