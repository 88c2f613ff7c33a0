package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var anchor = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// mustParse reads "EXPRESSION" in a zone.
func mustParse(t testing.TB, expression, zone string) *Rule {
	t.Helper()
	r, err := Parse(Spec{Cron: expression, Zone: zone})
	if err != nil {
		t.Fatalf("parse %q: %v", expression, err)
	}
	return r
}

func TestAnExpressionThatCannotWorkIsRefusedByItsField(t *testing.T) {
	for text, want := range map[string]string{
		" ":                      "is empty; give five fields",
		"TZ=0":                   "/zone",
		"TZ=UTC":                 "/zone",
		"TZ=":                    "/zone",
		"TZ=Local * * * * *":     "/zone",
		"CRON_TZ=UTC 0 0 * * *":  "/zone",
		"0 0 30 2 *":             "no date that exists",
		"0 0 31 4 *":             "no date that exists",
		"0 0 31 2,4,6,9,11 *":    "no date that exists",
		"0 0 30,31 2 ?":          "no date that exists",
		"@every 0s":              "/every",
		"@every -5s":             "/every",
		"@every 1h":              "/every",
		"@EVERY 1h":              "/every",
		"@reboot":                "@daily",
		"@daily x":               "@daily",
		"@Daily":                 "@daily",
		"*/60 * * * *":           "step of 60",
		"0 */24 * * *":           "step of 24",
		"0 0 */31 * *":           "step of 31",
		"0 0 * */12 *":           "step of 12",
		"0 0 * * */7":            "step of 7",
		"0 0 * * 0-7/7":          "leaves only 0",
		"5/60 * * * *":           "step of 60",
		"50/10 * * * *":          "step of 10",
		"*/0 * * * *":            "step of 0",
		"*/ * * * *":             "step is no number",
		"*/-5 * * * *":           "step is no number",
		"*/5/5 * * * *":          "step is no number",
		"*/999999999 * * * *":    "step is no number",
		", * * * *":              "element of the list is empty",
		"1,,2 * * * *":           "element of the list is empty",
		"1, * * * *":             "element of the list is empty",
		"*,5 * * * *":            "stands alone",
		"5,? * * * *":            "stands alone",
		"?/5 * * * *":            "is no number",
		"*-foo * * * *":          "is no number",
		"+5 * * * *":             "is no number",
		"-5 * * * *":             "is no number",
		"0x5 * * * *":            "is no number",
		"005 * * * *":            "is no number",
		"5.5 * * * *":            "is no number",
		"1-2-3 * * * *":          "is no number",
		"60 * * * *":             "out of range",
		"0 24 * * *":             "out of range",
		"0 0 0 * *":              "out of range",
		"0 0 32 * *":             "out of range",
		"0 0 * 0 *":              "out of range",
		"0 0 * 13 *":             "out of range",
		"0 0 * * 8":              "out of range",
		"30-10 * * * *":          "runs backwards",
		"0 22-6 * * *":           "22-23,0-6",
		"0 0 L * *":              "L, W and # are not supported",
		"0 0 15W * *":            "L, W and # are not supported",
		"0 0 * * MON#2":          "neither a number nor a name",
		"0 0 * * MONDAY":         "neither a number nor a name",
		"0 0 * MON *":            "neither a number nor a name",
		"0 JAN * * *":            "is no number",
		"* * * *":                "has 4 fields",
		"0 * * * * *":            "seconds and years are not supported",
		"0 0 0 1 1 ? 2026":       "seconds and years are not supported",
		"* * * * * * * *":        "has 8 fields",
		"0 0 * * *\x00":          "control",
		"0 0\t* * *":             "control",
		"0 0 * * *\n":            "control",
		"0 0 * * ✱":              "non-ASCII",
		"0 0 * * \x80":           "non-ASCII",
		strings.Repeat("*", 1e4): "more than 512",
		strings.Repeat(" ", 1e4): "more than 512",
	} {
		_, err := Parse(Spec{Cron: text, Zone: "UTC"})
		var invalid *InvalidError
		if !errors.As(err, &invalid) || len(invalid.Fields) != 1 || invalid.Fields[0].Pointer != "/cron" || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want /cron … %s", text, err, want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.40q: the error has %d characters", text, len(err.Error()))
		}
	}
}

func TestWhatIsAcceptedMeansWhatItSays(t *testing.T) {
	for _, c := range []struct{ text, same string }{
		{"@yearly", "0 0 1 1 *"},
		{"@annually", "0 0 1 1 *"},
		{"@monthly", "0 0 1 * *"},
		{"@weekly", "0 0 * * 0"},
		{"@daily", "0 0 * * *"},
		{"@midnight", "0 0 * * *"},
		{"@hourly", "0 * * * *"},
		{"0 0 * * 7", "0 0 * * 0"},
		{"0 0 * * SUN", "0 0 * * 0"},
		{"0 0 * * 5-7", "0 0 * * 0,5,6"},
		{"0 0 * * fri-sun", "0 0 * * 0,5,6"},
		{"0 0 * * 1-7/2", "0 0 * * 0,1,3,5"},
		{"0 0 * * sun-sat", "0 0 * * 0-6"},
		{"0 0 * jan,dec *", "0 0 * 1,12 *"},
		{"  0   0  *  *   * ", "0 0 * * *"},
		{"00 05 * * *", "0 5 * * *"},
		{"5/15 * * * *", "5,20,35,50 */1 * * *"},
		{"*/15 * * * *", "0,15,30,45 */1 * * *"},
		{"0 0 29 2 *", "0 0 29 2 ?"},
		{"0 0 31 1-12 *", "0 0 31 1,3,5,7,8,10,12 *"},
		{"0 0 30 2 1", "0 0 30 2 MON"},
	} {
		a, b := mustParse(t, c.text, "UTC").clock, mustParse(t, c.same, "UTC").clock
		a.text, b.text = "", ""
		if a.minute != b.minute || a.hour != b.hour || a.dom != b.dom && c.text != "0 0 31 1-12 *" || a.dow != b.dow || a.real != b.real {
			t.Errorf("%q is %+v, %q is %+v", c.text, a, c.same, b)
		}
	}
}

func TestADayOfMonthAndADayOfWeekThatBothLimitAreOr(t *testing.T) {
	for text, want := range map[string][]string{
		"0 0 13 * 5":  {"2026-03-06", "2026-03-13", "2026-03-20"},
		"0 0 */2 * 1": {"2026-03-01", "2026-03-02", "2026-03-03", "2026-03-05"},
		"0 0 */1 * 1": {"2026-03-02", "2026-03-09"},
		"0 0 ? * 1":   {"2026-03-02", "2026-03-09"},
		"0 0 13 * ?":  {"2026-03-13", "2026-04-13"},
		"0 0 30 2 1":  {"2027-02-01", "2027-02-08"},
	} {
		list, _ := mustParse(t, text, "UTC").Between(anchor.Add(-12*time.Hour), anchor.AddDate(3, 0, 0), len(want))
		for i := range want {
			if list[i].Wall[:10] != want[i] {
				t.Errorf("%q: day %d is %s, want %s", text, i, list[i].Wall[:10], want[i])
			}
		}
	}
}

func TestARuleIsRefusedByEachWrongField(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{}, "/cron"},
		{Spec{Zone: "UTC"}, "/cron"},
		{Spec{Cron: "* * * * *"}, "/zone"},
		{Spec{Cron: "* * * *", Zone: "Mars"}, "/cron /zone"},
		{Spec{Cron: "* * * * *", Zone: "UTC", Every: time.Minute, Anchor: anchor}, "/every"},
		{Spec{Every: time.Minute}, "/anchor"},
		{Spec{Every: time.Minute, Anchor: anchor, Zone: "Mars"}, "/zone"},
		{Spec{Every: 1, Anchor: anchor}, "/every"},
		{Spec{Every: -time.Minute, Anchor: anchor}, "/every"},
		{Spec{Every: 1500 * time.Millisecond, Anchor: anchor}, "/every"},
		{Spec{Every: 367 * 24 * time.Hour, Anchor: anchor}, "/every"},
	} {
		_, err := Parse(c.spec)
		var invalid *InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%+v: got %v", c.spec, err)
			continue
		}
		var named []string
		for _, f := range invalid.Fields {
			named = append(named, f.Pointer)
		}
		if got := strings.Join(named, " "); got != c.want {
			t.Errorf("%+v: refused %s, want %s (%v)", c.spec, got, c.want, err)
		}
	}
}

func TestAnIntervalIsReadAsPeopleWriteIt(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5s": 5 * time.Second, "90s": 90 * time.Second, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour,
		"1d12h": 36 * time.Hour, "366d": MaxEvery,
	} {
		if got, err := ParseEvery(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "5", "s", "0s", "-5s", "+5s", "1ns", "1500ms", "1.5h", "5s5s", "5s1m", "1m1h", "1 h", "99999999d", "9999999999999s", "367d",
		"5s\x00", "5S", "1w", "½h", "31622401s", strings.Repeat("1", 1e4) + "s",
	} {
		var invalid *InvalidError
		if got, err := ParseEvery(text); !errors.As(err, &invalid) || invalid.Fields[0].Pointer != "/every" {
			t.Errorf("%.20q: got %v, %v", text, got, err)
		}
	}
}

func TestExplainSaysWhatTheRuleDoes(t *testing.T) {
	for _, c := range []struct{ text, zone, want string }{
		{"30 2 * * 1-5", "Asia/Tokyo", "At 02:30, on Monday to Friday, Asia/Tokyo time."},
		{"* * * * *", "UTC", "Every minute, every day, UTC time."},
		{"*/15 * * * *", "UTC", "Every 15 minutes, every day, UTC time."},
		{"5/15 * * * *", "UTC", "Every 15 minutes from minute 5 on, every day, UTC time."},
		{"*/7 * * * *", "UTC", "At minutes 0, 7, 14, 21, … 56 (9 in all) of every hour, every day, UTC time."},
		{"0 * * * *", "UTC", "At minute 0 of every hour, every day, UTC time."},
		{"15 */6 * * *", "UTC", "Every 6 hours at minute 15, from 00:15 on, every day, UTC time."},
		{"0,30 9,17 * * *", "UTC", "At 09:00, 09:30, 17:00 and 17:30, every day, UTC time."},
		{"*/15 9-17 * * *", "UTC", "At minutes 0, 15, 30 and 45 of hours 9 to 17, every day, UTC time."},
		{"* 3 * * *", "UTC", "Every minute of hour 3, every day, UTC time."},
		{"0 0 13 * 5", "UTC", "At 00:00, on day 13 of the month or on Friday (either is enough), UTC time."},
		{"0 0 */2 * 1", "UTC", "At 00:00, on days 1, 3, 5, 7, … 31 (16 in all) of the month or on Monday (either is enough), UTC time."},
		{"0 0 1,15 * *", "UTC", "At 00:00, on days 1 and 15 of the month, UTC time."},
		{"0 0 * 1-3,12 6,7", "UTC", "At 00:00, on Saturday and Sunday, in January to March and December, UTC time."},
		{"30 2 * * *", "Europe/Berlin", "At 02:30, every day, Europe/Berlin time. Where clocks change it fires once: right after a gap that leaves it out, at the first pass of a repeated hour."},
		{"0 * * * *", "Africa/Casablanca", "At minute 0 of every hour, every day, Africa/Casablanca time. Where clocks change it fires at each time that the clock shows: twice in a repeated hour, not at all for times left out."},
	} {
		if got := mustParse(t, c.text, c.zone).Explain(); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.text, got, c.want)
		}
	}
	r, err := Parse(Spec{Every: 90 * time.Minute, Anchor: anchor})
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	if got := r.Explain(); got != "Every 1h30m, counted from 2026-03-01T12:00:00Z. Changes of clocks do not matter." {
		t.Errorf("got %s", got)
	}
}
