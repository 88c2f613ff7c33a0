// Command river measures River (github.com/riverqueue/river), a job queue on PostgreSQL of the same family, the way
// the bench measures Slipway: for comparison, on the same server. It is a module of its own, so that Slipway's has
// nothing of it.
//
//	river DATABASE_URL pickup COOLDOWN   from commit to the worker, 50 inserts a second, in ms
//	river DATABASE_URL insert            inserts a second: one by one, in batches of 100
//
// It prints one JSON object. Allowed imports: River, pgx.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const conns = 16 // as the bench's store

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

// Found is what is printed.
type Found struct {
	Pickup []float64 `json:"pickup,omitempty"` // ms
	Single float64   `json:"single,omitempty"` // a second
	Batch  float64   `json:"batch,omitempty"`  // a second
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("say the database and what to measure")
	}
	config, err := pgxpool.ParseConfig(args[0])
	if err != nil {
		return fmt.Errorf("read the database's URL: %w", err)
	}
	config.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return fmt.Errorf("set up the migration: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	var found Found
	switch {
	case args[1] == "pickup" && len(args) == 3:
		cooldown, err := time.ParseDuration(args[2])
		if err != nil {
			return fmt.Errorf("read the cool-down: %w", err)
		}
		found.Pickup, err = pickup(ctx, pool, cooldown)
		if err != nil {
			return err
		}
	case args[1] == "insert":
		if found.Single, found.Batch, err = insert(ctx, pool); err != nil {
			return err
		}
	default:
		return fmt.Errorf("cannot measure %q", args[1:])
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// work has the same half KiB of parameters as the bench's Tasks.
type work struct {
	Size string `json:"size"`
	Note string `json:"note"`
}

func (work) Kind() string { return "volume_resize" }

func filled() work { return work{Size: "10Gi", Note: strings.Repeat("x", 450)} }

type worker struct {
	river.WorkerDefaults[work]
	seen func(id int64)
}

func (w worker) Work(_ context.Context, job *river.Job[work]) error {
	w.seen(job.ID)
	return nil
}

// pickup measures from commit to the worker's begin.
func pickup(ctx context.Context, pool *pgxpool.Pool, cooldown time.Duration) ([]float64, error) {
	const rate, seconds = 50, 4
	var mu sync.Mutex
	seen, committed := map[int64]time.Time{}, map[int64]time.Time{}
	workers := river.NewWorkers()
	river.AddWorker(workers, worker{seen: func(id int64) {
		mu.Lock()
		defer mu.Unlock()
		seen[id] = time.Now()
	}})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 300}}, Workers: workers,
		FetchCooldown: cooldown, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if err := client.Start(ctx); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	for range rate { // a second to warm up
		if _, err := client.Insert(ctx, filled(), nil); err != nil {
			return nil, fmt.Errorf("insert: %w", err)
		}
		time.Sleep(time.Second / rate)
	}
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	for range rate * seconds {
		<-tick.C
		job, err := client.Insert(ctx, filled(), nil)
		if err != nil {
			return nil, fmt.Errorf("insert: %w", err)
		}
		committed[job.Job.ID] = time.Now()
	}
	time.Sleep(time.Second) // the last one's way
	if err := client.Stop(ctx); err != nil {
		return nil, fmt.Errorf("stop: %w", err)
	}
	var took []float64
	for id, at := range committed {
		if begun, ok := seen[id]; ok {
			took = append(took, max(0, float64(begun.Sub(at).Microseconds())/1000))
		}
	}
	return took, nil
}

// insert measures how many are taken in a second; nobody works them.
func insert(ctx context.Context, pool *pgxpool.Pool) (single, batch float64, err error) {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, 0, fmt.Errorf("make a client: %w", err)
	}
	one := func() (int, error) {
		_, err := client.Insert(ctx, filled(), nil)
		return 1, err
	}
	if _, err := flood(conns, 800*time.Millisecond, one); err != nil { // every connection plans its statements once
		return 0, 0, err
	}
	if single, err = flood(conns, 2*time.Second, one); err != nil {
		return 0, 0, err
	}
	batch, err = flood(4, 2*time.Second, func() (int, error) {
		many := make([]river.InsertManyParams, 100)
		for i := range many {
			many[i] = river.InsertManyParams{Args: filled()}
		}
		_, err := client.InsertMany(ctx, many)
		return len(many), err
	})
	return single, batch, err
}

// flood runs work in parallel for a while and gives the pace.
func flood(workers int, d time.Duration, work func() (int, error)) (float64, error) {
	var all sync.WaitGroup
	var count atomic.Int64
	errs := make([]error, workers)
	began := time.Now()
	for w := range workers {
		all.Go(func() {
			for time.Since(began) < d && errs[w] == nil {
				var n int
				n, errs[w] = work()
				count.Add(int64(n))
			}
		})
	}
	all.Wait()
	return float64(count.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}
