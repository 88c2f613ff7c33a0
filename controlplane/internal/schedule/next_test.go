package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// told is a list in short: "03-08 03:00 -07:00 (02:30 gap)".
func told(list []Instant, zone *time.Location) string {
	var out []string
	for _, i := range list {
		text := i.At.In(zone).Format("02 15:04 -07")
		if i.Note != NoteNone {
			text += fmt.Sprintf(" (%s %s)", i.Wall[11:16], i.Note)
		}
		if !i.Fires {
			text = "no " + text
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestARunInTheSpringGapFiresOnceRightAfterIt(t *testing.T) {
	for _, c := range []struct {
		zone, from string
		want       map[string]string
	}{
		{"America/Los_Angeles", "2026-03-08T00:00:00-08:00", map[string]string{
			"0 2 * * *":       "08 03:00 -07 (02:00 gap)",
			"30 2 * * *":      "08 03:00 -07 (02:30 gap)",
			"0 3 * * *":       "08 03:00 -07",
			"0,30 2 * * *":    "08 03:00 -07 (02:00 gap)",
			"0 2,3 * * *":     "08 03:00 -07 (03:00 gap)",
			"*/15 2 * * *":    "no 08 03:00 -07 (02:00 gap)",
			"* 2 * * *":       "no 08 03:00 -07 (02:00 gap)",
			"0 * * * *":       "08 00:00 -08, 08 01:00 -08, 08 03:00 -07 (03:00 gap), 08 04:00 -07, 08 05:00 -07",
			"0 1-4 * * *":     "08 01:00 -08, 08 03:00 -07 (03:00 gap), 08 04:00 -07",
			"0 1,2,3,4 * * 0": "08 01:00 -08, 08 03:00 -07 (03:00 gap), 08 04:00 -07",
		}},
		{"Europe/Berlin", "2026-03-29T00:00:00+01:00", map[string]string{
			"0 2 * * *":    "29 03:00 +02 (02:00 gap)",
			"30 2 * * *":   "29 03:00 +02 (02:30 gap)",
			"0 3 * * *":    "29 03:00 +02",
			"*/15 2 * * *": "no 29 03:00 +02 (02:00 gap)",
			"0 * * * *":    "29 00:00 +01, 29 01:00 +01, 29 03:00 +02 (03:00 gap), 29 04:00 +02, 29 05:00 +02",
		}},
		{"Europe/Berlin", "2026-10-25T00:00:00+02:00", map[string]string{
			"0 2 * * *":    "25 02:00 +02 (02:00 overlap)",
			"30 2 * * *":   "25 02:30 +02 (02:30 overlap)",
			"0 3 * * *":    "25 03:00 +01",
			"*/30 2 * * *": "25 02:00 +02 (02:00 overlap), 25 02:30 +02 (02:30 overlap), 25 02:00 +01 (02:00 overlap), 25 02:30 +01 (02:30 overlap)",
		}},
		{"Africa/Cairo", "2026-04-23T22:00:00+02:00", map[string]string{
			"0 0 * * *":  "24 01:00 +03 (00:00 gap)",
			"30 0 * * *": "24 01:00 +03 (00:30 gap)",
			"0 0 24 4 *": "24 01:00 +03 (00:00 gap)",
		}},
		{"Asia/Beirut", "2026-03-28T22:00:00+02:00", map[string]string{
			"0 0 * * *": "29 01:00 +03 (00:00 gap)",
			"@weekly":   "29 01:00 +03 (00:00 gap)",
		}},
		{"Australia/Lord_Howe", "2026-10-04T00:00:00+10:30", map[string]string{
			"15 2 * * *": "04 02:30 +11 (02:15 gap)",
			"30 2 * * *": "04 02:30 +11",
		}},
	} {
		zone, err := LoadZone(c.zone)
		if err != nil {
			t.Fatalf("load %s: %v", c.zone, err)
		}
		from, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatalf("read %s: %v", c.from, err)
		}
		for text, want := range c.want {
			list, _ := mustParse(t, text, c.zone).Between(from, from.Add(6*time.Hour), 20)
			got := told(list, zone)
			if text == "0 * * * *" {
				got = strings.Join(strings.Split(got, ", ")[:5], ", ")
			}
			if got != want {
				t.Errorf("%s in %s\n got %s\nwant %s", text, c.zone, got, want)
			}
		}
	}
}

func TestADayThatAZoneLeftOutWholeIsMadeUpAtOnce(t *testing.T) {
	r := mustParse(t, "0-59 0-23 * * *", "Pacific/Apia") // 30 December 2011 did not exist there
	list, _ := r.Between(time.Date(2011, 12, 30, 9, 59, 0, 0, time.UTC), time.Date(2011, 12, 30, 10, 1, 0, 0, time.UTC), 10)
	if len(list) != 2 || list[1].Jumped != (Jumped{"2011-12-30T00:00:00", "2011-12-30T23:59:00", 24 * 60}) || list[1].Wall != "2011-12-31T00:00:00" {
		t.Errorf("got %+v", list)
	}
}

func TestNextMovesOnThrough31DecemberOfLeapYears(t *testing.T) {
	for _, name := range []string{"America/New_York", "Europe/Berlin", "Australia/Sydney", "America/Santiago"} {
		zone, err := LoadZone(name)
		if err != nil {
			t.Fatalf("load %s: %v", name, err)
		}
		at := time.Date(2028, 12, 31, 12, 0, 0, 0, time.UTC)
		if _, end := at.In(zone).ZoneBounds(); end.After(at) {
			t.Logf("%s: ZoneBounds has been mended; the guard may go", name)
		}
		next, ok := mustParse(t, "0 12 1 1 *", name).Next(at)
		if !ok || next.Wall != "2029-01-01T12:00:00" {
			t.Errorf("%s: got %v, %v", name, next, ok)
		}
	}
}

func TestARareDateIsFoundOverACentury(t *testing.T) {
	next, ok := mustParse(t, "0 0 29 2 *", "Europe/Berlin").Next(time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC))
	if !ok || next.Wall != "2104-02-29T00:00:00" {
		t.Errorf("got %v, %v", next, ok)
	}
}

func TestAnIntervalKeepsItsRhythmFromItsAnchor(t *testing.T) {
	r, err := Parse(Spec{Every: 6 * time.Hour, Anchor: anchor.Add(time.Millisecond), Zone: "Europe/Berlin"})
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	for after, want := range map[time.Time]time.Time{
		anchor.Add(-1000 * time.Hour):                  anchor,
		anchor.Add(-time.Nanosecond):                   anchor,
		anchor:                                         anchor.Add(6 * time.Hour),
		anchor.Add(time.Hour):                          anchor.Add(6 * time.Hour),
		anchor.Add(6*time.Hour - 1):                    anchor.Add(6 * time.Hour),
		anchor.Add(6 * 10_000 * time.Hour):             anchor.Add(6 * 10_001 * time.Hour),
		time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC): {},
	} {
		next, ok := r.Next(after)
		if ok == want.IsZero() || !next.At.Equal(want) {
			t.Errorf("after %s: got %v, %v", after, next, ok)
		}
	}
	spring, _ := r.Next(time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC))
	if spring.Wall != "2026-03-29T08:00:00" || spring.Offset != "+02:00" {
		t.Errorf("got %v", spring)
	}
}

func TestBetweenGivesBothEndsRightAndItsCap(t *testing.T) {
	r := mustParse(t, "0 * * * *", "UTC")
	list, more := r.Between(anchor, anchor.Add(3*time.Hour), 10)
	if len(list) != 3 || more || !list[0].At.Equal(anchor) {
		t.Errorf("got %v, %v: from is in, to is not", list, more)
	}
	if list, more = r.Between(anchor.Add(1), anchor.Add(3*time.Hour+1), 10); len(list) != 3 || more || !list[2].At.Equal(anchor.Add(3*time.Hour)) {
		t.Errorf("got %v, %v: parts of a second count", list, more)
	}
	if list, more = r.Between(anchor, anchor.Add(4*time.Hour), 3); len(list) != 3 || !more {
		t.Errorf("got %d, %v", len(list), more)
	}
	if list, more = r.Between(anchor, anchor.AddDate(100, 0, 0), 1<<40); len(list) != MaxListed || !more {
		t.Errorf("got %d, %v", len(list), more)
	}
	if list, more = r.Between(anchor.Add(time.Hour), anchor, 10); len(list) != 0 || more {
		t.Errorf("got %v, %v backwards", list, more)
	}
	if list, more = r.Between(anchor, anchor.Add(time.Hour), -1); len(list) != 0 || !more {
		t.Errorf("got %v, %v of none", list, more)
	}
}

func TestAPreviewOfFiftyOfAnyExpressionIsQuick(t *testing.T) {
	for _, text := range append(oracleExpressions, "0 0 29 2 *", "59 23 31 12 *") {
		r := mustParse(t, text, "Europe/Berlin")
		start := time.Now()
		if list, _ := r.Between(anchor, anchor.AddDate(500, 0, 0), 50); len(list) != 50 {
			t.Errorf("%q: %d", text, len(list))
		}
		if took := time.Since(start); took > 5*time.Second { // the budget is 50 ms; this machine may be busy and race detection on
			t.Errorf("%q took %s", text, took)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	r := mustParse(b, "30 2 * * *", "Europe/Berlin")
	for b.Loop() {
		r.Next(anchor)
	}
}

func BenchmarkPreviewOfFiftyLeapDays(b *testing.B) {
	r := mustParse(b, "0 0 29 2 *", "Europe/Berlin")
	for b.Loop() {
		r.Between(anchor, anchor.AddDate(500, 0, 0), 50)
	}
}
