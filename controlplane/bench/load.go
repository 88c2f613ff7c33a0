package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/e2e/bench/plain"
	"slipway.dev/slipway/e2e/bench/report"
)

// snapshot measures claims while a long transaction keeps what has died: 100,000 entries of lanes before those that are
// ready, 100,000 of Attempts that were live.
func snapshot(ctx context.Context, b *rig) (err error) {
	const dead = 100_000
	if err := b.fill(ctx, 50, 100); err != nil {
		return err
	}
	calm := pace{batch: 20, workers: 4, d: 3 * time.Second, every: 100 * time.Millisecond}
	_, before, err := b.turn(ctx, calm)
	if err != nil {
		return err
	}
	letGo, err := plain.Hold(ctx, b.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, letGo()) }()
	for _, sql := range []string{
		fmt.Sprintf(`INSERT INTO slipway.lanes (key, queue, namespace, kind, rank)
			SELECT 'volume:ns-' || n %% 10 || '/dead-' || n, '%s', 'ns-' || n %% 10, 'volume.resize', timestamptz '2020-01-01' + n * interval '1 second'
			FROM generate_series(1, %d) n`, queue, dead),
		"DELETE FROM slipway.lanes WHERE rank < timestamptz '2024-01-01'",
		fmt.Sprintf(`SELECT set_config('slipway.binary', '9999', false); INSERT INTO slipway.attempts (task, number, fence, lane, queue, namespace, kind, executor, replica, state, claimed_at)
			SELECT (SELECT min(key) FROM slipway.tasks), 1000 + n, n, 'dead/' || n, '%s', 'ns-' || n %% 10, 'volume.resize', 'job', 'b', 'leased', slipway.now()
			FROM generate_series(1, %d) n`, queue, dead),
		"DELETE FROM slipway.attempts WHERE lane LIKE 'dead/%'",
	} {
		if err := plain.Exec(ctx, b.url, sql); err != nil {
			return err
		}
	}
	if _, _, err := b.turn(ctx, pace{batch: 20, workers: 4, d: 500 * time.Millisecond}); err != nil { // finds out where they end
		return err
	}
	_, during, err := b.turn(ctx, calm)
	if err != nil {
		return err
	}
	return errors.Join(
		b.durations("claim of up to 20, 20 claims/s", before, p50, p99),
		b.durations("claim of up to 20, under a long snapshot and 100,000 dead entries", during, p50, p99),
	)
}

// noisy measures how long Tasks of quiet namespaces take from submit to end at 20 submits/s, alone and while another
// namespace submits nine times as many: as much as the queue can take. A Task holds its place for 100 ms.
func noisy(ctx context.Context, b *rig) error {
	if err := b.SetQueue(ctx, store.Queue{Name: queue, Cap: 20, NamespaceCap: 20, MaxQueued: 1_000_000}, "bench"); err != nil {
		return err
	}
	alone, err := b.takes(ctx, 0)
	if err != nil {
		return err
	}
	beside, err := b.takes(ctx, 180)
	if err != nil {
		return err
	}
	const byItself, amidNoise = "submit to end of a quiet tenant, alone", "submit to end of a quiet tenant, beside 90 % of noise"
	return errors.Join(
		b.durations(byItself, alone, p95),
		b.report.Keep(amidNoise, report.Milliseconds(beside),
			report.Figure{Name: amidNoise + ", p95", Unit: "ms", Rig: r0, Of: report.P95},
			report.Figure{Name: "the same as a ratio", Unit: "x", Rig: r0, Of: report.P95, Over: byItself, Budget: 2}),
	)
}

// takes submits 20 Tasks a second of 5 quiet namespaces, and so many of a noisy one, for 4 s.
func (b *rig) takes(ctx context.Context, noise int) ([]time.Duration, error) {
	const quiet, seconds, hold = 20, 4, 100 * time.Millisecond
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &holding{rig: b, hold: hold, submitted: map[string]time.Time{}}
	done := make(chan error, 1)
	go func() { done <- h.dispatch(ctx) }()
	tick := time.NewTicker(time.Second / quiet)
	defer tick.Stop()
	for n := range quiet * seconds {
		<-tick.C
		var items []store.Item
		for m := range noise / quiet {
			items = append(items, item(fmt.Sprintf("volume:noisy/%d-%d", n, m), "noisy"))
		}
		it := item(fmt.Sprintf("volume:quiet-%d/%d-%d", n%5, n, noise), fmt.Sprintf("quiet-%d", n%5))
		it.Task.ID = uuid.NewString()
		h.note(it.Task.ID)
		if _, err := b.Enqueue(ctx, store.Batch{Caller: "bench", Items: append(items, it)}); err != nil {
			return nil, err
		}
	}
	time.Sleep(time.Second) // the last one's way
	cancel()
	return h.took, <-done
}
