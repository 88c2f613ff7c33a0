package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func kept(t *testing.T, fill func(r *Report)) (dir string, r *Report) {
	t.Helper()
	dir = t.TempDir()
	r, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	fill(r)
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	return dir, r
}

func checked(t *testing.T, dir string) (map[string]Metric, string) {
	t.Helper()
	var out strings.Builder
	if err := Check(dir, &out); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "latest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var l latest
	if err := json.Unmarshal(raw, &l); err != nil {
		t.Fatal(err)
	}
	return l.Metrics, out.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFigureIsTheMedianOfItsRoundsAndJudgedByItsBudget(t *testing.T) {
	dir, _ := kept(t, func(r *Report) {
		for _, round := range [][]float64{{5, 1, 9}, {100, 100, 100}, {7, 8, 6}} {
			must(t, r.Keep("way", round,
				Figure{Name: "within", Unit: "ms", Rig: "R", Of: P50, Budget: 7},
				Figure{Name: "beyond", Unit: "ms", Rig: "R", Of: Most, Budget: 8.9},
				Figure{Name: "floor", Unit: "ms", Rig: "R", Of: P50, Budget: 8, AtLeast: true},
				Figure{Name: "free", Unit: "ms", Rig: "R", Of: Mean}))
		}
		must(t, r.One(1, Figure{Name: "none lost", Unit: "tasks", Rig: "R", Budget: Zero}))
		must(t, r.One(0, Figure{Name: "none doubled", Unit: "tasks", Rig: "R", Budget: Zero}))
	})
	got, text := checked(t, dir)
	for name, want := range map[string]struct {
		value float64
		ok    bool
	}{
		"within": {7, true}, "beyond": {9, false}, "floor": {7, false}, "free": {7, true}, "none lost": {1, false}, "none doubled": {0, true},
	} {
		if m := got[name]; m.Value != want.value || m.OK != want.ok {
			t.Errorf("%s: %v, ok %v; want %v, %v", name, m.Value, m.OK, want.value, want.ok)
		}
	}
	if n := strings.Count(text, "MISSED"); n != 3 {
		t.Errorf("the table shows %d misses, want 3:\n%s", n, text)
	}
}

func TestAFigureFollowsItsSamplesAndNothingElse(t *testing.T) {
	dir, r := kept(t, func(r *Report) {
		must(t, r.Keep("a/b, c", Milliseconds([]time.Duration{time.Second}), Figure{Name: "x", Of: P99, Budget: 500}))
	})
	if got, _ := checked(t, dir); got["x"].OK || got["x"].Value != 1000 {
		t.Fatalf("x is %+v", got["x"])
	}
	must(t, os.WriteFile(samplesFile(r.dir, "a/b, c", 0), []byte("400\n"), 0o600))
	if got, _ := checked(t, dir); !got["x"].OK || got["x"].Value != 400 {
		t.Errorf("with other samples x is %+v", got["x"])
	}
	must(t, os.WriteFile(samplesFile(r.dir, "a/b, c", 0), nil, 0o600))
	if err := Check(dir, new(strings.Builder)); err == nil {
		t.Error("a round without samples has passed")
	}
}

func TestARatioIsTakenRoundByRound(t *testing.T) {
	dir, _ := kept(t, func(r *Report) {
		for _, pair := range [][2]float64{{1, 2}, {30, 10}, {2, 2}} {
			must(t, r.Keep("ours", []float64{pair[0]}, Figure{Name: "ratio", Over: "theirs"}))
			must(t, r.Keep("theirs", []float64{pair[1]}))
		}
	})
	if got, _ := checked(t, dir); got["ratio"].Value != 1 {
		t.Errorf("ratio is %v of %v, want 1", got["ratio"].Value, got["ratio"].Rounds)
	}
}

func TestWhatWasNotReachedIsNotMet(t *testing.T) {
	dir, _ := kept(t, func(r *Report) {
		must(t, r.Keep("ours", []float64{1}, Figure{Name: "ratio", Over: "theirs", Budget: 2}))
	})
	got, text := checked(t, dir)
	if got["ratio"].OK || !strings.Contains(text, "not measured") {
		t.Errorf("ratio is %+v, shown as\n%s", got["ratio"], text)
	}
}

func TestARateCountsWhatWasDoneUntilTheLast(t *testing.T) {
	dir, _ := kept(t, func(r *Report) {
		must(t, r.Keep("done at", []float64{0.5, 2, 1, 1.5}, Figure{Name: "rate", Of: Rate}))
	})
	if got, _ := checked(t, dir); got["rate"].Value != 2 {
		t.Errorf("rate is %v, want 2", got["rate"].Value)
	}
}

func TestANewReportBeginsWithoutTheOneBefore(t *testing.T) {
	dir, _ := kept(t, func(r *Report) { must(t, r.One(1, Figure{Name: "x"})) })
	_, err := New(dir)
	must(t, err)
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%d files are left", len(left))
	}
}
