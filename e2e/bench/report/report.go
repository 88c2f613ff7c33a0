// Package report keeps what a benchmark run measured, as raw samples in files, and checks them against the budgets: the
// figures are computed from those files and from nothing else, so they can be computed again.
//
// Allowed imports: the standard library.
package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Figure says how samples become a number, and what that number may be.
type Figure struct {
	Name, Unit, Rig string
	Series          string // whose samples; Keep fills it in
	Of              Stat   // what of them; default: Only
	Over            string // another series: the figure is the ratio to what Of gives there, round by round
	Budget          float64
	AtLeast         bool // the budget is a floor
}

// Report collects the samples of one run.
type Report struct {
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	Taken    time.Time         `json:"taken"`
	Figures  []Figure          `json:"figures"`
	Rounds   map[string]int    `json:"rounds"` // by series

	dir string
}

const (
	figuresFile = "figures.json"
	latestFile  = "latest.json"
	samplesEnd  = ".samples"
)

// New makes an empty report that keeps its files in dir; those of an earlier run go.
func New(dir string) (*Report, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the report: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(dir, "*"+samplesEnd))
	if err != nil {
		return nil, fmt.Errorf("look for an earlier report: %w", err)
	}
	for _, file := range append(old, filepath.Join(dir, figuresFile), filepath.Join(dir, latestFile)) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove an earlier report: %w", err)
		}
	}
	return &Report{
		Machine: machine(), Versions: map[string]string{"go": runtime.Version()},
		Taken: time.Now().UTC(), Rounds: map[string]int{}, dir: dir,
	}, nil
}

func machine() map[string]string {
	m := map[string]string{"cpus": fmt.Sprint(runtime.NumCPU()), "os": runtime.GOOS + "/" + runtime.GOARCH, "load": loadAverage()}
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m // it is not Linux
	}
	for line := range strings.Lines(string(raw)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m["cpu"] = strings.TrimSpace(model)
			break
		}
	}
	return m
}

func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}

// Keep keeps the samples of one more round of a series, and declares the figures that are made of it.
func (r *Report) Keep(series string, samples []float64, figures ...Figure) (err error) {
	if r.Rounds[series] == 0 {
		for _, f := range figures {
			f.Series = series
			r.Figures = append(r.Figures, f)
		}
	}
	f, err := os.Create(samplesFile(r.dir, series, r.Rounds[series]))
	if err != nil {
		return fmt.Errorf("keep samples: %w", err)
	}
	r.Rounds[series]++
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriter(f)
	for _, s := range samples {
		out.WriteString(strconv.FormatFloat(s, 'g', 8, 64) + "\n") //nolint:errcheck // Flush tells
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("keep samples: %w", err)
	}
	return nil
}

// One keeps a round whose only sample is the figure itself.
func (r *Report) One(value float64, f Figure) error {
	f.Of = Only
	return r.Keep(f.Rig+" "+f.Name, []float64{value}, f)
}

// Save keeps what is needed to check the samples; Check does that.
func (r *Report) Save() error {
	r.Machine["load at the end"] = loadAverage()
	return writeJSON(filepath.Join(r.dir, figuresFile), r)
}

func samplesFile(dir, series string, round int) string {
	name := strings.Map(func(c rune) rune {
		if c == '/' || c == ' ' || c == ',' || c == ':' {
			return '_'
		}
		return c
	}, series)
	return filepath.Join(dir, fmt.Sprintf("%s.%d%s", name, round+1, samplesEnd))
}

func readSamples(file string) (samples []float64, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read samples: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		s, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil {
			return nil, fmt.Errorf("read samples of %s: %w", filepath.Base(file), err)
		}
		samples = append(samples, s)
	}
	return samples, nil
}

func writeJSON(file string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("render %s: %w", filepath.Base(file), err)
	}
	if err := os.WriteFile(file, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("keep %s: %w", filepath.Base(file), err)
	}
	return nil
}

// Milliseconds are durations as samples.
func Milliseconds(all []time.Duration) []float64 {
	out := make([]float64, len(all))
	for i, d := range all {
		out[i] = float64(d.Microseconds()) / 1000
	}
	return out
}
