package volume

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"slipway.dev/slipway/pkg/retention"
)

var planDay = time.Date(2026, 6, 7, 12, 0, 0, 0, time.UTC)

// large is a plan over n snapshots with the longest names there are, of which every second goes.
func large(t *testing.T, n int, keep func(int) bool) keptPlan {
	t.Helper()
	p := keptPlan{At: planDay, Task: "t1", Attempt: 1}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		d := retention.Decision{
			Name:   fmt.Sprintf("data-of-a-very-long-name-x-%08x-%04x-7%03x-%04x-%012x", r.Uint32(), r.Uint32()>>16, r.Uint32()>>20, r.Uint32()>>16, r.Uint64()>>16),
			Source: fmt.Sprint("data-", i%100), Taken: planDay.Add(-time.Duration(i) * 1357 * time.Second),
			Keep: keep(i), Reason: "removed by hourly 24, daily 7, weekly 4, floor 3",
		}
		if d.Keep {
			d.Reason = fmt.Sprintf("kept by hourly 24 (2026-06-07 %02dh +00:00)", i%24)
		} else {
			p.Remove++
		}
		p.Decisions = append(p.Decisions, d)
	}
	return p
}

func unpack(t *testing.T, raw []byte, packed bool) keptPlan {
	t.Helper()
	from := json.NewDecoder(bytes.NewReader(raw))
	if packed {
		unzip, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		from = json.NewDecoder(unzip)
	}
	var p keptPlan
	if err := from.Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPlanOfTenThousandSnapshotsIsStoredWithEachRemovalAndItsReason(t *testing.T) {
	for _, tc := range []struct {
		what   string
		n      int
		keep   func(int) bool
		packed bool
		short  bool
	}{
		{"small", 200, func(i int) bool { return i%2 == 0 }, false, false},
		{"half of them go", 10_000, func(i int) bool { return i%2 == 0 }, true, false},
		{"all but one go", 10_000, func(i int) bool { return i == 0 }, true, false},
		{"many are kept", 36_000, func(i int) bool { return i%5 > 0 }, true, true},
	} {
		p := large(t, tc.n, tc.keep)
		raw, packed, err := packPlan(p)
		if err != nil || packed != tc.packed || len(raw) > maxPlan {
			t.Fatalf("%s: %d bytes, packed %v: %v", tc.what, len(raw), packed, err)
		}
		t.Logf("%s: %d KiB", tc.what, len(raw)>>10)
		kept := unpack(t, raw, packed)
		if !slices.Equal(kept.Removals(), p.Removals()) || kept.Task != "t1" || !kept.At.Equal(planDay) {
			t.Errorf("%s: %d of %d removals are stored", tc.what, len(kept.Removals()), p.Remove)
		}
		if n := kept.Kept["kept by hourly 24"]; (n > 0) != tc.short || tc.short && n != tc.n-p.Remove {
			t.Errorf("%s: kept are %v", tc.what, kept.Kept)
		}
	}
	if _, _, err := packPlan(large(t, 36_000, func(int) bool { return false })); err == nil {
		t.Error("more removals than can be stored are planned all the same")
	}
}

func TestPlansOfOtherRulesGoWhenTheyAreOldOrTheRoomIsNeededTheOldestFirst(t *testing.T) {
	plan := func(age time.Duration, size int) string {
		return fmt.Sprintf(`{"at":%q,"task":%q}`, planDay.Add(-age).Format(time.RFC3339), bytes.Repeat([]byte("x"), size))
	}
	day := 24 * time.Hour
	zipped, err := zip([]byte(plan(40*day, 10)))
	if err != nil {
		t.Fatal(err)
	}
	kept := plans{
		Data: map[string]string{
			"mine": plan(90*day, 300<<10), "young": plan(day, 300<<10), "older": plan(2*day, 300<<10), "old": plan(31*day, 10), "not-a-plan": "x",
		},
		Binary: map[string][]byte{"packed": zipped},
	}
	for _, tc := range []struct {
		size int
		want []string
	}{
		{100, []string{"packed", "old"}},
		{390 << 10, []string{"packed", "old"}},
		{500 << 10, []string{"packed", "old", "older"}},
		{900 << 10, []string{"packed", "old", "older", "young"}},
	} {
		if got := kept.outdated("mine", tc.size, planDay); !slices.Equal(got, tc.want) {
			t.Errorf("for %d bytes %v go, want %v", tc.size, got, tc.want)
		}
	}
}
