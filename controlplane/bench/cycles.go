package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/e2e/bench/plain"
)

// cycles measures claim and finish over a number of lanes, at batches of 20 and one at a time.
func cycles(lanes int) func(ctx context.Context, b *rig) error {
	return func(ctx context.Context, b *rig) error {
		per := max(4, 6000/lanes)
		if err := b.fill(ctx, lanes, per); err != nil {
			return err
		}
		for _, batch := range []int{20, 1} {
			if err := b.cycle(ctx, fmt.Sprintf("%d lanes, batch %d", lanes, batch), batch, budgetOf(lanes, batch)); err != nil {
				return err
			}
		}
		return nil
	}
}

// budgetOf is that of DESIGN 13: batches of 20 over 50 to 1,000 lanes. Few lanes are bound by one commit a turn.
func budgetOf(lanes, batch int) float64 {
	if batch == 20 && lanes >= 50 {
		return 1000
	}
	return 0
}

func (b *rig) fill(ctx context.Context, lanes, per int) error {
	const size = 500
	var items []store.Item
	for n := range lanes * per {
		lane := n % lanes
		items = append(items, item(fmt.Sprintf("volume:ns-%d/%d", lane%10, lane), fmt.Sprint("ns-", lane%10)))
		if len(items) == size || n == lanes*per-1 {
			if _, err := b.Enqueue(ctx, store.Batch{Caller: "bench", Items: items}); err != nil {
				return err
			}
			items = nil
		}
	}
	return plain.Exec(ctx, b.url, "ANALYZE")
}

// pace is how a cycle runs.
type pace struct {
	batch   int
	workers int
	d       time.Duration
	every   time.Duration // between two claims of a dispatcher; 0: as fast as it goes
}

// cycle measures claim and finish for a while: two dispatchers and 8 finishers at full speed.
func (b *rig) cycle(ctx context.Context, name string, batch int, budget float64) error {
	warm, full := pace{batch: batch, workers: 16, d: 600 * time.Millisecond}, pace{batch: batch, workers: 8, d: 2 * time.Second}
	if _, _, err := b.turn(ctx, warm); err != nil {
		return err
	}
	n, claims, err := b.turn(ctx, full)
	if err != nil {
		return err
	}
	return errors.Join(b.atLeast("claim + finish, "+name, budget, n), b.durations("claim at full speed, "+name, claims, p50))
}

// turn runs claim and finish at a pace; it gives cycles a second and how long claims took that found something.
func (b *rig) turn(ctx context.Context, p pace) (float64, []time.Duration, error) {
	const dispatchers = 2
	ctx, cancel := context.WithTimeout(ctx, p.d)
	defer cancel()
	t := &turning{rig: b, pace: p, work: make(chan store.Claimed, 300), stop: cancel}
	var finishers, claimers sync.WaitGroup
	began := time.Now()
	for range p.workers {
		finishers.Go(func() { t.finish(ctx) })
	}
	for range dispatchers {
		claimers.Go(func() { t.claim(ctx) })
	}
	claimers.Wait()
	took := time.Since(began).Seconds()
	close(t.work)
	finishers.Wait()
	return float64(t.ended.Load()) / took, t.claims, t.first
}

// turning is a turn under way.
type turning struct {
	*rig
	pace
	work  chan store.Claimed
	stop  func()
	ended atomic.Int64

	mu     sync.Mutex
	claims []time.Duration
	first  error
}

func (t *turning) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == nil {
		t.first = err
		t.stop()
	}
}

func (t *turning) finish(ctx context.Context) {
	for c := range t.work {
		if _, err := t.Finish(context.WithoutCancel(ctx), c.Attempt.ID, c.Attempt.Fence, success, store.Ending{}); err != nil {
			t.fail(err)
			continue
		}
		if ctx.Err() == nil {
			t.ended.Add(1)
		}
	}
}

func (t *turning) claim(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		got, err := t.Claim(context.WithoutCancel(ctx), queue, t.batch)
		if err != nil {
			t.fail(err)
			return
		}
		took := time.Since(start)
		for _, c := range got.Claims {
			t.work <- c
		}
		if len(got.Claims) == 0 {
			time.Sleep(500 * time.Microsecond) // every lane is at work
			continue
		}
		t.mu.Lock()
		t.claims = append(t.claims, took)
		t.mu.Unlock()
		time.Sleep(t.every)
	}
}

// behind measures the same while 100,000 Tasks wait in one lane.
func behind(ctx context.Context, b *rig) error {
	const busy = 100_000
	// Many lanes' worth of rows, made by the database in one go: what is measured is the claim, not the filling.
	seed, err := b.Enqueue(ctx, store.Batch{Caller: "bench", Items: []store.Item{item("volume:busy/1", "busy")}})
	if err != nil {
		return err
	}
	more := fmt.Sprintf(`INSERT INTO slipway.tasks (id, seq, lane, queue, namespace, kind, name, mode, class, executor, params, spec, state, run_at,
			eligible_at, rank, created_by, created_at)
		SELECT gen_random_uuid(), nextval('slipway.task_seq'), lane, queue, namespace, kind, name, mode, class, executor, params, spec, state,
			run_at, eligible_at, rank, created_by, created_at FROM slipway.tasks, generate_series(1, %d) WHERE id = '%s'`, busy, seed[0].Task.ID)
	if err := plain.Exec(ctx, b.url, more); err != nil {
		return err
	}
	if err := b.fill(ctx, 50, 100); err != nil {
		return err
	}
	if err := b.cycle(ctx, "behind 100,000 queued in one lane, batch 20", 20, 0); err != nil {
		return err
	}
	// At a pace below saturation: what a claim itself takes, not how long it waits for a processor.
	_, claims, err := b.turn(ctx, pace{batch: 20, workers: 4, d: 4 * time.Second, every: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	return b.durations("claim of up to 20, behind 100,000, 20 claims/s", claims, p50, within(p99, 10))
}
