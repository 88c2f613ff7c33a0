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
	return b.durations("accept at 200/s", samples, p50, within(p99, 60))
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
	if err := b.atLeast("single submits, 16 clients", 1500, n); err != nil {
		return err
	}
	n, err = b.flood(ctx, 4, 2*time.Second, func(ctx context.Context, _, n int) (int, error) {
		items := make([]store.Item, 100)
		for i := range items {
			items[i] = item(fmt.Sprintf("volume:ns/%d", (n*7+i)%350), "ns")
		}
		_, err := b.Enqueue(ctx, store.Batch{Caller: "bench", Items: items})
		return len(items), err
	})
	return errors.Join(err, b.atLeast("tasks in batches of 100, 350 shared lanes", 8000, n))
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
	if err := b.warm(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &pickups{rig: b, claimed: map[string]time.Time{}}
	done := make(chan error, 1)
	go func() { done <- p.dispatch(ctx) }()
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	committed := map[string]time.Time{}
	for n := range rate * seconds {
		<-tick.C
		it := item(fmt.Sprint("volume:ns/", n), "ns")
		it.Task.Queue = pickupQueue
		out, err := b.Enqueue(ctx, store.Batch{Caller: "bench", Items: []store.Item{it}})
		if err != nil {
			return err
		}
		committed[out[0].Task.ID] = time.Now()
		if err := p.finish(ctx); err != nil {
			return err
		}
	}
	time.Sleep(100 * time.Millisecond) // the last one's way
	cancel()
	if err := <-done; err != nil {
		return err
	}
	var samples []time.Duration
	for id, at := range committed {
		if claimed, ok := p.claimed[id]; ok {
			samples = append(samples, max(0, claimed.Sub(at)))
		}
	}
	return errors.Join(
		b.durations("pickup at 50/s", samples, p50, within(p95, 10)),
		b.report.One(float64(len(committed)-len(samples)), report.Figure{Name: "pickup, never woken", Unit: "tasks", Rig: r0, Budget: report.Zero}),
	)
}

const pickupQueue = "volume"

// pickups is a dispatcher that notes when it got what.
type pickups struct {
	*rig
	mu      sync.Mutex
	claimed map[string]time.Time
	pending []store.Claimed
}

func (p *pickups) dispatch(ctx context.Context) error {
	for {
		select {
		case q := <-p.QueueWakes():
			if q != pickupQueue {
				continue
			}
		case <-ctx.Done():
			return nil
		}
		got, err := p.Claim(ctx, pickupQueue, 20)
		if err != nil {
			if ctx.Err() != nil {
				err = nil // the scene is over
			}
			return err
		}
		p.mu.Lock()
		for _, c := range got.Claims {
			p.claimed[c.Task.ID] = time.Now()
		}
		p.pending = append(p.pending, got.Claims...)
		p.mu.Unlock()
	}
}

// finish ends what was picked up, so that the caps never fill.
func (p *pickups) finish(ctx context.Context) error {
	p.mu.Lock()
	ended := p.pending
	p.pending = nil
	p.mu.Unlock()
	for _, c := range ended {
		if _, err := p.Finish(ctx, c.Attempt.ID, c.Attempt.Fence, success, store.Ending{}); err != nil {
			return err
		}
	}
	return nil
}

var success = task.Verdict{Outcome: task.OutcomeSucceeded, Spends: task.SpendsRetry, Started: true, Rule: "1 report"}

// machine measures what this machine gives a plain program at this moment: single-row commits, 16 clients.
func machine(ctx context.Context, b *rig) error {
	n, err := plain.Commits(ctx, b.url, conns, 2*time.Second)
	return errors.Join(err, b.atLeast("for comparison: plain one-row commits, 16 clients", report.NoBudget, n))
}
