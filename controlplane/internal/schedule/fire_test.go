package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// half is the schedule of most tests: every half hour, settled up to 09:00.
func half(t testing.TB, p Policy) Schedule {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatalf("the policy of a test: %v", err)
	}
	return Schedule{ID: "s", Rule: mustParse(t, "*/30 * * * *", "UTC"), Policy: p, Enabled: true, Since: clockAt("00:00"), Last: clockAt("09:00")}
}

func clockAt(text string) time.Time {
	at, err := time.Parse("2006-01-02 15:04", "2026-03-02 "+text)
	if err != nil {
		panic(err)
	}
	return at
}

// summary is a plan in short: "fired 12:00; skipped 09:30 10:00; next 12:30".
func summary(p Plan) string {
	by := map[Outcome][]string{}
	for _, e := range p.Entries {
		text := e.At.Format("15:04")
		if e.Count > 1 {
			text = fmt.Sprintf("%s…%s(%d)", e.First.Format("15:04"), text, e.Count)
		}
		if e.Replace {
			text += "!"
		}
		by[e.Outcome] = append(by[e.Outcome], text)
	}
	var parts []string
	for _, o := range []Outcome{Fired, Skipped, Missed, Forbidden, BlackedOut, Gap} {
		if len(by[o]) > 0 {
			parts = append(parts, string(o)+" "+strings.Join(by[o], " "))
		}
	}
	next := "never"
	if !p.Due.IsZero() {
		next = p.Due.Format("15:04")
	}
	return strings.Join(append(parts, "next "+next), "; ")
}

func TestEachMissedPolicyDoesWhatItSaysAfterAStop(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		now    string
		want   string
	}{
		{Policy{}, "09:10", "next 09:30"},
		{Policy{}, "09:30", "fired 09:30; next 10:00"},
		{Policy{}, "12:10", "fired 12:00; skipped 09:30 10:00 10:30 11:00 11:30; next 12:30"},
		{Policy{Missed: MissedLatest}, "12:29", "fired 12:00; skipped 09:30 10:00 10:30 11:00 11:30; next 12:30"},
		{Policy{Missed: MissedSkip}, "12:10", "skipped 09:30 10:00 10:30 11:00 11:30 12:00; next 12:30"},
		{Policy{Missed: MissedSkip}, "12:01", "fired 12:00; skipped 09:30 10:00 10:30 11:00 11:30; next 12:30"},
		{Policy{Missed: MissedSkip}, "12:02", "skipped 09:30 10:00 10:30 11:00 11:30 12:00; next 12:30"},
		{Policy{Missed: MissedSkip, Window: 10 * time.Minute}, "12:10", "fired 12:00; skipped 09:30 10:00 10:30 11:00 11:30; next 12:30"},
		{Policy{Missed: MissedSkip, Window: 2 * time.Hour, Overlap: OverlapAllow}, "12:10", "fired 12:00; skipped 09:30 10:00 10:30 11:00 11:30; next 12:30"},
		{Policy{Missed: MissedAll, UpTo: 10, Overlap: OverlapQueue}, "12:10", "fired 09:30 10:00 10:30 11:00 11:30 12:00; next 12:30"},
		{Policy{Missed: MissedAll, UpTo: 2, Overlap: OverlapQueue}, "12:10", "fired 11:30 12:00; missed 09:30 10:00 10:30 11:00; next 12:30"},
		{Policy{Missed: MissedAll, UpTo: 10, Window: time.Hour, Overlap: OverlapQueue}, "12:10", "fired 11:30 12:00; missed 09:30 10:00 10:30 11:00; next 12:30"},
		{Policy{Missed: MissedWithin, Within: time.Hour, Overlap: OverlapAllow}, "12:10", "fired 11:30 12:00; missed 09:30 10:00 10:30 11:00; next 12:30"},
		{Policy{Missed: MissedWithin, Within: 40 * time.Minute, Overlap: OverlapAllow}, "12:10", "fired 11:30 12:00; missed 09:30 10:00 10:30 11:00; next 12:30"},
		{Policy{Missed: MissedWithin, Within: time.Minute}, "12:10", "missed 09:30 10:00 10:30 11:00 11:30 12:00; next 12:30"},
		{Policy{Window: 5 * time.Minute}, "12:10", "missed 09:30 10:00 10:30 11:00 11:30 12:00; next 12:30"},
		{Policy{Window: 10 * time.Minute}, "12:10", "fired 12:00; missed 09:30 10:00 10:30 11:00 11:30; next 12:30"},
	} {
		s := half(t, c.policy)
		if got := summary(s.Plan(clockAt(c.now))); got != c.want {
			t.Errorf("%+v at %s\n got %s\nwant %s", c.policy, c.now, got, c.want)
		}
	}
}

func TestEachOverlapPolicyDoesWhatItSays(t *testing.T) {
	all := func(o OverlapPolicy) Policy { return Policy{Missed: MissedAll, UpTo: 3, Overlap: o} }
	for _, c := range []struct {
		policy Policy
		live   int
		want   string
	}{
		{Policy{}, 0, "fired 10:30; skipped 09:30 10:00; next 11:00"},
		{Policy{}, 1, "skipped 09:30 10:00; forbidden 10:30; next 11:00"},
		{all(OverlapForbid), 0, "fired 09:30; forbidden 10:00 10:30; next 11:00"},
		{all(OverlapForbid), 1, "forbidden 09:30 10:00 10:30; next 11:00"},
		{all(OverlapAllow), 1, "fired 09:30 10:00 10:30; next 11:00"},
		{all(OverlapQueue), 1, "fired 09:30 10:00 10:30; next 11:00"},
		{all(OverlapQueue), MaxLive - 1, "fired 09:30; forbidden 10:00 10:30; next 11:00"},
		{all(OverlapAllow), MaxLive, "forbidden 09:30 10:00 10:30; next 11:00"},
		{all(OverlapReplace), 0, "fired 10:30; skipped 09:30 10:00; next 11:00"},
		{all(OverlapReplace), 1, "fired 10:30!; skipped 09:30 10:00; next 11:00"},
		{all(OverlapReplace), MaxLive + 1, "fired 10:30!; skipped 09:30 10:00; next 11:00"},
	} {
		s := half(t, c.policy)
		s.Live = c.live
		p := s.Plan(clockAt("10:40"))
		if got := summary(p); got != c.want {
			t.Errorf("%+v with %d live\n got %s\nwant %s", c.policy, c.live, got, c.want)
		}
		for _, e := range p.Entries {
			if e.Why == "" || e.Outcome != Fired && e.Late != 0 || e.Outcome != Fired && e.Replace {
				t.Errorf("%+v with %d live: entry %+v", c.policy, c.live, e)
			}
		}
	}
}

func TestAnUnknownPolicyIsRefusedByItsField(t *testing.T) {
	for want, p := range map[string]Policy{
		"/missed":   {Missed: "never"},
		"/overlap":  {Overlap: "Forbid"},
		"/up_to":    {Missed: MissedAll},
		"/up_to b":  {Missed: MissedAll, UpTo: MaxLines + 1},
		"/up_to c":  {UpTo: 3},
		"/within":   {Missed: MissedWithin},
		"/within b": {Missed: MissedWithin, Within: 400 * 24 * time.Hour},
		"/within c": {Within: time.Hour},
		"/window":   {Window: -1},
		"/window b": {Window: 1},
		"/spread":   {Spread: -1},
		"/spread b": {Spread: 25 * time.Hour},
	} {
		err := p.Check()
		if err == nil || !strings.HasPrefix(err.Error(), strings.Fields(want)[0]+" ") {
			t.Errorf("%+v: got %v, want %s", p, err, want)
		}
	}
}

// run plans at each of the moments as a loop does, and gives all entries.
func run(s *Schedule, moments ...time.Time) (entries []Entry, last Plan) {
	for _, now := range moments {
		last = s.Plan(now)
		s.Last = last.Last
		entries = append(entries, last.Entries...)
	}
	return entries, last
}

func outcomes(entries []Entry, o Outcome) (at []time.Time) {
	for _, e := range entries {
		if e.Outcome == o {
			at = append(at, e.At)
		}
	}
	return at
}

func TestAfterFourteenHoursOffEveryEntryGoesOnAndRunsOnce(t *testing.T) {
	stop := clockAt("18:00")
	start := stop.Add(14 * time.Hour)
	six, err := Parse(Spec{Every: 6 * time.Hour, Anchor: clockAt("01:30")})
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	for _, c := range []struct {
		rule   *Rule
		listed int
		fired  string
		next   string
	}{
		{mustParse(t, "* * * * *", "UTC"), 840, "08:00", "08:01"},
		{mustParse(t, "0 * * * *", "UTC"), 14, "08:00", "09:00"},
		{mustParse(t, "0 3 * * *", "UTC"), 1, "03:00", "03:00"},
		{six, 3, "07:30", "13:30"},
	} {
		s := Schedule{ID: "s", Rule: c.rule, Enabled: true, Since: stop.Add(-48 * time.Hour), Last: stop}
		entries, p := run(&s, start)
		fired := outcomes(entries, Fired)
		if len(entries) != c.listed || len(fired) != 1 || fired[0].Format("15:04") != c.fired || p.Due.Format("15:04") != c.next {
			t.Errorf("%s: %d entries, fired %v, next %s", c.rule, len(entries), fired, p.Due)
		}
		// Ten restarts an hour apart, each of which looks twice.
		var again []Entry
		for i := 1; i <= 10; i++ {
			at := start.Add(time.Duration(i)*time.Hour + 10*time.Second)
			more, _ := run(&s, at, at)
			again = append(again, more...)
		}
		want := s.Rule.Count(start.Add(time.Second), start.Add(10*time.Hour+11*time.Second))
		if int64(len(again)) != want {
			t.Errorf("%s: %d entries over ten restarts, want %d", c.rule, len(again), want)
		}
	}
}

func TestTimeSpentDisabledOwesNothing(t *testing.T) {
	s := half(t, Policy{Missed: MissedAll, UpTo: MaxLines, Overlap: OverlapQueue})
	s.Enabled = false
	if p := s.Plan(clockAt("20:00")); len(p.Entries) != 0 || !p.Due.IsZero() || p.Waits == "" {
		t.Errorf("disabled: %+v", p)
	}
	s.Enabled, s.Since = true, clockAt("20:00")
	if got := summary(s.Plan(clockAt("20:10"))); got != "next 20:30" {
		t.Errorf("enabled again: %s", got)
	}
	if got := summary(s.Plan(clockAt("20:31"))); got != "fired 20:30; next 21:00" {
		t.Errorf("and on: %s", got)
	}
}

func TestAnExpressionChangedDuringAStopOwesNothingOfTheTimeBefore(t *testing.T) {
	s := half(t, Policy{})
	s.Rule, s.Since = mustParse(t, "*/5 * * * *", "UTC"), clockAt("11:58")
	if got := summary(s.Plan(clockAt("12:06"))); got != "fired 12:05; skipped 12:00; next 12:10" {
		t.Errorf("got %s", got)
	}
}

func TestAClockThatIsSetBackRepeatsNothing(t *testing.T) {
	s := half(t, Policy{Missed: MissedAll, UpTo: 10, Overlap: OverlapQueue})
	entries, p := run(&s, clockAt("10:05"), clockAt("09:05"), clockAt("09:30"), clockAt("10:00"), clockAt("10:05"))
	if got := outcomes(entries, Fired); len(got) != 2 {
		t.Errorf("fired %v", got)
	}
	if p.Due != clockAt("10:30") {
		t.Errorf("next %s", p.Due)
	}
	back := s.Plan(clockAt("09:05"))
	if !strings.Contains(back.Waits, "stands 55m before") || back.Due != clockAt("10:30") {
		t.Errorf("set back: %q, next %s", back.Waits, back.Due)
	}
	// Enabled again while the clock stands back: still nothing twice.
	s.Since = clockAt("09:06")
	if got := summary(s.Plan(clockAt("09:40"))); got != "next 10:30" {
		t.Errorf("enabled again: %s", got)
	}
}

func TestYearsOffAreCountedAndBounded(t *testing.T) {
	second, err := Parse(Spec{Every: time.Second, Anchor: anchor})
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	fine := mustParse(t, "* * * * *", "Europe/Berlin")
	for _, p := range []Policy{{}, {Missed: MissedSkip}, {Missed: MissedAll, UpTo: MaxLines, Overlap: OverlapAllow}, {Missed: MissedWithin, Within: MaxWindow, Overlap: OverlapQueue}} {
		for _, r := range []*Rule{second, fine} {
			s := Schedule{ID: "s", Rule: r, Policy: p, Enabled: true, Since: anchor}
			now := anchor.AddDate(30, 0, 0).Add(time.Second)
			start := time.Now()
			plan := s.Plan(now)
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("%s, %+v: took %s", r, p, took)
			}
			if len(plan.Entries) != MaxLines+1 {
				t.Errorf("%s, %+v: %d entries", r, p, len(plan.Entries))
				continue
			}
			first, rest := plan.Entries[0], int64(0)
			for _, e := range plan.Entries {
				rest += e.Count
			}
			if all := r.Count(anchor.Add(time.Second), now.Add(time.Second)); rest != all || first.Count != all-MaxLines || first.Outcome == Fired {
				t.Errorf("%s, %+v: %d counted, %d in the first line, of %d", r, p, rest, first.Count, all)
			}
			if !first.First.After(anchor) || !first.At.Before(plan.Entries[1].At) || !plan.Due.After(now) {
				t.Errorf("%s, %+v: the line of the counted is %+v", r, p, first)
			}
		}
	}
}

func TestTheLedgerSaysGapWhereSpringLeavesOutAllThatIsNamed(t *testing.T) {
	s := Schedule{Rule: mustParse(t, "*/15 2 * * *", "Europe/Berlin"), Enabled: true, Since: time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)}
	p := s.Plan(time.Date(2026, 3, 29, 1, 0, 5, 0, time.UTC))
	if len(p.Entries) != 1 || p.Entries[0].Outcome != Gap || p.Entries[0].Jumped.Count != 4 || p.Due.Day() != 30 {
		t.Errorf("got %+v", p)
	}
	s.Rule = mustParse(t, "30 2 * * *", "Europe/Berlin")
	p = s.Plan(time.Date(2026, 3, 29, 1, 0, 5, 0, time.UTC))
	if len(p.Entries) != 1 || p.Entries[0].Outcome != Fired || p.Entries[0].Note != NoteGap || p.Entries[0].Wall != "2026-03-29T02:30:00" {
		t.Errorf("got %+v", p)
	}
}

func BenchmarkPlanOfOneDueInstant(b *testing.B) {
	s := half(b, Policy{Spread: time.Minute})
	s.Rule = mustParse(b, "*/30 * * * *", "Europe/Berlin")
	for b.Loop() {
		s.Plan(clockAt("09:31"))
	}
}

func BenchmarkPlanAfterThirtyYearsOfEveryMinute(b *testing.B) {
	s := Schedule{ID: "s", Rule: mustParse(b, "* * * * *", "Europe/Berlin"), Enabled: true, Since: anchor}
	now := anchor.AddDate(30, 0, 0)
	for b.Loop() {
		s.Plan(now)
	}
}
