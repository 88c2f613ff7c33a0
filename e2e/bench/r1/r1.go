package r1

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/bench/report"
	"slipway.dev/slipway/e2e/bench/seat"
	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

const name = "R1"

// rounds is how often every scene but the last is played; BENCH_ROUNDS changes it.
func rounds() int {
	const usual = 3
	if n, err := strconv.Atoi(os.Getenv("BENCH_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return usual
}

// part is n, or the part of it that BENCH_PART, as 0.2, asks for: to try the bench itself, never to measure.
func part(n int) int {
	if p, err := strconv.ParseFloat(os.Getenv("BENCH_PART"), 64); err == nil && p > 0 && p < 1 {
		return max(int(p*float64(n)), 1)
	}
	return n
}

// bench is the rig under measurement.
type bench struct {
	*rig.Rig
	report *report.Report
	user   *rig.User
	audit  *audit
}

// scenes of R1 in their order; BENCH_ONLY plays those alone whose name holds it. Each plays its own rounds. The last one
// fills the cluster.
var scenes = []struct {
	name string
	play func(t testing.TB, b *bench)
}{
	{"line at 25/s", line},
	{"throughput, tuned", func(t testing.TB, b *bench) { throughput(t, b, true, part(300)) }},
	{"throughput, stock", func(t testing.TB, b *bench) { throughput(t, b, false, part(40)) }},
	{"kill of a replica", kill},
	{"memory", memory},
}

// R1 measures on fake nodes.
func R1(ctx context.Context, r *report.Report) (err error) {
	defer func() { err = errors.Join(err, rig.Down()) }()
	return seat.Take(func(t testing.TB) {
		on := rig.New(t, rig.Options{
			Profile: local.Fake, Version: rig.Released(t), Durable: true,
			Settings: map[string]string{"shared_buffers": "512MB", "track_commit_timestamp": "on"},
			Env: map[string]string{
				"SLIPWAY_LOG_LEVEL":   "info",
				"SLIPWAY_CALLER_RATE": "0",      // one caller submits everything
				"SLIPWAY_KEEP_JOBS":   "100000", // the loop that is compared with deletes no Job either
			},
		})
		on.Exec(t, "UPDATE slipway.queues SET cap = 20000, ns_cap = 20000, max_queued = 100000")
		r.Versions["postgres"], r.Versions["kubernetes"], r.Versions["kwok"] = on.Postgres.Version(), version(t, on), kwokVersion
		b := &bench{Rig: on, report: r, user: on.User(t, on.Namespace()), audit: &audit{file: on.Cluster.AuditLog}}
		for _, s := range scenes {
			if ctx.Err() != nil {
				t.Fatalf("stopped: %v", ctx.Err())
			}
			if !strings.Contains(s.name, os.Getenv("BENCH_ONLY")) {
				continue
			}
			began := time.Now()
			s.play(t, b)
			fmt.Fprintf(os.Stderr, "R1: %s took %.1f s\n", s.name, time.Since(began).Seconds())
		}
	})
}

const kwokVersion = "v0.8.0"

func version(t testing.TB, on *rig.Rig) string {
	t.Helper()
	v, err := on.Kube.Discovery().ServerVersion()
	if err != nil {
		t.Fatalf("ask for the cluster's version: %v", err)
	}
	return v.GitVersion
}

// task is a submit of an image without a runner: fake nodes run none.
func (b *bench) task(image string) map[string]any {
	return map[string]any{
		"kind": "container.run", "namespace": b.Namespace(), "params": map[string]any{"image": image, "command": []string{"true"}, "wrap": false},
		"spec": map[string]any{"start_deadline": 3600, "run_deadline": 7200},
	}
}

const endsAtOnce = "slipway.dev/fake:ends"

func (b *bench) figure(figure, unit string, f report.Figure) report.Figure {
	f.Name, f.Unit, f.Rig = figure, unit, name
	return f
}

func (b *bench) keep(t testing.TB, series string, samples []float64, figures ...report.Figure) {
	t.Helper()
	if err := b.report.Keep(name+" "+series, samples, figures...); err != nil {
		t.Fatalf("%v", err)
	}
}

func (b *bench) one(t testing.TB, value float64, figure, unit string, budget float64) {
	t.Helper()
	if err := b.report.One(value, report.Figure{Name: figure, Unit: unit, Rig: name, Budget: budget}); err != nil {
		t.Fatalf("%v", err)
	}
}
