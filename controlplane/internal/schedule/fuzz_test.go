package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// within fails what takes longer than anything here may; inputs that hang are cut by the fuzzer itself.
func within(t *testing.T, what string, limit time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > limit {
		t.Errorf("%s took %s", what, took)
	}
}

func FuzzParseRefusesByFieldOrGivesARuleThatFires(f *testing.F) {
	for _, text := range append(oracleExpressions, "TZ=0", "TZ=", "CRON_TZ=UTC * * * * *", "@every 1ns", "@daily", ", * * * *", "*,5 * * * *", "0 0 30 2 *", "0 0 29 2 0-7/3") {
		f.Add(text, "UTC", int64(0))
	}
	f.Add("", "Local", int64(time.Second))
	f.Add("", "", int64(-5))
	f.Add("0 0 * * *", "../../etc/passwd", int64(0))
	f.Fuzz(func(t *testing.T, text, zone string, every int64) {
		within(t, "parse", 10*time.Second, func() {
			r, err := Parse(Spec{Cron: text, Zone: zone, Every: time.Duration(every), Anchor: anchor})
			if err != nil {
				var invalid *InvalidError
				if !errors.As(err, &invalid) || len(invalid.Fields) == 0 || len(err.Error()) > 1000 {
					t.Fatalf("%q %q: %v", text, zone, err)
				}
				for _, field := range invalid.Fields {
					if !strings.HasPrefix(field.Pointer, "/") || field.Reason == "" || !cleanText(field.Reason) {
						t.Fatalf("%q %q: field %+v", text, zone, field)
					}
				}
				return
			}
			if next, ok := r.Next(anchor); !ok || !next.At.After(anchor) {
				t.Fatalf("%q %q %d is accepted and never fires: %v", text, zone, every, next)
			}
			if r.Explain() == "" || r.String() == "" {
				t.Fatalf("%q is not explained", text)
			}
			if every == 0 {
				again, err := Parse(Spec{Cron: r.clock.text, Zone: zone})
				if err != nil || again.clock != r.clock {
					t.Fatalf("%q is understood as %q, which is not the same: %v", text, r.clock.text, err)
				}
			}
		})
		if d, err := ParseEvery(text); err == nil && (d < MinEvery || d > MaxEvery) {
			t.Fatalf("interval %q is %s", text, d)
		}
	})
}

// cleanText says that a reason holds no control character, whatever the input held.
func cleanText(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) < 0
}

func FuzzNextMovesOnAndAgreesWithCount(f *testing.F) {
	names := Zones()
	for i, text := range oracleExpressions {
		f.Add(text, uint16(i*37), anchor.Unix()+int64(i)*20_000_000, uint32(40*3600))
	}
	f.Add("0 0 29 2 *", uint16(0), int64(4133980800), uint32(1))                                        // 2101
	f.Add("*/15 2 * * *", uint16(7), time.Date(2028, 12, 31, 1, 0, 0, 0, time.UTC).Unix(), uint32(9e4)) // the trap
	f.Add("* * * * *", uint16(7), int64(firstAt), uint32(9e4))
	f.Add("* * * * *", uint16(7), int64(lastAt-1000), uint32(9e4))
	f.Add("* * * * *", uint16(7), int64(-1<<63), uint32(9e4))
	f.Fuzz(func(t *testing.T, text string, place uint16, unix int64, width uint32) {
		c, err := parseCron(text)
		if err != nil {
			return
		}
		zone, err := LoadZone(names[int(place)%len(names)])
		if err != nil {
			t.Fatalf("load %s: %v", names[int(place)%len(names)], err)
		}
		r := &Rule{clock: c, zone: zone}
		if unix < firstAt*2 || unix > lastAt*2 {
			unix %= lastAt
		}
		from := time.Unix(unix, 0)
		to := from.Add(time.Duration(width%(40*day)) * time.Second)
		within(t, "next", 10*time.Second, func() {
			at := from
			for range 50 {
				next, ok := r.Next(at)
				if !ok {
					if at.Year() > 0 && at.Year() < 9980 {
						t.Fatalf("%s after %s: nothing in nine years", r, at)
					}
					break
				}
				if !next.At.After(at) || next.Fires && next.Note == NoteNone && next.At.In(zone).Format(wallLayout) != next.Wall {
					t.Fatalf("%s after %s: %+v", r, at, next)
				}
				at = next.At
			}
			list, more := r.Between(from, to, MaxListed)
			if n := r.Count(from, to); !more && n != int64(len(list)) || more && n <= int64(len(list)) {
				t.Fatalf("%s from %s to %s: Count is %d, Between gives %d", r, from, to, n, len(list))
			}
		})
	})
}

func FuzzPlanIsBoundedAndSettlesOnce(f *testing.F) {
	f.Add("* * * * *", uint16(7), int64(0), anchor.Unix(), int64(14*3600), uint8(0), uint16(1), int64(0), int64(0), uint16(0))
	f.Add("*/30 2 * * *", uint16(300), int64(0), anchor.Unix(), int64(60*day), uint8(6), uint16(3), int64(600), int64(3600), uint16(90))
	f.Add("", uint16(7), int64(1), anchor.Unix(), int64(20*365*day), uint8(10), uint16(1000), int64(0), int64(86400), uint16(1))
	f.Add("* * * * *", uint16(9), int64(0), int64(firstAt), int64(lastAt-firstAt), uint8(15), uint16(1000), int64(0), int64(0), uint16(0))
	names := Zones()
	f.Fuzz(func(t *testing.T, text string, place uint16, every, since, off int64, policy uint8, upTo uint16, window, spread int64, blackout uint16) {
		zone := names[int(place)%len(names)]
		spec := Spec{Cron: text, Zone: zone}
		if text == "" {
			spec = Spec{Every: time.Duration(every) * time.Second, Anchor: time.Unix(since, 0), Zone: zone}
		}
		r, err := Parse(spec)
		if err != nil {
			return
		}
		p := Policy{
			Missed:  []MissedPolicy{MissedLatest, MissedSkip, MissedAll, MissedWithin}[policy%4],
			Overlap: []OverlapPolicy{OverlapForbid, OverlapAllow, OverlapReplace, OverlapQueue}[policy/4%4],
			Window:  time.Duration(window) * time.Second, Spread: time.Duration(spread) * time.Second,
		}
		switch p.Missed {
		case MissedAll:
			p.UpTo = int(upTo)
		case MissedWithin:
			p.Within = time.Duration(upTo) * time.Minute
		default:
		}
		if p.Check() != nil || !inRange(since) || off < -lastAt || off > lastAt || !inRange(since+off) {
			return
		}
		s := Schedule{ID: text, Rule: r, Policy: p, Enabled: true, Since: time.Unix(since, 0), Live: int(policy / 16)}
		if blackout > 0 {
			b, err := ParseBlackout(BlackoutSpec{Name: "b", Cron: "0 */3 * * *", Zone: zone, For: time.Duration(blackout) * time.Minute})
			if err == nil {
				s.Blackouts = append(s.Blackouts, b)
			}
		}
		now := time.Unix(since+off, 0)
		within(t, "plan", 10*time.Second, func() { checkPlan(t, s, now) })
	})
}

// checkPlan holds a plan against what every plan promises.
func checkPlan(t *testing.T, s Schedule, now time.Time) {
	t.Helper()
	p := s.Plan(now)
	if len(p.Entries) > MaxLines+1 || p.Last.Before(s.Last) || !p.Due.IsZero() && !p.Due.After(now) {
		t.Fatalf("%s at %s: %d entries, last %s, due %s", s.Rule, now, len(p.Entries), p.Last, p.Due)
	}
	before, fired := s.Since, 0
	for _, e := range p.Entries {
		if !e.At.After(before) || e.At.After(now) || e.Why == "" || e.Count < 1 || e.Late < 0 || e.Count == 1 && (e.Outcome == Gap) == e.Fires {
			t.Fatalf("%s at %s: after %s comes %+v", s.Rule, now, before, e)
		}
		if before = e.At; e.Outcome == Fired {
			fired++
		}
	}
	limit := map[MissedPolicy]int{MissedLatest: 1, MissedSkip: 1, MissedAll: s.Policy.UpTo, MissedWithin: MaxLines}[s.Policy.Missed]
	if s.Policy.Overlap == OverlapForbid || s.Policy.Overlap == OverlapReplace {
		limit = min(limit, 1)
	}
	if fired > limit {
		t.Fatalf("%s at %s: %d fired under %+v", s.Rule, now, fired, s.Policy)
	}
	s.Last = p.Last
	if again := s.Plan(now); len(again.Entries) != 0 || !again.Due.Equal(p.Due) {
		t.Fatalf("%s at %s: a second look settles %d more and is due %s, not %s", s.Rule, now, len(again.Entries), again.Due, p.Due)
	}
}
