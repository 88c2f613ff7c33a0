package retention_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/pkg/retention"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func good(name string, taken time.Time) retention.Copy {
	return retention.Copy{Name: name, Source: "data", Taken: taken, State: retention.Good}
}

func plan(t *testing.T, all []retention.Copy, r retention.Rules, now time.Time) retention.Plan {
	t.Helper()
	p, err := retention.Make(all, r, now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// reasons writes a plan as `name: reason` lines.
func reasons(p retention.Plan) string {
	var lines []string
	for _, d := range p.Decisions {
		lines = append(lines, d.Name+": "+d.Reason)
	}
	return strings.Join(lines, "\n")
}

func TestTheLastGoodCopyStaysHoweverManyFailuresFollow(t *testing.T) {
	now := at(t, "2026-06-07T12:00:00Z")
	all := []retention.Copy{good("day-1", now.Add(-6*24*time.Hour))}
	for n := 2; n <= 6; n++ {
		c := good(fmt.Sprint("day-", n), now.Add(-time.Duration(7-n)*24*time.Hour))
		c.State = []retention.State{retention.Failed, retention.Unready}[n%2]
		all = append(all, c)
	}
	for name, r := range map[string]retention.Rules{"count": {Count: 3}, "age": {Age: 5 * 24 * 3600}} {
		p := plan(t, all, r, now)
		if p.Remove != 0 || p.Good != 1 {
			t.Errorf("%s:\n%s", name, reasons(p))
		}
		if name == "age" && (len(p.Warnings) != 1 || !strings.Contains(reasons(p), "day-1: kept by floor 1")) {
			t.Errorf("nothing warns of the last good copy: %v\n%s", p.Warnings, reasons(p))
		}
	}
}

func TestEachCopyHasItsReason(t *testing.T) {
	now := at(t, "2026-06-07T12:00:00Z")
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	all := []retention.Copy{
		good("a", ago(time.Hour)), good("b", ago(2*time.Hour)), good("c", ago(26*time.Hour)), good("d", ago(27*time.Hour)),
		good("e", ago(28*time.Hour)), good("ahead", now.Add(time.Minute)), good("pinned", ago(90*time.Hour)), good("manual", ago(91*time.Hour)),
		{Name: "when", Source: "data", State: retention.Good},
		{Name: "bad", Source: "data", Taken: now, State: retention.Failed},
		{Name: "new", Source: "data", Taken: now, State: retention.Unready},
		{Name: "twin", Source: "data-2", Taken: ago(99 * time.Hour), State: retention.Good},
	}
	all[4].InUse, all[6].Pinned, all[7].Foreign = "PVC restored", true, true
	got := reasons(plan(t, all, retention.Rules{Count: 1, Daily: 2, Zone: "Europe/Berlin"}, now))
	want := `ahead: kept: taken in the future, by a clock that is ahead; it does not count
new: kept: not ready yet, and does not count
bad: kept: it failed, and does not count
a: kept by count 1, daily 2 (2026-06-07)
b: removed by count 1, daily 2, floor 1
c: kept by daily 2 (2026-06-06)
d: removed by count 1, daily 2, floor 1
e: kept: in use by PVC restored
pinned: kept: pinned
manual: kept: not made under this rule
when: kept: nobody knows when it was taken, it does not count
twin: kept by count 1, daily 2 (2026-06-03)`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAnHourThatComesTwiceIsTwoHoursAndADayOf25IsOne(t *testing.T) {
	// Berlin goes back from 03:00 to 02:00 on 25 October 2026, at 01:00 UTC.
	first, second := at(t, "2026-10-25T00:30:00Z"), at(t, "2026-10-25T01:30:00Z")
	all := []retention.Copy{good("first", first), good("second", second), good("midnight", at(t, "2026-10-24T22:00:00Z")), good("before", at(t, "2026-10-24T21:59:59Z"))}
	now := at(t, "2026-10-25T22:59:59Z")
	p := plan(t, all, retention.Rules{Hourly: 2, Zone: "Europe/Berlin"}, now)
	if got := reasons(p); !strings.Contains(got, "second: kept by hourly 2 (2026-10-25 02h +01:00)") || !strings.Contains(got, "first: kept by hourly 2 (2026-10-25 02h +02:00)") {
		t.Error(got)
	}
	p = plan(t, all, retention.Rules{Daily: 1, Zone: "Europe/Berlin"}, now)
	if p.Remove != 3 || !strings.Contains(reasons(p), "second: kept by daily 1 (2026-10-25)") {
		t.Error(reasons(p))
	}
}

func TestAWeekBeginsOnMondayAndMayLieInTwoYears(t *testing.T) {
	all := []retention.Copy{
		good("monday", at(t, "2026-01-05T00:00:00Z")), good("sunday", at(t, "2026-01-04T23:59:59Z")), good("thursday", at(t, "2026-01-01T00:00:00Z")),
		good("old-monday", at(t, "2025-12-29T00:00:00Z")), good("old-sunday", at(t, "2025-12-28T23:59:59Z")),
	}
	p := plan(t, all, retention.Rules{Weekly: 3}, at(t, "2026-01-06T00:00:00Z"))
	want := "monday: kept by weekly 3 (2026-W02)\nsunday: kept by weekly 3 (2026-W01)\nthursday: removed by weekly 3, floor 1\n" +
		"old-monday: removed by weekly 3, floor 1\nold-sunday: kept by weekly 3 (2025-W52)"
	if got := reasons(p); got != want {
		t.Errorf("got\n%s", got)
	}
}

// row makes good copies of a source, an hour apart.
func row(source string, n int, now time.Time) (all []retention.Copy) {
	for i := range n {
		c := good(fmt.Sprint(source, "-", i), now.Add(-time.Duration(i+1)*time.Hour))
		c.Source = source
		all = append(all, c)
	}
	return all
}

func TestAPlanThatRemovesAllOrTooLargeAShareOfASourceIsImplausible(t *testing.T) {
	now := at(t, "2026-06-07T12:00:00Z")
	for _, tc := range []struct {
		what   string
		copies int
		rules  retention.Rules
		want   string
	}{
		{"half of them", 10, retention.Rules{Count: 5}, ""},
		{"more than half", 10, retention.Rules{Count: 4}, "it removes 6 of 10 good copies of data, a larger share than 0.5"},
		{"a share that is allowed", 10, retention.Rules{Count: 4, MaxShare: new(0.6)}, ""},
		{"nothing", 10, retention.Rules{Count: 10, MaxShare: new(0.0)}, ""},
		{"all", 10, retention.Rules{Age: 60, Floor: new(0), MaxShare: new(1.0)}, "it removes all good copies of data"},
		{"all of a few", 2, retention.Rules{Age: 60, Floor: new(0)}, "it removes all good copies of data"},
		{"all but the floor", 10, retention.Rules{Age: 60, MaxShare: new(1.0)}, ""},
		{"the run of every day", 8, retention.Rules{Count: 7}, ""},
		{"few, as on every day", 3, retention.Rules{Count: 1}, ""},
		{"the run after a week without one", 14, retention.Rules{Count: 7}, ""},
		{"a rule lowered from 10 to 3", 10, retention.Rules{Count: 3}, "it removes 7 of 10 good copies of data, a larger share than 0.5"},
	} {
		if got := plan(t, row("data", tc.copies, now), tc.rules, now).Implausible; got != tc.want {
			t.Errorf("%s: %q", tc.what, got)
		}
	}
}

func TestASourceThatLosesMostOfItsCopiesDoesNotHideBehindHealthyOnes(t *testing.T) {
	now := at(t, "2026-06-07T12:00:00Z")
	all := row("wiped", 10, now.Add(-30*time.Hour))
	for n := range 20 {
		all = append(all, row(fmt.Sprint("healthy-", n), 10, now)...)
	}
	got := plan(t, all, retention.Rules{Age: 24 * 3600}, now)
	if got.Implausible != "it removes 9 of 10 good copies of wiped, a larger share than 0.5" || got.Remove != 9 {
		t.Errorf("%d removals: %q", got.Remove, got.Implausible)
	}
}

func TestAClaimThatIsMadeAgainDoesNotPushOutTheCopiesOfTheOneBefore(t *testing.T) {
	now := at(t, "2026-06-07T12:00:00Z")
	fresh, old := row("data", 3, now), row("data", 3, now.Add(-72*time.Hour))
	for i := range 3 {
		fresh[i].UID, old[i].UID, old[i].Name = "new", "old", fmt.Sprint("old-", i)
	}
	unknown := good("unlabeled", now.Add(-999*time.Hour))
	got := plan(t, append(append(fresh, old...), unknown), retention.Rules{Count: 2}, now)
	var names []string
	for _, d := range got.Removals() {
		names = append(names, d.Name)
	}
	if fmt.Sprint(names) != "[old-2 data-2]" {
		t.Errorf("%v go:\n%s", names, reasons(got))
	}
	// By age, the floor of each stays.
	if got = plan(t, append(append(fresh, old...), unknown), retention.Rules{Age: 24 * 3600}, now); !strings.Contains(reasons(got), "old-0: kept by floor 1") {
		t.Error(reasons(got))
	}
}

func TestBadInputIsNamedByItsField(t *testing.T) {
	for field, r := range map[string]retention.Rules{
		"count":     {Floor: new(3)},
		"age":       {Age: math.NaN()},
		"hourly":    {Hourly: -1},
		"daily":     {Daily: retention.MaxNumber + 1},
		"weekly":    {Weekly: -2, Count: 1},
		"monthly":   {Monthly: -1, Count: 1},
		"floor":     {Count: 1, Floor: new(-1)},
		"max_share": {Count: 1, MaxShare: new(1.1)},
		"zone":      {Count: 1, Zone: "Mars/Olympus"},
	} {
		var wrong *retention.FieldError
		if _, err := retention.Make(nil, r, time.Now()); !errors.As(err, &wrong) || wrong.Field != field || r.Check() == nil {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, age := range []float64{1e-9, 59.9, -1, math.Inf(1), retention.MaxAge + 1} {
		if err := (retention.Rules{Count: 1, Age: age}).Check(); err == nil || !strings.HasPrefix(err.Error(), "age must be between 60 and") {
			t.Errorf("age %v: %v", age, err)
		}
	}
	for _, zone := range []string{"Local", "../etc/passwd", "Europe/Berlin\x00", strings.Repeat("x", 1<<16)} {
		if err := (retention.Rules{Count: 1, Zone: zone}).Check(); err == nil {
			t.Errorf("zone %.20q is taken", zone)
		}
	}
	for field, c := range map[string]retention.Copy{
		"copies.1.name":   good("a", time.Time{}),
		"copies.1.source": {Name: "b", State: retention.Good},
		"copies.1.state":  {Name: "b", Source: "data"},
	} {
		var wrong *retention.FieldError
		if _, err := retention.Make([]retention.Copy{good("a", time.Time{}), c}, retention.Rules{Count: 1}, time.Now()); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
