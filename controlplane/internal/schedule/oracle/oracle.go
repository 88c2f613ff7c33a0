// Package oracle is the slow second opinion that the tests of schedule compare with: it walks minute by minute, reads
// expressions by a parser of its own, and knows nothing of schedule or of robfig/cron. Only tests import it.
//
// Allowed imports: the standard library.
package oracle

import (
	"strconv"
	"strings"
	"time"
)

// Line is one instant: the rule fires, or the clock jumped over all that it names.
type Line struct {
	At     int64 // unix
	Fires  bool
	Jumped int  // wall times that the rule names and no clock shows
	Twice  bool // the wall time is shown twice; not where something was jumped over
}

// minute is one minute of real time, by the wall.
type minute struct {
	at, wall int64
	m        [5]int // minute, hour, day, month, weekday
}

// Window is a stretch of real time in one zone, walked once and asked about many expressions.
type Window struct {
	minutes []minute
	from    int
	high    []int64 // per minute: the largest wall time shown before it
	first   int64   // the smallest wall time that shown counts
	shown   []uint8 // how often each wall time is shown, from first on
}

// margin is how far around a window clocks are looked at: further than any offset goes.
const margin = 27 * 60

// NewWindow walks from (a whole minute) on and before to.
func NewWindow(zone *time.Location, from, to time.Time) *Window {
	high := int64(-1 << 62)
	end := to.Unix() + margin*60
	w := &Window{from: margin, first: from.Unix() - 2*margin*60}
	w.shown = make([]uint8, (end-w.first)/60+margin)
	for at := from.Unix() - margin*60; at < end; at += 60 {
		_, offset := time.Unix(at, 0).In(zone).Zone()
		wall := at + int64(offset)
		w.shown[(wall-w.first)/60]++
		if at < to.Unix() {
			w.minutes = append(w.minutes, minute{at: at, wall: wall, m: parts(wall)})
			w.high = append(w.high, high)
		}
		high = max(high, wall)
	}
	return w
}

func parts(wall int64) [5]int {
	t := time.Unix(wall, 0).UTC()
	return [5]int{t.Minute(), t.Hour(), t.Day(), int(t.Month()), int(t.Weekday())}
}

// Lines gives what the expression does in the window.
func (w *Window) Lines(expression string) []Line {
	e := read(expression)
	var out []Line
	for i := w.from; i < len(w.minutes); i++ {
		now := w.minutes[i]
		jumped := 0
		for wall := w.high[i] + 60; wall < now.wall; wall += 60 {
			if e.names(parts(wall)) {
				jumped++
			}
		}
		named := e.names(now.m) && (e.real || now.wall > w.high[i])
		switch {
		case named:
			out = append(out, Line{At: now.at, Fires: true, Jumped: jumped, Twice: jumped == 0 && w.shown[(now.wall-w.first)/60] > 1})
		case jumped > 0:
			out = append(out, Line{At: now.at, Fires: !e.real, Jumped: jumped})
		}
	}
	return out
}

// expression is five lists, spelled out.
type expression struct {
	in         [5][]bool
	dom, dow   bool // limited
	real, both bool
}

func read(text string) expression {
	var e expression
	names := map[string]string{
		"JAN": "1", "FEB": "2", "MAR": "3", "APR": "4", "MAY": "5", "JUN": "6", "JUL": "7", "AUG": "8", "SEP": "9", "OCT": "10", "NOV": "11", "DEC": "12",
		"SUN": "0", "MON": "1", "TUE": "2", "WED": "3", "THU": "4", "FRI": "5", "SAT": "6",
	}
	first, last := [5]int{0, 0, 1, 1, 0}, [5]int{59, 23, 31, 12, 6}
	for i, field := range strings.Fields(text) {
		if i < 2 && strings.ContainsAny(field, "*?/") {
			e.real = true
		}
		e.in[i] = make([]bool, 64)
		for _, part := range strings.Split(strings.ToUpper(field), ",") {
			set, step := part, 1
			if s := strings.Split(part, "/"); len(s) == 2 {
				set, step = s[0], atoi(s[1])
			}
			lo, hi := first[i], last[i]
			if set != "*" && set != "?" {
				ends := strings.Split(set, "-")
				for k := range ends {
					if n, ok := names[ends[k]]; ok && (i == 3 || i == 4) {
						ends[k] = n
					}
				}
				lo = atoi(ends[0])
				switch {
				case len(ends) == 2:
					hi = atoi(ends[1])
				case !strings.Contains(part, "/"):
					hi = lo
				}
				if i == 4 && hi < lo {
					hi += 7 // FRI-SUN
				}
			}
			for n := lo; n <= hi; n += step {
				if i == 4 {
					e.in[i][n%7] = true
				} else {
					e.in[i][n] = true
				}
			}
		}
		every := strings.HasPrefix(field, "*") || strings.HasPrefix(field, "?")
		if _, step, ok := strings.Cut(field, "/"); ok && step != "1" {
			every = false
		}
		if i == 2 {
			e.dom = !every
		}
		if i == 4 {
			e.dow = !every
		}
	}
	e.both = e.dom && e.dow
	return e
}

func (e *expression) names(m [5]int) bool {
	if !e.in[0][m[0]] || !e.in[1][m[1]] || !e.in[3][m[3]] {
		return false
	}
	if e.both {
		return e.in[2][m[2]] || e.in[4][m[4]]
	}
	return e.in[2][m[2]] && e.in[4][m[4]]
}

func atoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic("the oracle reads only expressions of the tests: " + text)
	}
	return n
}
