// Package report collects the figures of a benchmark run: a table, raw samples and out/latest.json.
//
// Allowed imports: the standard library.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Metric is one figure with its budget; OK is true where there is none.
type Metric struct {
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Rig    string  `json:"rig"`
	Budget float64 `json:"budget,omitempty"`
	OK     bool    `json:"ok"`
	// AtLeast tells that the budget is a floor.
	AtLeast bool      `json:"at_least,omitempty"`
	Rounds  []float64 `json:"rounds"`
}

// Report collects metrics and raw samples of one run.
type Report struct {
	Machine  map[string]string  `json:"machine"`
	Versions map[string]string  `json:"versions"`
	Taken    time.Time          `json:"taken"`
	Metrics  map[string]*Metric `json:"metrics"`

	dir   string
	order []string
}

// New makes an empty report that keeps its files in dir.
func New(dir string) (*Report, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the report: %w", err)
	}
	r := &Report{
		Machine:  map[string]string{"cpus": fmt.Sprint(runtime.NumCPU()), "os": runtime.GOOS + "/" + runtime.GOARCH, "load": loadAverage()},
		Versions: map[string]string{"go": runtime.Version()},
		Taken:    time.Now().UTC(), Metrics: map[string]*Metric{}, dir: dir,
	}
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for _, line := range strings.Split(string(raw), "\n") {
			if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				r.Machine["cpu"] = strings.TrimSpace(model)
				break
			}
		}
	}
	return r, nil
}

func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}

// Figure is a metric's fixed part.
type Figure struct {
	Name, Unit, Rig string
	Budget          float64
	AtLeast         bool
}

// Add notes the value of one round; the metric's value is the median of its rounds.
func (r *Report) Add(f Figure, value float64) {
	m := r.Metrics[f.Name]
	if m == nil {
		m = &Metric{Unit: f.Unit, Rig: f.Rig, Budget: f.Budget, AtLeast: f.AtLeast}
		r.Metrics[f.Name] = m
		r.order = append(r.order, f.Name)
	}
	m.Rounds = append(m.Rounds, value)
	sorted := slices.Sorted(slices.Values(m.Rounds))
	m.Value = sorted[len(sorted)/2]
	m.OK = m.Budget == 0 || m.AtLeast && m.Value >= m.Budget || !m.AtLeast && m.Value <= m.Budget
}

// Samples keeps the raw durations of one round.
func (r *Report) Samples(name string, round int, samples []time.Duration) (err error) {
	f, err := os.Create(filepath.Join(r.dir, fmt.Sprintf("%s-%d.txt", strings.NewReplacer(" ", "_", ",", "", "/", "_").Replace(name), round)))
	if err != nil {
		return fmt.Errorf("keep samples: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, s := range samples {
		if _, err := fmt.Fprintln(f, s.Microseconds()); err != nil {
			return fmt.Errorf("keep samples: %w", err)
		}
	}
	return nil
}

// Write prints the table and keeps latest.json.
func (r *Report) Write(out io.Writer) error {
	tab := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	lines := []string{
		fmt.Sprintf("\n%s, %s CPUs, load %s; %v\n", r.Machine["cpu"], r.Machine["cpus"], r.Machine["load"], r.Versions),
		"what\trig\tmedian\trounds\tbudget\t",
	}
	for _, name := range r.order {
		m := r.Metrics[name]
		rounds := make([]string, len(m.Rounds))
		for i, v := range m.Rounds {
			rounds[i] = fmt.Sprintf("%.4g", v)
		}
		budget, verdict := "", ""
		if m.Budget > 0 {
			sign, word := "≤", "ok"
			if m.AtLeast {
				sign = "≥"
			}
			if !m.OK {
				word = "MISSED"
			}
			budget, verdict = fmt.Sprintf("%s %g", sign, m.Budget), word
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%.4g %s\t%s\t%s\t%s", name, m.Rig, m.Value, m.Unit, strings.Join(rounds, " "), budget, verdict))
	}
	if _, err := fmt.Fprintln(tab, strings.Join(lines, "\n")); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	if err := tab.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("render the report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "latest.json"), append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("keep the report: %w", err)
	}
	return nil
}

// Quantile of samples, in milliseconds.
func Quantile(samples []time.Duration, q float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Microseconds()) / 1000
}
