package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Stat is what is taken of the samples of a round.
type Stat string

// The stats.
const (
	Only Stat = ""     // the one sample that there is
	P50  Stat = "p50"  // a quantile
	P95  Stat = "p95"  // a quantile
	P99  Stat = "p99"  // a quantile
	Most Stat = "most" // the largest
	Mean Stat = "mean"
	Rate Stat = "rate" // samples are seconds since the start at which something was done: how many a second
)

// Metric is one figure as latest.json shows it. Value is the median of the rounds.
type Metric struct {
	Value   float64   `json:"value"`
	Unit    string    `json:"unit"`
	Rig     string    `json:"rig"`
	Budget  *float64  `json:"budget,omitempty"`
	AtLeast bool      `json:"at_least,omitempty"` // the budget is a floor
	OK      bool      `json:"ok"`                 // true where there is no budget, false where nothing was measured
	Rounds  []float64 `json:"rounds"`

	name string
}

// latest is what latest.json holds.
type latest struct {
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	Taken    time.Time         `json:"taken"`
	Metrics  map[string]Metric `json:"metrics"`
}

// Check computes every figure of a saved report from its kept samples, prints the table and writes latest.json.
func Check(dir string, out io.Writer) error {
	raw, err := os.ReadFile(filepath.Join(dir, figuresFile))
	if err != nil {
		return fmt.Errorf("read the report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("read the report: %w", err)
	}
	r.dir = dir
	var metrics []Metric
	all := map[string]Metric{}
	for _, f := range r.Figures {
		m, err := r.metric(f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if _, twice := all[f.Name]; twice {
			return fmt.Errorf("two figures are called %q", f.Name)
		}
		metrics, all[f.Name] = append(metrics, m), m
	}
	if err := writeJSON(filepath.Join(dir, latestFile), latest{r.Machine, r.Versions, r.Taken, all}); err != nil {
		return err
	}
	return table(out, r, metrics)
}

func (r *Report) metric(f Figure) (Metric, error) {
	m := Metric{name: f.Name, Unit: f.Unit, Rig: f.Rig, AtLeast: f.AtLeast}
	rounds := r.Rounds[f.Series]
	if f.Over != "" {
		rounds = min(rounds, r.Rounds[f.Over])
	}
	if rounds == 0 {
		m.OK, m.Rounds = false, []float64{}
		return m, nil // what it needs was not reached
	}
	for round := range rounds {
		value, err := r.stat(f.Of, f.Series, round)
		if err != nil {
			return m, err
		}
		if f.Over != "" {
			under, err := r.stat(f.Of, f.Over, round)
			if err != nil {
				return m, err
			}
			if under == 0 {
				return m, fmt.Errorf("round %d is a ratio to nothing", round+1)
			}
			value /= under
		}
		m.Rounds = append(m.Rounds, value)
	}
	sorted := slices.Sorted(slices.Values(m.Rounds))
	m.Value = sorted[len(sorted)/2]
	m.OK = true
	if f.Budget != NoBudget {
		budget := max(f.Budget, 0)
		m.Budget = &budget
		m.OK = f.AtLeast && m.Value >= budget || !f.AtLeast && m.Value <= budget
	}
	return m, nil
}

// NoBudget is the budget of a figure that has none; Zero that of one which must be 0.
const (
	NoBudget = 0
	Zero     = -1
)

func (r *Report) stat(of Stat, series string, round int) (float64, error) {
	samples, err := readSamples(samplesFile(r.dir, series, round))
	if err != nil {
		return 0, err
	}
	return of.take(samples)
}

func (s Stat) take(samples []float64) (float64, error) {
	if len(samples) == 0 {
		return 0, fmt.Errorf("a round without a sample")
	}
	sorted := slices.Sorted(slices.Values(samples))
	quantile := func(q float64) float64 { return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))] }
	switch s {
	case Only:
		if len(samples) != 1 {
			return 0, fmt.Errorf("%d samples where one is the figure", len(samples))
		}
		return samples[0], nil
	case P50:
		return quantile(.50), nil
	case P95:
		return quantile(.95), nil
	case P99:
		return quantile(.99), nil
	case Most:
		return sorted[len(sorted)-1], nil
	case Mean:
		sum := 0.
		for _, v := range samples {
			sum += v
		}
		return sum / float64(len(samples)), nil
	case Rate:
		return float64(len(samples)) / max(sorted[len(sorted)-1], 1e-9), nil
	}
	return 0, fmt.Errorf("no stat is called %q", s)
}

func table(out io.Writer, r Report, metrics []Metric) error {
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		versions = append(versions, name+" "+r.Versions[name])
	}
	tab := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	lines := []string{
		fmt.Sprintf("\n%s, %s CPUs, load %s, at the end %s; %s\n", r.Machine["cpu"], r.Machine["cpus"], r.Machine["load"],
			r.Machine["load at the end"], strings.Join(versions, ", ")),
		"what\trig\tmedian\trounds\tbudget\t",
	}
	for _, m := range metrics {
		if len(m.Rounds) == 0 {
			lines = append(lines, fmt.Sprintf("%s\t%s\tnot measured\t\t\tMISSED", m.name, m.Rig))
			continue
		}
		rounds := make([]string, len(m.Rounds))
		for i, v := range m.Rounds {
			rounds[i] = fmt.Sprintf("%.4g", v)
		}
		budget, verdict := "", ""
		if m.Budget != nil {
			sign := "≤"
			if m.AtLeast {
				sign = "≥"
			}
			verdict = "MISSED"
			if m.OK {
				verdict = "ok"
			}
			budget = fmt.Sprintf("%s %g", sign, *m.Budget)
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%.4g %s\t%s\t%s\t%s", m.name, m.Rig, m.Value, m.Unit, strings.Join(rounds, " "), budget, verdict))
	}
	if _, err := fmt.Fprintln(tab, strings.Join(lines, "\n")); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	if err := tab.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}
