package schedule

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func mustBlackout(t testing.TB, s BlackoutSpec) *Blackout {
	t.Helper()
	b, err := ParseBlackout(s)
	if err != nil {
		t.Fatalf("parse the blackout: %v", err)
	}
	return b
}

func TestABlackoutCoversFromItsStartAndNotItsEnd(t *testing.T) {
	night := mustBlackout(t, BlackoutSpec{Name: "night", Cron: "0 22 * * 1-5", Zone: "Europe/Berlin", For: 8 * time.Hour})
	once := mustBlackout(t, BlackoutSpec{Name: "once", From: clockAt("12:00"), To: clockAt("13:00")})
	always := mustBlackout(t, BlackoutSpec{Name: "always", Cron: "* * * * *", Zone: "UTC", For: MaxBlackout})
	for _, c := range []struct {
		b           *Blackout
		at, covered string // covered: until when
	}{
		{night, "20:59", ""},                 // Monday, 21:59 in Berlin
		{night, "21:00", "2026-03-03 05:00"}, // 22:00
		{night, "23:59", "2026-03-03 05:00"},
		{night, "04:59", ""}, // Monday morning: Sunday has none
		{once, "11:59", ""},
		{once, "12:00", "2026-03-02 13:00"},
		{once, "12:59", "2026-03-02 13:00"},
		{once, "13:00", ""},
		{always, "13:00", "2026-04-02 13:00"},
	} {
		until, ok := c.b.Covers(clockAt(c.at))
		got := ""
		if ok {
			got = until.Format("2006-01-02 15:04")
		}
		if got != c.covered {
			t.Errorf("%s at %s: covered until %q, want %q", c.b, c.at, got, c.covered)
		}
	}
	if _, ok := night.Covers(clockAt("21:00").Add(-time.Nanosecond)); ok {
		t.Error("covered before its start")
	}
	if until, ok := night.Covers(clockAt("21:00").Add(8*time.Hour - 1)); !ok || until != clockAt("21:00").Add(8*time.Hour) {
		t.Errorf("just before its end: %s, %v", until, ok)
	}
	if _, ok := night.Covers(clockAt("21:00").Add(8 * time.Hour)); ok {
		t.Error("covered at its end")
	}
	if which, _ := Covering([]*Blackout{night, once, always}, clockAt("12:30")); which == nil || which.Name() != "once" {
		t.Errorf("got %v, want the first that covers", which)
	}
}

func TestABlackoutThatIsNoneIsRefusedByItsField(t *testing.T) {
	for want, s := range map[string]BlackoutSpec{
		"/name":   {From: anchor, To: anchor.Add(time.Hour)},
		"/from":   {Name: "n"},
		"/from b": {Name: "n", To: anchor},
		"/to":     {Name: "n", From: anchor},
		"/to b":   {Name: "n", From: anchor, To: anchor},
		"/cron":   {Name: "n", From: anchor, To: anchor.Add(1), Cron: "* * * * *"},
		"/cron b": {Name: "n", Cron: "0 0 30 2 *", Zone: "UTC", For: time.Hour},
		"/cron c": {Name: "n", Zone: "UTC", For: time.Hour},
		"/zone":   {Name: "n", Cron: "0 0 * * *", Zone: "Mars", For: time.Hour},
		"/for":    {Name: "n", Cron: "0 0 * * *", Zone: "UTC"},
		"/for b":  {Name: "n", Cron: "0 0 * * *", Zone: "UTC", For: 32 * 24 * time.Hour},
		"/for c":  {Name: "n", Cron: "0 0 * * *", Zone: "UTC", For: -time.Hour},
	} {
		_, err := ParseBlackout(s)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || len(invalid.Fields) != 1 || invalid.Fields[0].Pointer != strings.Fields(want)[0] {
			t.Errorf("%+v: got %v, want %s", s, err, want)
		}
	}
}

func TestWhatFallsIntoABlackoutIsNeverMadeUp(t *testing.T) {
	s := half(t, Policy{Missed: MissedAll, UpTo: 100, Overlap: OverlapQueue})
	s.Blackouts = []*Blackout{mustBlackout(t, BlackoutSpec{Name: "noon", Cron: "0 10 * * *", Zone: "UTC", For: time.Hour})}
	for now, want := range map[string]string{
		"10:00": "waits",
		"10:59": "waits",
		"11:00": "fired 09:30 11:00; blacked_out 10:00 10:30; next 11:30",
		"11:10": "fired 09:30 11:00; blacked_out 10:00 10:30; next 11:30",
	} {
		p := s.Plan(clockAt(now))
		got := summary(p)
		if p.Waits != "" && len(p.Entries) == 0 && p.Last.Equal(s.Last) && p.Due.Equal(clockAt("11:00")) && strings.Contains(p.Waits, "noon") {
			got = "waits"
		}
		if got != want {
			t.Errorf("at %s: got %s (%s), want %s", now, got, p.Waits, want)
		}
	}
	s.Last = clockAt("09:30") // the loop was there
	if got := summary(s.Plan(clockAt("10:01"))); got != "blacked_out 10:00; next 10:30" {
		t.Errorf("in time: %s", got)
	}
}

func TestLatestRunsTheNewestThatNoBlackoutTakes(t *testing.T) {
	s := half(t, Policy{})
	s.Blackouts = []*Blackout{mustBlackout(t, BlackoutSpec{Name: "once", From: clockAt("10:00"), To: clockAt("11:00")})}
	if got := summary(s.Plan(clockAt("11:00").Add(-time.Second + time.Second))); got != "fired 11:00; skipped 09:30; blacked_out 10:00 10:30; next 11:30" {
		t.Errorf("got %s", got)
	}
	s.Rule = mustParse(t, "30 9,10 * * *", "UTC")
	if got := summary(s.Plan(clockAt("11:00"))); got != "fired 09:30; blacked_out 10:30; next 09:30" {
		t.Errorf("got %s", got)
	}
}

func TestAMonthOfBlackoutsOverAThousandLinesIsQuick(t *testing.T) {
	second, err := Parse(Spec{Every: time.Second, Anchor: anchor})
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	s := Schedule{Rule: second, Enabled: true, Since: anchor}
	for i := range MaxBlackouts {
		s.Blackouts = append(s.Blackouts, mustBlackout(t, BlackoutSpec{
			Name: fmt.Sprint(i), Cron: "0 0 29 2 *", Zone: "Europe/Berlin", For: MaxBlackout,
		}))
	}
	start := time.Now()
	if p := s.Plan(anchor.AddDate(0, 6, 0)); len(p.Entries) != MaxLines+1 {
		t.Errorf("%d entries", len(p.Entries))
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	t.Logf("took %s", time.Since(start))
}
