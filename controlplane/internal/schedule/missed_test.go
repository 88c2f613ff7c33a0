package schedule

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the page on missed runs anew")

// missedTable is the page for users: what each policy does after three hours off.
func missedTable(t *testing.T) string {
	var page strings.Builder
	page.WriteString(`# After three hours off

A schedule ` + "`*/30 * * * *`" + ` ran at 09:00. Then nothing looked at it until 12:10. This is what the first look does, by policy. It then goes on
at 12:30 in every case. Each instant has its line in the ledger, with the reason.

| missed | overlap | fired | skipped | missed | forbidden |
| --- | --- | --- | --- | --- | --- |
`)
	for _, row := range []struct {
		missed, overlap string
		policy          Policy
		live            int
	}{
		{"`skip`", "`forbid`", Policy{Missed: MissedSkip}, 0},
		{"`skip`, window 15 min", "`forbid`", Policy{Missed: MissedSkip, Window: 15 * time.Minute}, 0},
		{"`latest` (default)", "`forbid` (default)", Policy{}, 0},
		{"`latest`, the run of 09:00 has not ended", "`forbid`", Policy{}, 1},
		{"`latest`, the run of 09:00 has not ended", "`replace`", Policy{Overlap: OverlapReplace}, 1},
		{"`latest`, window 5 min", "`forbid`", Policy{Window: 5 * time.Minute}, 0},
		{"`all` up to 10", "`queue`", Policy{Missed: MissedAll, UpTo: 10, Overlap: OverlapQueue}, 0},
		{"`all` up to 3", "`queue`", Policy{Missed: MissedAll, UpTo: 3, Overlap: OverlapQueue}, 0},
		{"`all` up to 3", "`forbid`", Policy{Missed: MissedAll, UpTo: 3}, 0},
		{"`within` 1 h", "`allow`", Policy{Missed: MissedWithin, Within: time.Hour, Overlap: OverlapAllow}, 0},
	} {
		s := half(t, row.policy)
		s.Live = row.live
		p := s.Plan(clockAt("12:10"))
		if !p.Due.Equal(clockAt("12:30")) {
			t.Errorf("%s: goes on at %s", row.missed, p.Due)
		}
		fmt.Fprintf(&page, "| %s | %s |", row.missed, row.overlap)
		for _, o := range []Outcome{Fired, Skipped, Missed, Forbidden} {
			fmt.Fprintf(&page, " %s |", cell(outcomes(p.Entries, o)))
		}
		page.WriteString("\n")
	}
	page.WriteString(`
skipped: the schedule's own policy leaves it out. missed: it was wanted and came too late, or too many came at once. forbidden: an earlier
run had not ended. More than 1000 instants are not listed one by one: the newest 1000 are, the others are one line with their number.
`)
	return page.String()
}

func cell(at []time.Time) string {
	var out []string
	for _, a := range at {
		out = append(out, a.Format("15:04"))
	}
	if len(out) > 3 {
		return fmt.Sprintf("%s to %s (%d)", out[0], out[len(out)-1], len(out))
	}
	if len(out) == 0 {
		return "–"
	}
	return strings.Join(out, ", ")
}

func TestThePageOnMissedRunsSaysWhatThePlannerDoes(t *testing.T) {
	const file = "../web/docs/missed-runs.md"
	page := missedTable(t)
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatalf("write the page: %v", err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read the page: %v", err)
	}
	if string(kept) != page {
		t.Errorf("%s is not what the planner does; run this test with -update and read the difference:\n%s", file, page)
	}
}
