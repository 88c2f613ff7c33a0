package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"slipway.dev/slipway/e2e/bench/report"
)

// riverModule is River's part of the bench, from the module's folder: a module and a process of its own.
const riverModule = "e2e/bench/river"

// river measures River's pickup and insert on this scene's database, for comparison.
func river(ctx context.Context, b *rig) (err error) {
	dir, err := os.MkdirTemp("", "slipway-river-")
	if err != nil {
		return fmt.Errorf("make a folder for River: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "river")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir, build.Env = riverModule, append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build River's part: %w\n%s", err, out)
	}
	for _, cooldown := range []string{"100ms", "1ms"} { // its default, and the least
		found, err := b.askRiver(ctx, program, "pickup", cooldown)
		if err != nil {
			return err
		}
		series := "for comparison: River pickup at 50/s, cool-down " + cooldown
		if err := b.report.Keep(series, found.Pickup,
			report.Figure{Name: series + ", p50", Unit: "ms", Rig: r0, Of: report.P50},
			report.Figure{Name: series + ", p95", Unit: "ms", Rig: r0, Of: report.P95}); err != nil {
			return err
		}
	}
	found, err := b.askRiver(ctx, program, "insert")
	if err != nil {
		return err
	}
	return errors.Join(
		b.atLeast("for comparison: River single inserts, 16 clients", report.NoBudget, found.Single),
		b.atLeast("for comparison: River jobs in batches of 100", report.NoBudget, found.Batch),
	)
}

// riverFound is what River's part prints.
type riverFound struct {
	Pickup        []float64
	Single, Batch float64
}

func (b *rig) askRiver(ctx context.Context, program string, args ...string) (found riverFound, err error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append([]string{b.url}, args...)...)
	cmd.Stderr = &said
	raw, err := cmd.Output()
	if err != nil {
		return found, fmt.Errorf("measure River: %w\n%s", err, said.Bytes())
	}
	if err := json.Unmarshal(raw, &found); err != nil {
		return found, fmt.Errorf("read what River's part found: %w", err)
	}
	return found, nil
}

// riverVersion reads it from the go.mod of River's part.
func riverVersion() (string, error) {
	raw, err := os.ReadFile(filepath.Join(riverModule, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("find River's version: %w", err)
	}
	for line := range bytes.Lines(raw) {
		if f := bytes.Fields(line); len(f) >= 2 && string(f[0]) == "github.com/riverqueue/river" {
			return string(f[1]), nil
		}
	}
	return "", errors.New("find River's version: its part does not require it")
}
