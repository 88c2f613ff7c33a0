package store

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

// Keep says what is kept. Ages count from the end of a Task, and from when the other things were written.
type Keep struct {
	Succeeded, Failed   time.Duration // Failed: canceled ones too
	Events, Logs, Fires time.Duration // events and logs go by whole days, in UTC
	Tasks               int64         // most ended ones
	LogBytes            int64         // of all kept logs together; today's are never removed
}

// Removed is what a run of the retention has removed.
type Removed struct {
	Tasks     int64 `json:"tasks"` // children counted
	Fires     int64 `json:"fires"`
	Keys      int64 `json:"idempotency_keys"`
	EventDays int   `json:"event_days"`
	LogDays   int   `json:"log_days"`
	Strays    int64 `json:"strays,omitempty"` // events and logs of days that had no part of their own
}

// Batches of the retention.
const (
	retainTasks = 100 // trees
	retainRows  = 500
)

// Retain removes, batch by batch, what Keep does not keep, until nothing is left or ctx is done; it waits for no row that
// somebody has locked. A Task that is a child goes with its parent. It stays while something of its tree is open, waited
// for or not closed in the cluster, and where it is the last success of a schedule. What it has removed counts also where
// it ends with an error.
func (s *Store) Retain(ctx context.Context, k Keep) (out Removed, err error) {
	for _, step := range []func(context.Context, Keep, *Removed) error{
		s.retainDays, s.retainStrays, s.retainFires, s.retainKeys, s.retainTasks,
	} {
		if err := step(ctx, k, &out); err != nil {
			return out, fmt.Errorf("remove what is not kept: %w", err)
		}
	}
	return out, nil
}

// drain repeats a batch until it was not full.
func (s *Store) drain(ctx context.Context, limit int, batch func(tx *gorm.DB) (int64, error)) (total int64, err error) {
	for n := int64(limit); n >= int64(limit) && err == nil; total += n {
		if ctx.Err() != nil {
			return total, ctx.Err()
		}
		err = s.inTx(ctx, func(tx *gorm.DB) (err error) {
			n, err = batch(tx)
			return err
		})
		if err != nil {
			n = 0
		}
	}
	return total, err
}

type retainedDay struct {
	Parent string
	Day    time.Time
	Past   bool
	Age    float64
	Bytes  int64
}

// retainDays makes the parts of the coming days, and drops those of days that are over and not kept. A part that somebody
// reads stays until the next run.
func (s *Store) retainDays(ctx context.Context, k Keep, out *Removed) error {
	var made struct{ N int }
	if err := s.unlessBusy(ctx, func(tx *gorm.DB) error { return query(tx, "retention/make_days", nil, &made) }); err != nil {
		return err
	}
	var days []retainedDay
	if err := query(s.db.WithContext(ctx), "retention/days", nil, &days); err != nil {
		return classify(ctx, err)
	}
	for _, d := range days {
		keep, count := k.Events, &out.EventDays
		if d.Parent == "logs" {
			keep, count = k.Logs, &out.LogDays
		}
		tooMuch := d.Parent == "logs" && d.Bytes > k.LogBytes
		if !d.Past || d.Age < keep.Seconds() && !tooMuch {
			continue
		}
		dropped := false
		err := s.unlessBusy(ctx, func(tx *gorm.DB) error {
			_, err := exec(tx, "retention/drop_day", args{"parent": d.Parent, "day": d.Day})
			dropped = err == nil
			return err
		})
		if err != nil {
			return err
		}
		if dropped {
			*count++
		}
	}
	return nil
}

// unlessBusy runs what needs a lock on whole tables, and lets it be where others keep that.
func (s *Store) unlessBusy(ctx context.Context, fn func(tx *gorm.DB) error) error {
	err := s.once(ctx, fn)
	if sqlState(err) == lockNotAvailable {
		return nil
	}
	return classify(ctx, err)
}

func (s *Store) retainStrays(ctx context.Context, k Keep, out *Removed) error {
	for _, stray := range []struct {
		statement string
		keep      time.Duration
	}{{"retention/stray_events", k.Events}, {"retention/stray_logs", k.Logs}} {
		n, err := s.drain(ctx, retainRows, func(tx *gorm.DB) (int64, error) {
			return exec(tx, stray.statement, args{"keep": stray.keep.Seconds(), "limit": retainRows})
		})
		if out.Strays += n; err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) retainFires(ctx context.Context, k Keep, out *Removed) error {
	n, err := s.drain(ctx, retainRows, func(tx *gorm.DB) (int64, error) {
		var row struct{ N int64 }
		err := query(tx, "retention/fires", args{"keep": k.Fires.Seconds(), "limit": retainRows}, &row)
		return row.N, err
	})
	out.Fires += n
	return err
}

func (s *Store) retainKeys(ctx context.Context, _ Keep, out *Removed) error {
	n, err := s.drain(ctx, retainRows, func(tx *gorm.DB) (int64, error) {
		return exec(tx, "retention/keys", args{"limit": retainRows})
	})
	out.Keys += n
	return err
}

// retainTasks goes through the ended Tasks of each state once.
func (s *Store) retainTasks(ctx context.Context, k Keep, out *Removed) error {
	var beyond struct{ Made *time.Time }
	if err := query(s.db.WithContext(ctx), "retention/beyond", args{"most": k.Tasks}, &beyond); err != nil {
		return classify(ctx, err)
	}
	for state, keep := range map[task.State]time.Duration{
		task.Succeeded: k.Succeeded, task.Failed: k.Failed, task.Canceled: k.Failed,
	} {
		page := retainPage{state: state, keep: keep, made: value(beyond.Made), limit: retainTasks}
		for more := true; more; {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			var n int64
			var next retainPage
			err := s.inTx(ctx, func(tx *gorm.DB) (err error) {
				n, next, err = page.run(tx)
				return err
			})
			if sqlState(err) == queryCanceled && page.limit > 1 { // trees so large that a batch of them takes too long
				page.limit = max(page.limit/4, 1)
				continue
			}
			if err != nil {
				return err
			}
			out.Tasks += n
			page, more = next, next.full
		}
	}
	return nil
}

// retainPage is a batch of ended Tasks of one state, after the one that was looked at last.
type retainPage struct {
	state   task.State
	keep    time.Duration
	made    time.Time // what was made until then goes in any case
	afterAt time.Time
	after   int64
	full    bool
	limit   int
}

type treeRow struct {
	Root int64 `json:"root"`
	Key  int64 `json:"key"`
}

func (p retainPage) run(tx *gorm.DB) (n int64, next retainPage, err error) {
	var rows []struct {
		Key       int64
		CreatedAt time.Time
	}
	err = query(tx, "retention/oldest", args{
		"state": string(p.state), "keep": p.keep.Seconds(), "made": p.made, "after_at": p.afterAt, "after": p.after, "limit": p.limit,
	}, &rows)
	if err != nil || len(rows) == 0 {
		return 0, retainPage{}, err
	}
	next = p
	next.after, next.afterAt, next.full = rows[len(rows)-1].Key, rows[len(rows)-1].CreatedAt, len(rows) == p.limit
	roots := make([]int64, len(rows))
	for i, r := range rows {
		roots[i] = r.Key
	}
	keys, err := removable(tx, roots)
	if err != nil || len(keys) == 0 {
		return 0, next, err
	}
	n, err = exec(tx, "retention/remove", args{"keys": jsonOf(keys)})
	return n, next, err
}

// removable locks the trees of roots and gives the Tasks of those that nothing needs.
func removable(tx *gorm.DB, roots []int64) (keys []int64, err error) {
	var trees []treeRow
	if err := query(tx, "retention/trees", args{"roots": jsonOf(roots)}, &trees); err != nil {
		return nil, err
	}
	all := make([]int64, len(trees))
	for i, t := range trees {
		all[i] = t.Key
	}
	var locked []int64
	if err := query(tx, "retention/lock", args{"keys": jsonOf(all)}, &locked); err != nil {
		return nil, err
	}
	var needed []int64
	if err := query(tx, "retention/needed", args{"members": jsonOf(trees)}, &needed); err != nil {
		return nil, err
	}
	mine, stays := map[int64]bool{}, map[int64]bool{}
	for _, k := range locked {
		mine[k] = true
	}
	for _, root := range needed {
		stays[root] = true
	}
	for _, t := range trees {
		stays[t.Root] = stays[t.Root] || !mine[t.Key]
	}
	for _, t := range trees {
		if !stays[t.Root] {
			keys = append(keys, t.Key)
		}
	}
	return keys, nil
}
