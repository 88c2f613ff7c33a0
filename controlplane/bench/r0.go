package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/e2e/bench/plain"
	"slipway.dev/slipway/e2e/bench/report"
	"slipway.dev/slipway/e2e/postgres"
	"slipway.dev/slipway/pkg/task"
)

const (
	r0    = "R0"
	queue = "default"
	conns = 16
)

// rounds is how often every scene is played, in turn; BENCH_ROUNDS changes it. BENCH_ONLY plays those alone whose name
// holds it.
func rounds() int {
	const usual = 3
	if n, err := strconv.Atoi(os.Getenv("BENCH_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return usual
}

// scene is one measurement; it adds what it found to the report.
type scene struct {
	name string
	run  func(ctx context.Context, b *rig) error
}

// scenes of R0, in the order of a round.
var scenes = []scene{
	{"machine", machine},
	{"accept", accept},
	{"accept at full speed", acceptFull},
	{"pickup", pickup},
	{"River", river},
	{"cycles over 4 lanes", cycles(4)},
	{"cycles over 50 lanes", cycles(50)},
	{"cycles over 1,000 lanes", cycles(1000)},
	{"cycles behind 100,000", behind},
	{"cycles under a long snapshot", snapshot},
	{"a noisy tenant", noisy},
	{"a thousand schedules", timed},
	{"size of a task", size},
	{"a million finished", history},
}

// bench is one scene's database.
type rig struct {
	*store.Store
	report *report.Report
	url    string
	round  int
	conns  int
}

// R0 measures store and database: a private PostgreSQL with fsync on, no cluster.
func R0(ctx context.Context, r *report.Report) (err error) {
	server, err := postgres.Start(ctx, postgres.Options{Fsync: true, Settings: map[string]string{"shared_buffers": "512MB"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop(postgres.Fast)) }()
	r.Versions["postgres"] = server.Version()
	if r.Versions["river"], err = riverVersion(); err != nil {
		return err
	}
	if err := admin(ctx, server, "CREATE DATABASE template"); err != nil {
		return err
	}
	if err := store.Migrate(ctx, server.URL("template"), slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	for round := range rounds() {
		for n, s := range scenes {
			if !strings.Contains(s.name, os.Getenv("BENCH_ONLY")) {
				continue
			}
			began := time.Now()
			name := fmt.Sprintf("bench_%d_%d", round, n)
			if err := admin(ctx, server, "CREATE DATABASE "+name+" TEMPLATE template"); err != nil {
				return err
			}
			if err := play(ctx, s, &rig{report: r, url: server.URL(name), round: round, conns: conns}); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if err := admin(ctx, server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "round %d: %s took %.1f s\n", round+1, s.name, time.Since(began).Seconds())
		}
	}
	return nil
}

func admin(ctx context.Context, server *postgres.Server, sql string) error {
	return plain.Exec(ctx, server.URL("postgres"), sql)
}

// play runs a scene on a store of its own.
func play(ctx context.Context, s scene, b *rig) error {
	var err error
	if b.Store, err = store.Open(ctx, store.Config{URL: b.url, Replica: "bench", MaxConns: int32(b.conns)}); err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	err = b.SetQueue(ctx, store.Queue{Name: queue, Cap: 300, NamespaceCap: 300, MaxQueued: 1_000_000}, "bench")
	if err == nil {
		err = s.run(ctx, b)
	}
	cancel()
	return errors.Join(err, <-done)
}

// item is a Task with half a KiB of parameters.
func item(lane, namespace string) store.Item {
	mode := task.Strict
	if lane == "" {
		mode = task.Parallel
	}
	filler := make([]byte, 450)
	for i := range filler {
		filler[i] = 'x'
	}
	return store.Item{Task: task.Task{
		Kind: "volume.resize", Namespace: namespace, Lane: lane, Mode: mode, Queue: queue, Class: task.Normal,
		Params: json.RawMessage(fmt.Sprintf(`{"size":"10Gi","note":"%s"}`, filler)), Spec: task.DefaultSpec(),
	}}
}

func (b *rig) atLeast(name string, budget, value float64) error {
	return b.report.One(value, report.Figure{Name: name, Unit: "/s", Rig: r0, Budget: budget, AtLeast: true})
}

// durations keeps how long something took each time, as milliseconds, and shows what figures take of it.
func (b *rig) durations(series string, samples []time.Duration, figures ...report.Figure) error {
	for i := range figures {
		figures[i].Name, figures[i].Unit, figures[i].Rig = series+figures[i].Name, "ms", r0
	}
	return b.report.Keep(series, report.Milliseconds(samples), figures...)
}

// What is shown of durations.
var (
	p50 = report.Figure{Name: ", p50", Of: report.P50}
	p95 = report.Figure{Name: ", p95", Of: report.P95}
	p99 = report.Figure{Name: ", p99", Of: report.P99}
)

func within(f report.Figure, budget float64) report.Figure {
	f.Budget = budget
	return f
}
