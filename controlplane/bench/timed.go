package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"slipway.dev/slipway/controlplane/internal/firing"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/e2e/bench/plain"
)

// timed measures how late a thousand schedules of one instant fire: from the instant to what the ledger notes. Two runners
// share the work, as those of two replicas do; nobody is asked for rights.
func timed(ctx context.Context, b *rig) (err error) {
	const schedules, ahead, patience = 1000, 3 * time.Second, time.Minute
	if err := b.warm(ctx); err != nil {
		return err
	}
	if err := plain.Exec(ctx, b.url, fmt.Sprintf(`INSERT INTO slipway.schedules (namespace, name, every, template, overlap, anchor_at, next_at)
		SELECT 'ns-' || n %% 10, 'nightly-' || n, 3600, '{}', 'allow', c.at - interval '1 hour', c.at
		FROM generate_series(1, %d) n, (SELECT date_trunc('second', slipway.now()) + interval '%d seconds' AS at) c`, schedules, int(ahead.Seconds()))); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	ended := make(chan error, 2)
	for range cap(ended) {
		book := book{b.Store}
		runner := firing.New(firing.Config{Book: book, Rights: book, Log: slog.New(slog.DiscardHandler)})
		go func() { ended <- runner.Run(ctx) }()
	}
	defer func() {
		stop()
		for range cap(ended) {
			err = errors.Join(err, <-ended)
		}
	}()
	for fired := ""; fired != fmt.Sprint(schedules); {
		select {
		case <-ctx.Done():
			return fmt.Errorf("only %s of %d schedules have fired: %w", fired, schedules, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
		if fired, err = plain.Text(ctx, b.url, "SELECT count(*)::text FROM slipway.schedule_fires WHERE outcome = 'fired'"); err != nil {
			return err
		}
	}
	text, err := plain.Text(ctx, b.url, "SELECT json_agg(extract(epoch FROM noted_at - at) ORDER BY noted_at)::text FROM slipway.schedule_fires")
	if err != nil {
		return err
	}
	var seconds []float64
	if err := json.Unmarshal([]byte(text), &seconds); err != nil {
		return fmt.Errorf("read how late they were: %w", err)
	}
	late := make([]time.Duration, len(seconds))
	for i, s := range seconds {
		late[i] = time.Duration(s * float64(time.Second))
	}
	return b.durations("1,000 schedules of one instant: instant to task", late, p50, within(p99, 1000))
}

// book is the store as a firing.Runner wants it.
type book struct{ store *store.Store }

func (k book) Due(ctx context.Context, limit int) ([]firing.Schedule, error) {
	all, err := k.store.DueSchedules(ctx, limit)
	out := make([]firing.Schedule, len(all))
	for i, s := range all {
		out[i] = firing.Schedule(s)
	}
	return out, err
}

func (k book) Fire(ctx context.Context, limit int, verdicts firing.Verdicts) (firing.Pass, error) {
	only := make([]string, 0, len(verdicts))
	for v := range verdicts {
		only = append(only, v.ID)
	}
	done, err := k.store.FireSchedules(ctx, limit, only, func(in store.ScheduleInput) store.SchedulePlan {
		s := firing.Schedule(in.Schedule)
		s.Live, s.Now = in.Live, in.Now
		d := firing.Decide(s, firing.Around{}, in.Now, "")
		out := store.SchedulePlan{Considered: d.Considered, Next: d.Next, Broken: d.Broken, Waits: d.Waits}
		for _, f := range d.Fires {
			made := item("", s.Namespace)
			out.Fires = append(out.Fires, store.ScheduleFire{At: f.At, Nominal: f.Nominal, Outcome: f.Outcome, Why: f.Why, Item: &made})
		}
		return out
	})
	return firing.Pass{More: done.More, NextIn: done.NextIn}, err
}

func (book) Overtaken(context.Context, int) ([]string, error) { return nil, nil }

func (book) Replace(context.Context, string) error { return nil }

func (book) Ask(context.Context, firing.Schedule) (firing.Verdict, error) {
	return firing.Verdict{}, nil
}
