package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/e2e/bench/report"
	"slipway.dev/slipway/pkg/task"
)

// Accept takes one Task and returns after its commit. The store's own Enqueue stands in for the API until it is set.
var Accept = func(ctx context.Context, b *rig, it store.Item) error {
	_, err := b.Enqueue(ctx, store.Batch{Caller: "bench", Items: []store.Item{it}})
	return err
}

// accept measures single submits at 200/s, each in a lane of its own.
func accept(ctx context.Context, b *rig) error {
	const rate, seconds = 200, 4
	samples := make([]time.Duration, rate*seconds)
	if err := b.warm(ctx); err != nil {
		return err
	}
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	for n := range samples {
		<-tick.C
		all.Go(func() {
			began := time.Now()
			if err := Accept(ctx, b, item(fmt.Sprint("volume:ns/", n), "ns")); err != nil {
				failed.Store(&err)
			}
			samples[n] = time.Since(began)
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	b.add("accept at 200/s, p50", "ms", 0, report.Quantile(samples, .5))
	b.add("accept at 200/s, p99", "ms", 60, report.Quantile(samples, .99))
	return b.report.Samples("accept", b.round, samples)
}

// acceptFull measures how many single submits, and Tasks in batches of 100, are taken in a second.
func acceptFull(ctx context.Context, b *rig) error {
	if err := b.warm(ctx); err != nil {
		return err
	}
	n, err := b.flood(ctx, 16, 2*time.Second, func(ctx context.Context, worker, n int) (int, error) {
		return 1, Accept(ctx, b, item(fmt.Sprintf("volume:ns/%d-%d", worker, n), "ns"))
	})
	if err != nil {
		return err
	}
	b.atLeast("single submits, 16 clients", "/s", 1500, n)
	n, err = b.flood(ctx, 4, 2*time.Second, func(ctx context.Context, worker, n int) (int, error) {
		items := make([]store.Item, 100)
		for i := range items {
			items[i] = item(fmt.Sprintf("volume:ns/%d", (n*7+i)%350), "ns")
		}
		_, err := b.Enqueue(ctx, store.Batch{Caller: "bench", Items: items})
		return len(items), err
	})
	b.atLeast("tasks in batches of 100, 350 shared lanes", "/s", 8000, n)
	return err
}

// warm lets every connection plan its statements once: what is measured is a server that has run for a minute.
func (b *rig) warm(ctx context.Context) error {
	for _, workers := range []int{b.conns, b.conns / 2} {
		_, err := b.flood(ctx, workers, 400*time.Millisecond, func(ctx context.Context, worker, n int) (int, error) {
			return 1, Accept(ctx, b, item(fmt.Sprintf("volume:warm/%d-%d", worker, n), "warm"))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// flood runs work in parallel for a while and gives the pace.
func (b *rig) flood(ctx context.Context, workers int, d time.Duration, work func(ctx context.Context, worker, n int) (int, error)) (float64, error) {
	var all sync.WaitGroup
	var count atomic.Int64
	errs := make([]error, workers)
	began := time.Now()
	for w := range workers {
		all.Go(func() {
			for n := 0; time.Since(began) < d && errs[w] == nil; n++ {
				var done int
				done, errs[w] = work(ctx, w, n)
				count.Add(int64(done))
			}
		})
	}
	all.Wait()
	took := time.Since(began).Seconds()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(count.Load()) / took, nil
}

// pickup measures from commit to claimed, at 50 submits/s, by the wake-up that a dispatcher uses.
func pickup(ctx context.Context, b *rig) error {
	const rate, seconds = 50, 4
	var mu sync.Mutex
	committed := map[string]time.Time{}
	var samples []time.Duration
	var pending []store.Claimed
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		done <- func() error {
			for {
				select {
				case <-b.QueueWakes():
				case <-ctx.Done():
					return nil
				}
				got, err := b.Claim(ctx, queue, 20)
				if err != nil {
					if ctx.Err() != nil {
						return nil
					}
					return err
				}
				at := time.Now()
				mu.Lock()
				for _, c := range got.Claims {
					committed[c.Task.ID+" claimed"] = at
				}
				pending = append(pending, got.Claims...)
				mu.Unlock()
			}
		}()
	}()
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	var ids []string
	for n := range rate * seconds {
		<-tick.C
		out, err := b.Enqueue(ctx, store.Batch{Caller: "bench", Items: []store.Item{item(fmt.Sprint("volume:ns/", n), "ns")}})
		if err != nil {
			return err
		}
		mu.Lock()
		committed[out[0].Task.ID] = time.Now()
		ids = append(ids, out[0].Task.ID)
		ended := pending
		pending = nil
		mu.Unlock()
		for _, c := range ended {
			if _, err := b.Finish(ctx, c.Attempt.ID, c.Attempt.Fence, success, store.Ending{}); err != nil {
				return err
			}
		}
	}
	time.Sleep(100 * time.Millisecond) // the last one's way
	cancel()
	if err := <-done; err != nil {
		return err
	}
	missed := 0
	for _, id := range ids {
		at, ok := committed[id+" claimed"]
		if !ok {
			missed++
			continue
		}
		samples = append(samples, max(0, at.Sub(committed[id])))
	}
	b.add("pickup at 50/s, p50", "ms", 0, report.Quantile(samples, .5))
	b.add("pickup at 50/s, p95", "ms", 10, report.Quantile(samples, .95))
	b.add("pickup, never woken", "tasks", 0, float64(missed))
	return b.report.Samples("pickup", b.round, samples)
}

var success = task.Verdict{Outcome: task.OutcomeSucceeded, Spends: task.SpendsRetry, Started: true, Rule: "1 report"}

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
	return statement(ctx, b.url, "ANALYZE")
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
	b.atLeast("claim + finish, "+name, "/s", budget, n)
	b.add("claim at full speed, "+name+", p50", "ms", 0, report.Quantile(claims, .5))
	return b.report.Samples("claim "+name, b.round, claims)
}

// turn runs claim and finish at a pace; it gives cycles a second and how long claims took that found something.
func (b *rig) turn(ctx context.Context, p pace) (float64, []time.Duration, error) {
	const dispatchers = 2
	work := make(chan store.Claimed, 300)
	ctx, cancel := context.WithTimeout(ctx, p.d)
	defer cancel()
	var finishers, claimers sync.WaitGroup
	var ended atomic.Int64
	var mu sync.Mutex
	var claims []time.Duration
	var first error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = err
			cancel()
		}
	}
	began := time.Now()
	for range p.workers {
		finishers.Go(func() {
			for c := range work {
				if _, err := b.Finish(context.WithoutCancel(ctx), c.Attempt.ID, c.Attempt.Fence, success, store.Ending{}); err != nil {
					fail(err)
					continue
				}
				if ctx.Err() == nil {
					ended.Add(1)
				}
			}
		})
	}
	for range dispatchers {
		claimers.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				got, err := b.Claim(context.WithoutCancel(ctx), queue, p.batch)
				if err != nil {
					fail(err)
					return
				}
				took := time.Since(start)
				for _, c := range got.Claims {
					work <- c
				}
				if len(got.Claims) == 0 {
					time.Sleep(500 * time.Microsecond) // every lane is at work
					continue
				}
				mu.Lock()
				claims = append(claims, took)
				mu.Unlock()
				time.Sleep(p.every)
			}
		})
	}
	claimers.Wait()
	took := time.Since(began).Seconds()
	close(work)
	finishers.Wait()
	return float64(ended.Load()) / took, claims, first
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
	if err := statement(ctx, b.url, more); err != nil {
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
	b.add("claim of up to 20, behind 100,000, 20 claims/s, p50", "ms", 0, report.Quantile(claims, .5))
	b.add("claim of up to 20, behind 100,000, 20 claims/s, p99", "ms", 10, report.Quantile(claims, .99))
	return b.report.Samples("claim calm", b.round, claims)
}

// machine measures what this machine gives a plain program at this moment: single-row commits, 16 clients.
func machine(ctx context.Context, b *rig) error {
	pool, err := pgxpool.New(ctx, b.url+"&pool_max_conns=16")
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE TABLE public.plain (id bigserial PRIMARY KEY, payload text)"); err != nil {
		return err
	}
	filler := strings.Repeat("x", 450)
	n, err := b.flood(ctx, 16, 2*time.Second, func(ctx context.Context, _, _ int) (int, error) {
		_, err := pool.Exec(ctx, "INSERT INTO public.plain (payload) VALUES ($1)", filler)
		return 1, err
	})
	b.atLeast("for comparison: plain one-row commits, 16 clients", "/s", 0, n)
	return err
}
