package schedule

import (
	"encoding/binary"
	"fmt"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/schedule/oracle"
)

// oracleExpressions are what every kind of rule does with a change of clocks.
var oracleExpressions = []string{
	"30 2 * * *", "0 2 * * *", "0 3 * * *", "0 0 * * *", "*/15 2 * * *", "0 * * * *", "* * * * *", "*/7 */3 * * *",
	"0-59 0-23 * * *", "0,20,30,45 0,1,2,3,23 * * *", "30 1,2 */2 * 1", "15 0 1,15,29 2-4,9-11 ?", "59 23 * * FRI-SUN", "5/10 0-4 * * 0-7",
	"? 2 * * *", "0 12 29 2 *",
}

// change is one transition of a zone.
type change struct {
	zone *time.Location
	at   time.Time
}

// shift is what tells two moments of a zone apart. A change of its name alone is none for a rule, but Go cuts there too.
type shift struct {
	name string
	east int
}

func probe(zone *time.Location, at int64) shift {
	name, east := time.Unix(at, 0).In(zone).Zone()
	return shift{name, east}
}

// histories gives one zone for each distinct history from 2024 to the end of 2032, and all transitions of those.
func histories(t *testing.T) (zones []*time.Location, changes []change) {
	t.Helper()
	found, err := allHistories()
	if err != nil {
		t.Fatalf("find the histories of all zones: %v", err)
	}
	return found.zones, slices.Clone(found.changes)
}

type history struct {
	zones   []*time.Location
	changes []change
}

var allHistories = sync.OnceValues(func() (found history, err error) {
	from, to := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2033, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	const step = 12 * 60 * 60
	known, files := make(map[string]bool), make(map[uint32]bool)
	for _, name := range Zones() {
		zone, err := LoadZone(name)
		if err != nil {
			return history{}, err
		}
		if sum := zoneFiles()[name].CRC32; files[sum] {
			continue // another name of the same zone
		} else {
			files[sum] = true
		}
		var story strings.Builder
		var of []change
		was := probe(zone, from)
		fmt.Fprint(&story, was)
		for at := from; at < to; at += step {
			is := probe(zone, at+step)
			if is == was {
				continue
			}
			low, high := at, at+step
			for high-low > 1 {
				if mid := low + (high-low)/2; probe(zone, mid) == was {
					low = mid
				} else {
					high = mid
				}
			}
			of = append(of, change{zone, time.Unix(high, 0)})
			fmt.Fprint(&story, high, is)
			was = is
		}
		if !known[story.String()] {
			known[story.String()] = true
			found.zones = append(found.zones, zone)
			found.changes = append(found.changes, of...)
		}
	}
	return found, nil
})

// full says that everything is compared with everything: SCHEDULE_ORACLE=full.
func full() bool { return os.Getenv("SCHEDULE_ORACLE") == "full" }

func TestNextAgreesWithAMinuteWalkAroundTheTransitionsOfEveryZone(t *testing.T) {
	zones, changes := histories(t)
	if len(zones) < 60 || len(changes) < 500 {
		t.Fatalf("found %d histories and %d transitions: the probes miss some", len(zones), len(changes))
	}
	// The days on which Go's ZoneBounds answers an end before its argument (DESIGN 8.3).
	for _, zone := range zones {
		for _, year := range []int{2024, 2028, 2032} {
			changes = append(changes, change{zone, time.Date(year, 12, 31, 12, 0, 0, 0, time.UTC)})
		}
	}
	rules := oracleRules(t)
	windows, compared := 0, 0
	for i, c := range changes {
		if !full() && i%5 != 0 {
			continue
		}
		from, to := c.at.Add(-30*time.Hour).Truncate(time.Minute), c.at.Add(30*time.Hour)
		w := oracle.NewWindow(c.zone, from, to)
		windows++
		for k, expression := range oracleExpressions {
			if !full() && (i/5+k)%5 != 0 {
				continue
			}
			compare(t, rules[k].in(c.zone), expression, w, from, to)
			compared++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d histories, %d windows, %d comparisons, %d expressions", len(zones), windows, compared, len(oracleExpressions))
}

func TestEveryMomentLiesWithinItsStretchAlsoOn31DecemberOfLeapYears(t *testing.T) {
	zones, _ := histories(t)
	utc := &Rule{zone: time.UTC}
	trapped := 0
	for _, zone := range zones {
		r := utc.in(zone)
		for at := time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC); at.Year() < 2033; at = at.AddDate(0, 0, 1) {
			if at.Day() != 15 && at.YearDay() > 1 && at.YearDay() < 365 {
				continue
			}
			if _, end := at.In(zone).ZoneBounds(); !end.IsZero() && !end.After(at) {
				trapped++
			}
			start, end, offset := r.bounds(at.Unix())
			_, _, first := r.bounds(max(start, firstAt))
			_, _, last := r.bounds(end - 1)
			if start > at.Unix() || end <= at.Unix() || first != offset || last != offset {
				t.Fatalf("%s at %s: from %d to %d by %d (%d at its start, %d at its end)", zone, at, start, end, offset, first, last)
			}
		}
	}
	t.Logf("ZoneBounds gave an end that is not ahead %d times", trapped)
}

func TestTheOracleKnowsNothingOfWhatItJudges(t *testing.T) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "oracle/oracle.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatalf("parse the oracle: %v", err)
	}
	for _, spec := range parsed.Imports {
		if strings.Contains(spec.Path.Value, ".") {
			t.Errorf("the oracle imports %s", spec.Path.Value)
		}
	}
}

func TestNextAgreesWithAMinuteWalkInRandomWeeks(t *testing.T) {
	zones, _ := histories(t)
	rules := oracleRules(t)
	weeks := 20
	if full() {
		weeks = 1500
	}
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range weeks {
		zone := zones[rnd.IntN(len(zones))]
		from := time.Date(2024, 1, 1+rnd.IntN(9*365), rnd.IntN(24), rnd.IntN(60), 0, 0, time.UTC)
		to := from.Add(7 * 24 * time.Hour)
		w := oracle.NewWindow(zone, from, to)
		for k, expression := range oracleExpressions {
			if full() || rnd.IntN(4) == 0 {
				compare(t, rules[k].in(zone), expression, w, from, to)
			}
		}
		text := randomExpression(rnd)
		r, err := Parse(Spec{Cron: text, Zone: "UTC"})
		if err != nil {
			t.Fatalf("seed %d: parse %q: %v", seed, text, err)
		}
		compare(t, r.in(zone), text, w, from, to)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func oracleRules(t *testing.T) []*Rule {
	t.Helper()
	rules := make([]*Rule, len(oracleExpressions))
	for i, text := range oracleExpressions {
		r, err := Parse(Spec{Cron: text, Zone: "UTC"})
		if err != nil {
			t.Fatalf("parse %q: %v", text, err)
		}
		rules[i] = r
	}
	return rules
}

// in is the same rule in another zone.
func (r *Rule) in(zone *time.Location) *Rule {
	moved := *r
	moved.zone = zone
	return &moved
}

// compare holds Between, Count and the newest lines against the oracle.
func compare(t *testing.T, r *Rule, expression string, w *oracle.Window, from, to time.Time) {
	t.Helper()
	want := w.Lines(expression)
	got, more := r.Between(from, to, MaxListed)
	if more && len(want) <= len(got) {
		t.Errorf("%q in %s from %s: more than %d", expression, r.zone, from.UTC(), len(got))
		return
	}
	if !more && len(got) != len(want) {
		t.Errorf("%q in %s from %s: %d instants, the minute walk has %d\n got %v\nwant %v", expression, r.zone, from.UTC(), len(got), len(want), got, want)
		return
	}
	for i, g := range got {
		have := oracle.Line{At: g.At.Unix(), Fires: g.Fires, Jumped: int(g.Jumped.Count), Twice: g.Note == NoteOverlap}
		if have != want[i] {
			t.Errorf("%q in %s: instant %d is %v %+v, the minute walk has %+v", expression, r.zone, i, g, have, want[i])
			return
		}
	}
	if n := r.Count(from, to); n != int64(len(want)) {
		t.Errorf("%q in %s from %s: Count is %d of %d", expression, r.zone, from.UTC(), n, len(want))
	}
	const some = 5
	last, older := r.newest(from.Unix()-1, ceil(to)-1, some)
	if older != int64(max(0, len(want)-some)) || len(last) != min(some, len(want)) {
		t.Errorf("%q in %s from %s: newest gives %d and %d older of %d", expression, r.zone, from.UTC(), len(last), older, len(want))
		return
	}
	for i, l := range last {
		if l.at != want[len(want)-len(last)+i].At {
			t.Errorf("%q in %s: newest %d is at %d, not %d", expression, r.zone, i, l.at, want[len(want)-len(last)+i].At)
		}
	}
}

// randomExpression draws an expression that the grammar takes.
func randomExpression(rnd *rand.Rand) string {
	for {
		fields := make([]string, len(units))
		for i, u := range units {
			fields[i] = randomField(rnd, u)
		}
		text := strings.Join(fields, " ")
		if _, err := parseCron(text); err == nil {
			return text
		}
	}
}

func randomField(rnd *rand.Rand, u unit) string {
	value := func() int { return u.lo + rnd.IntN(u.hi-u.lo+1) }
	switch rnd.IntN(6) {
	case 0:
		return "?"
	case 1, 2:
		return "*"
	case 3:
		return fmt.Sprintf("*/%d", 1+rnd.IntN(u.hi-u.lo))
	case 4:
		lo := value()
		return fmt.Sprintf("%d-%d", lo, lo+rnd.IntN(u.hi-lo+1))
	}
	list := []string{fmt.Sprint(value())}
	for rnd.IntN(2) == 0 {
		list = append(list, fmt.Sprint(value()))
	}
	if u.names != nil && rnd.IntN(2) == 0 {
		list = append(list, strings.ToLower(u.names[rnd.IntN(len(u.names))]))
	}
	return strings.Join(list, ",")
}

// restless makes a zone whose clocks change at each of the moments, to each of the offsets in hours, from offset 0 on.
func restless(t *testing.T, moments []time.Time, hours ...float64) *time.Location {
	t.Helper()
	data := []byte("TZif\x00" + strings.Repeat("\x00", 15))
	types := len(hours) + 1
	for _, n := range []int{0, 0, 0, len(moments), types, 4} {
		data = binary.BigEndian.AppendUint32(data, uint32(n))
	}
	for _, at := range moments {
		data = binary.BigEndian.AppendUint32(data, uint32(at.Unix()))
	}
	for i := range moments {
		data = append(data, byte(i+1))
	}
	for _, h := range append([]float64{0}, hours...) {
		data = append(binary.BigEndian.AppendUint32(data, uint32(int32(h*3600))), 0, 0)
	}
	zone, err := time.LoadLocationFromTZData("Test/Restless", append(data, "XXX\x00"...))
	if err != nil {
		t.Fatalf("make a zone: %v", err)
	}
	return zone
}

func TestNextAgreesWithAMinuteWalkWhereClocksChangeAgainAtOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 5))
	rules := oracleRules(t)
	noon := time.Date(2026, 5, 3, 12, 0, 0, 0, time.UTC)
	for round := range 6 {
		var moments []time.Time
		var hours []float64
		for at := noon; len(moments) < 6; at = at.Add(time.Duration(5+rnd.IntN(300)) * time.Minute) {
			moments, hours = append(moments, at), append(hours, float64(rnd.IntN(25)-12)/2)
		}
		if round == 0 { // back, forth and back within half an hour
			moments = []time.Time{noon, noon.Add(time.Hour), noon.Add(70 * time.Minute), noon.Add(80 * time.Minute)}
			hours = []float64{2, 1, 2, 1}
		}
		zone := restless(t, moments, hours...)
		from, to := noon.Add(-20*time.Hour), noon.Add(60*time.Hour)
		w := oracle.NewWindow(zone, from, to)
		for k, expression := range oracleExpressions {
			compare(t, rules[k].in(zone), expression, w, from, to)
		}
		if t.Failed() {
			t.Fatalf("seed %d: changes at %v to %v", seed, moments, hours)
		}
	}
}
