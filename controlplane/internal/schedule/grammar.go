package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/robfig/cron/v3"
)

// MaxCron is the length of the longest expression: every minute, hour and day written out fits.
const MaxCron = 512

// unit is one of the five fields.
type unit struct {
	name   string
	lo, hi int
	names  []string // of lo, lo+1, …
	sunday bool     // 7 is 0
}

var units = []unit{
	{name: "minute", lo: 0, hi: 59},
	{name: "hour", lo: 0, hi: 23},
	{name: "day of month", lo: 1, hi: 31},
	{name: "month", lo: 1, hi: 12, names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{name: "day of week", lo: 0, hi: 6, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}, sunday: true},
}

// short are the names that stand for a whole expression.
var short = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// clock is a parsed expression: bit n of a set is the value n, as robfig/cron has them.
type clock struct {
	minute, hour, dom, month, dow uint64
	anyDom, anyDow                bool // a lone * or ?, or a step of 1
	real                          bool // counted in real intervals: *, ? or a step in minute or hour
	text                          string
}

// star is the bit by which robfig/cron marks a lone * or ?.
const star = 1 << 63

// parseCron checks text against the grammar and lets robfig/cron read it. Its error is a plain reason.
func parseCron(text string) (clock, error) {
	fields, err := split(text)
	if err != nil {
		return clock{}, err
	}
	plain := make([]string, len(fields))
	for i, f := range fields {
		if plain[i], err = units[i].rewrite(f); err != nil {
			return clock{}, fmt.Errorf("has a wrong %s %q: %w", units[i].name, brief(f), err)
		}
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(strings.Join(plain, " "))
	if err != nil {
		return clock{}, fmt.Errorf("is not understood: %w", err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return clock{}, fmt.Errorf("is not understood: it is no expression of five fields")
	}
	c := clock{
		minute: spec.Minute &^ star, hour: spec.Hour &^ star, dom: spec.Dom &^ star, month: spec.Month &^ star, dow: spec.Dow &^ star,
		anyDom: spec.Dom&star != 0, anyDow: spec.Dow&star != 0,
		real: strings.ContainsAny(fields[0]+fields[1], "*?/"),
		text: strings.Join(fields, " "),
	}
	if c.minute == 0 || c.hour == 0 || c.dom == 0 || c.month == 0 || c.dow == 0 {
		return clock{}, fmt.Errorf("has a field that names nothing; write * for all")
	}
	if !c.possible() {
		return clock{}, fmt.Errorf("names no date that exists: none of its months has such a day; a day of 1 to 28 is in every month")
	}
	return c, nil
}

// split gives the five fields.
func split(text string) ([]string, error) {
	const five = "five fields: minute, hour, day of month, month, day of week"
	if len(text) > MaxCron {
		return nil, fmt.Errorf("has more than %d characters; use ranges and steps", MaxCron)
	}
	if !clean(text) {
		return nil, fmt.Errorf("has a control or non-ASCII character; part the fields by spaces")
	}
	fields := strings.Fields(text)
	switch {
	case len(fields) == 0:
		return nil, fmt.Errorf("is empty; give %s", five)
	case strings.Contains(text, "="):
		return nil, fmt.Errorf("may not set a variable; the zone has a field of its own, /zone")
	case strings.EqualFold(fields[0], "@every"):
		return nil, fmt.Errorf("may not hold @every; the interval has a field of its own, /every")
	case strings.HasPrefix(fields[0], "@"):
		if long, ok := short[fields[0]]; ok && len(fields) == 1 {
			return strings.Fields(long), nil
		}
		return nil, fmt.Errorf("%q is not known; use @yearly, @monthly, @weekly, @daily or @hourly, or %s", brief(text), five)
	case len(fields) == 6 || len(fields) == 7:
		return nil, fmt.Errorf("has %d fields; seconds and years are not supported, give %s", len(fields), five)
	case len(fields) != 5:
		return nil, fmt.Errorf("has %d fields; give %s", len(fields), five)
	}
	return fields, nil
}

// rewrite checks one field and gives it in numbers, with Sunday as 0 only.
func (u unit) rewrite(field string) (string, error) {
	if field == "*" || field == "?" {
		return field, nil
	}
	parts := strings.Split(field, ",")
	for i, part := range parts {
		switch part {
		case "":
			return "", fmt.Errorf("an element of the list is empty; take out the comma")
		case "*", "?":
			return "", fmt.Errorf("%s stands alone or not at all; it already means every %s", part, u.name)
		}
		plain, err := u.element(part)
		if err != nil {
			return "", err
		}
		parts[i] = plain
	}
	return strings.Join(parts, ","), nil
}

// element is a value, a range, or either with a step.
func (u unit) element(part string) (string, error) {
	set, step, stepped := strings.Cut(part, "/")
	lo, hi, every := u.lo, u.hi, set == "*"
	if !every {
		var err error
		if lo, hi, err = u.span(set); err != nil {
			return "", err
		}
		if stepped && !strings.Contains(set, "-") {
			hi = u.hi // N/S is from N to the end
		}
	}
	n := 1
	if stepped {
		var err error
		if n, err = number(step); err != nil {
			return "", fmt.Errorf("the step is no number; write for example */5")
		}
		switch {
		case n == 0:
			return "", fmt.Errorf("a step of 0 never moves on; the smallest is 1")
		case n > hi-lo:
			return "", fmt.Errorf("a step of %d reaches past the end, so that only %d is left; write %d", n, lo%u.wrap(), lo%u.wrap())
		}
	}
	switch {
	case every:
		return part, nil
	case u.sunday && hi == 7: // the only element that has to be written out
		var days []string
		for day := lo; day <= hi; day += n {
			days = append(days, strconv.Itoa(day%7))
		}
		slices.Sort(days)
		if days = slices.Compact(days); len(days) == 1 && stepped {
			return "", fmt.Errorf("a step of %d leaves only %s; write %s", n, days[0], days[0])
		}
		return strings.Join(days, ","), nil
	case lo == hi:
		return strconv.Itoa(lo), nil
	}
	return fmt.Sprintf("%d-%d/%d", lo, hi, n), nil
}

// wrap is the number at which values begin again in what is shown to users.
func (u unit) wrap() int {
	if u.sunday {
		return 7
	}
	return u.hi + 1
}

// span reads a value or a range.
func (u unit) span(text string) (lo, hi int, err error) {
	from, to, ranged := strings.Cut(text, "-")
	if lo, err = u.value(from); err != nil {
		return 0, 0, err
	}
	if !ranged {
		return lo, lo, nil
	}
	if hi, err = u.value(to); err != nil {
		return 0, 0, err
	}
	if u.sunday && hi == 0 && lo > 0 && strings.EqualFold(to, "SUN") {
		hi = 7 // FRI-SUN
	}
	if lo > hi {
		return 0, 0, fmt.Errorf("the range runs backwards; write it as a list of two, %d-%d,%d-%d", lo, u.hi, u.lo, hi)
	}
	return lo, hi, nil
}

func (u unit) value(text string) (int, error) {
	for i, name := range u.names {
		if strings.EqualFold(text, name) {
			return u.lo + i, nil
		}
	}
	n, err := number(text)
	switch {
	case err != nil && u.names != nil:
		return 0, fmt.Errorf("%q is neither a number nor a name; use %d to %d or %s to %s", brief(text), u.lo, u.hi, u.names[0], u.names[len(u.names)-1])
	case err != nil:
		return 0, fmt.Errorf("%q is no number; use %d to %d (L, W and # are not supported)", brief(text), u.lo, u.hi)
	case u.sunday && n == 7:
		return 7, nil
	case n < u.lo || n > u.hi:
		return 0, fmt.Errorf("%d is out of range; use %d to %d", n, u.lo, u.hi)
	}
	return n, nil
}

// number reads one or two digits and nothing else.
func number(text string) (int, error) {
	if len(text) == 0 || len(text) > 2 || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%q is no number", brief(text))
	}
	return strconv.Atoi(text)
}

// brief cuts what is repeated to the user.
func brief(text string) string {
	if len(text) > 40 {
		return text[:40] + "…"
	}
	return text
}

// possible says whether a day exists that the expression names: leap years count, and a limited day of week always does.
func (c clock) possible() bool {
	if !c.anyDow && !c.anyDom || c.anyDom {
		return true // some week day, or any day
	}
	longest := [13]int{1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}
	for month := 1; month <= 12; month++ {
		if c.month&(1<<month) != 0 && c.dom&(1<<(longest[month]+1)-1) != 0 {
			return true
		}
	}
	return false
}
