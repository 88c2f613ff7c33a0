package schedule

import (
	"math/bits"
	"time"
)

const (
	day     = 24 * 60 * 60
	firstAt = -62135596800  // the first second of year 1
	lastAt  = 253402300799  // the last second of year 9999
	horizon = 9 * 366 * day // 29 February comes back after eight years where a century is between
	settled = 2 * day       // wall clocks never differ by more from UTC, so no older pass matters
)

func inRange(t int64) bool { return t >= firstAt && t <= lastAt }

// segment is a stretch of time over which the zone's offset does not change. A wall time is seconds as if UTC.
type segment struct {
	start, end, offset int64
	shown              int64 // every wall time below this one was shown before start
}

// bounds gives the stretch around t. Go's ZoneBounds answers an end that is not after t on 31 December of leap years
// (with the built-in zone data: 2024, 2028, …); then the day's own end serves, and a stretch is merely cut in two.
func (r *Rule) bounds(t int64) (start, end, offset int64) {
	at := time.Unix(t, 0).In(r.zone)
	_, east := at.Zone()
	start, end = firstAt, lastAt+1
	from, to := at.ZoneBounds()
	midnight := t - mod(t, day)
	if !from.IsZero() {
		start = max(start, from.Unix())
	}
	if !to.IsZero() {
		end = min(end, to.Unix())
	}
	if start > t {
		start = midnight
	}
	if end <= t {
		end = midnight + day
	}
	return start, end, int64(east)
}

func (r *Rule) segment(t int64) segment {
	s := segment{}
	s.start, s.end, s.offset = r.bounds(t)
	s.shown = s.start + s.offset
	if s.start > firstAt {
		s.shown = firstAt - settled
		for at := s.start; at > max(firstAt, s.start-settled); {
			start, _, offset := r.bounds(at - 1)
			s.shown = max(s.shown, at+offset)
			at = start
		}
	}
	return s
}

// twice says whether the wall time that is shown at that second of s is shown at another one too.
func (r *Rule) twice(s segment, at, wall int64) bool {
	for t := s.end; t < min(at+settled, lastAt); {
		_, end, offset := r.bounds(t)
		if other := wall - offset; other >= t && other < end {
			return true
		}
		t = end
	}
	for t := s.start; t > max(at-settled, firstAt); {
		start, _, offset := r.bounds(t - 1)
		if other := wall - offset; other >= start && other < t {
			return true
		}
		t = start
	}
	return false
}

// line is an Instant in numbers.
type line struct {
	at, wall    int64
	fires       bool
	twice       bool
	first, last int64 // wall times that were jumped over
	jumped      int64
}

// walker goes over the lines of a rule from t on, up to and without limit.
type walker struct {
	r        *Rule
	seg      segment
	t, limit int64
}

func (r *Rule) walk(t, limit int64) *walker {
	return &walker{r: r, t: max(t, firstAt), limit: min(limit, lastAt)}
}

// next gives the next line. Each turn moves t on, or ends.
func (w *walker) next() (line, bool) {
	if w.r.every > 0 {
		return w.nextEvery()
	}
	for w.t < w.limit {
		if w.t >= w.seg.end || w.seg.end == 0 {
			w.seg = w.r.segment(w.t)
		}
		s, c := w.seg, w.r.clock
		from := w.t + s.offset
		if !c.real {
			from = max(from, s.shown)
		}
		wall, ok := c.nextWall(from, min(s.end, w.limit)+s.offset)
		if w.t == s.start {
			if l, gap := w.r.gap(s); gap {
				w.t = s.start + 1
				if ok && wall == s.start+s.offset {
					l.wall, l.fires = wall, true
				}
				return l, true
			}
		}
		if ok {
			at := wall - s.offset
			w.t = at + 1
			return line{at: at, wall: wall, fires: true, twice: w.r.twice(s, at, wall)}, true
		}
		w.t = max(s.end, w.t+1)
	}
	return line{}, false
}

// gap is the line for what the clock jumped over at the start of s, if the rule names any of it.
func (r *Rule) gap(s segment) (line, bool) {
	open := s.start + s.offset
	first, ok := r.clock.nextWall(s.shown, open)
	if !ok {
		return line{}, false
	}
	l := line{at: s.start, wall: first, fires: !r.clock.real, first: first, jumped: r.clock.count(s.shown, open)}
	for l.last = open - mod(open, 60); !r.clock.names(l.last) || l.last >= open; {
		l.last -= 60
	}
	return l, true
}

func (w *walker) nextEvery() (line, bool) {
	at := w.r.anchor
	if w.t > at {
		at += (w.t - at + w.r.every - 1) / w.r.every * w.r.every
	}
	if at >= w.limit {
		w.t = w.limit
		return line{}, false
	}
	w.t = at + 1
	_, offset := time.Unix(at, 0).In(w.r.zone).Zone()
	return line{at: at, wall: at + int64(offset), fires: true}, true
}

// tally counts the lines from t on, up to and without limit, in time that grows with the days between and not with the lines.
func (r *Rule) tally(t, limit int64) int64 {
	t, limit = max(t, firstAt), min(limit, lastAt)
	if r.every > 0 {
		return max(0, upTo(limit-1-r.anchor, r.every)-upTo(t-1-r.anchor, r.every))
	}
	var n int64
	for t < limit {
		s := r.segment(t)
		from := t + s.offset
		if !r.clock.real {
			from = max(from, s.shown)
		}
		n += r.clock.count(from, min(s.end, limit)+s.offset)
		if t == s.start && !r.clock.names(s.start+s.offset) {
			if _, gap := r.gap(s); gap {
				n++
			}
		}
		t = max(s.end, t+1)
	}
	return n
}

// upTo counts the multiples of every in 0 … span.
func upTo(span, every int64) int64 {
	if span < 0 {
		return 0
	}
	return span/every + 1
}

// newest gives the last n lines of (after, until], in order, and how many lie before them.
func (r *Rule) newest(after, until int64, n int) (lines []line, older int64) {
	after = max(after, firstAt-1)
	until = min(until, lastAt-1)
	if after >= until {
		return nil, 0
	}
	from := after + 1
	if all := r.tally(from, until+1); all > int64(n) {
		older = all - int64(n)
		width := int64(day)
		for until-width > from && r.tally(until-width, until+1) < int64(n) {
			width *= 2
		}
		low, high := max(from, until-width), until+1 // at low there are enough, from high on there is none
		for high-low > 1 {
			if mid := low + (high-low)/2; r.tally(mid, until+1) >= int64(n) {
				low = mid
			} else {
				high = mid
			}
		}
		from = low
	}
	for w := r.walk(from, until+1); len(lines) < n; {
		l, ok := w.next()
		if !ok {
			break
		}
		lines = append(lines, l)
	}
	return lines, older
}

// date is a day in the calendar.
type date struct{ month, dom, dow int }

func dateOf(n int64) date {
	t := time.Unix(n*day, 0).UTC()
	return date{int(t.Month()), t.Day(), int(t.Weekday())}
}

func (c *clock) onDay(d date) bool {
	if c.month&(1<<d.month) == 0 {
		return false
	}
	dom, dow := c.dom&(1<<d.dom) != 0, c.dow&(1<<d.dow) != 0
	if c.anyDom || c.anyDow {
		return dom && dow
	}
	return dom || dow
}

// names says whether the wall time, cut to its minute, is one of the expression's and on the minute.
func (c *clock) names(wall int64) bool {
	in := mod(wall, day)
	return in%60 == 0 && c.hour&(1<<(in/3600)) != 0 && c.minute&(1<<(in/60%60)) != 0 && c.onDay(dateOf((wall-in)/day))
}

// nextWall gives the first wall time of the expression in [lo, hi).
func (c *clock) nextWall(lo, hi int64) (int64, bool) {
	for n := floor(lo, day); n*day < hi; n++ {
		d := dateOf(n)
		if c.month&(1<<d.month) == 0 {
			n += int64(27 - min(d.dom, 27)) // no month ends sooner
			continue
		}
		if !c.onDay(d) {
			continue
		}
		if at, ok := c.inDay(max(lo-n*day, 0)); ok {
			return n*day + at, n*day+at < hi
		}
	}
	return 0, false
}

// inDay gives the first second of a day, from that one on, that minute and hour name.
func (c *clock) inDay(from int64) (int64, bool) {
	minute := (from + 59) / 60
	for hour := minute / 60; hour < 24; hour++ {
		if c.hour&(1<<hour) == 0 {
			continue
		}
		if left := c.minute >> max(minute-hour*60, 0); left != 0 {
			return (hour*60 + max(minute-hour*60, 0) + int64(bits.TrailingZeros64(left))) * 60, true
		}
	}
	return 0, false
}

// count counts the wall times of the expression in [lo, hi), which may be empty.
func (c *clock) count(lo, hi int64) int64 {
	if lo >= hi {
		return 0
	}
	full := int64(bits.OnesCount64(c.hour) * bits.OnesCount64(c.minute))
	var sum int64
	for n := floor(lo, day); n*day < hi; n++ {
		if !c.onDay(dateOf(n)) {
			continue
		}
		from, to := max(lo-n*day, 0), min(hi-n*day, day)
		if from == 0 && to == day {
			sum += full
		} else {
			sum += c.before(to) - c.before(from)
		}
	}
	return sum
}

// before counts the times of a day before that second.
func (c *clock) before(second int64) int64 {
	minute := (second + 59) / 60
	hour := minute / 60
	whole := bits.OnesCount64(c.hour&(1<<hour-1)) * bits.OnesCount64(c.minute)
	if c.hour&(1<<hour) != 0 {
		whole += bits.OnesCount64(c.minute & (1<<(minute%60) - 1))
	}
	return int64(whole)
}

func floor(a, b int64) int64 { return (a - mod(a, b)) / b }

func mod(a, b int64) int64 {
	if m := a % b; m < 0 {
		return m + b
	} else { //nolint:revive // reads as the two cases that it is
		return m
	}
}
