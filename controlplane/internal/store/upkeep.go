package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

// LaneDifference is one thing that a lane shows otherwise than its Tasks say.
type LaneDifference struct {
	Lane, Field    string
	Shown, Derived string
	Repaired       bool
}

// LaneCheck is what a comparison of some lanes with their Tasks found.
type LaneCheck struct {
	Checked     int
	Differences []LaneDifference
	Next        string // empty: that was all
}

// CheckLanes builds from their Tasks what the lanes after a key must show, at most limit of them, and compares. It holds
// no lock.
func (s *Store) CheckLanes(ctx context.Context, after string, limit int) (LaneCheck, error) {
	return compareLanes(s.db.WithContext(ctx), after, limit, nil)
}

// compareLanes looks at the lanes after a key, or at the given ones alone.
func compareLanes(tx *gorm.DB, after string, limit int, only []string) (LaneCheck, error) {
	var row struct {
		Checked     int
		Last        string
		Differences []byte
	}
	var given *string
	if only != nil {
		text := jsonOf(only)
		given = &text
	}
	if err := query(tx, "upkeep/compare", args{"after": after, "limit": limit, "only": given}, &row); err != nil {
		return LaneCheck{}, classify(tx.Statement.Context, fmt.Errorf("compare lanes with their tasks: %w", err))
	}
	c := LaneCheck{Checked: row.Checked}
	if row.Checked >= limit {
		c.Next = row.Last
	}
	if len(row.Differences) > 0 {
		if err := json.Unmarshal(row.Differences, &c.Differences); err != nil {
			return LaneCheck{}, fmt.Errorf("read the differences of lanes: %w", err)
		}
	}
	return c, nil
}

// RepairLane sets right what one lane shows, under its lock, and gives what differed then.
func (s *Store) RepairLane(ctx context.Context, key, actor string) ([]LaneDifference, error) {
	var found []LaneDifference
	a := audit{actor: actor, verb: "repair", resource: "lanes", name: key}
	err := s.audited(ctx, a, func(tx *gorm.DB, e *effects, a *audit) error {
		var rows []laneRow
		if err := query(tx, "lane/lock", args{"lane": key}, &rows); err != nil {
			return err
		}
		c, err := compareLanes(tx, "", 1, []string{key})
		if found = c.Differences; err != nil || len(found) == 0 {
			a.verb = ""
			return err
		}
		if len(rows) == 0 {
			if err := makeLane(tx, key); err != nil {
				return err
			}
		}
		shown, derived := facts{}, facts{}
		for i, d := range found {
			shown[d.Field], derived[d.Field], found[i].Repaired = d.Shown, d.Derived, true
		}
		a.before, a.after = shown, derived
		for _, step := range []string{"upkeep/left_over", "upkeep/set_right"} {
			if _, err := exec(tx, step, args{"lane": key}); err != nil {
				return err
			}
		}
		return showLane(tx, e, key)
	})
	if err != nil {
		return nil, fmt.Errorf("repair lane %s: %w", key, err)
	}
	return found, nil
}

// makeLane makes the lane in which a Task stands, and locks it.
func makeLane(tx *gorm.DB, key string) error {
	where, err := findTask(tx, "state IN ('queued', 'running') AND lane = ?", key)
	if err == nil {
		_, err = lockLaneOf(tx, where)
	}
	return err
}

// Released is the end of the Attempt that a lane was taken from.
type Released struct {
	TaskID      string
	State       task.State
	Outcome     task.Outcome
	Reason      task.Reason
	Number      int
	Fence       int64
	MayStillRun []string
}

// ForceRelease ends the live Attempt of a lane by hand, without proof that it has stopped. A *HinderedError says that
// none is there.
func (s *Store) ForceRelease(ctx context.Context, key, actor, reason string) (Released, error) {
	var out Released
	reason = clean(reason, maxNote)
	a := audit{actor: actor, verb: "force-release", resource: "lanes", name: key}
	err := s.audited(ctx, a, func(tx *gorm.DB, e *effects, a *audit) error {
		held, err := readHolder(tx, key)
		if err != nil {
			return err
		}
		t, err := readTask(tx, held.TaskKey)
		if err != nil {
			return err
		}
		f := finish{attempt: held.ID, fence: held.Fence, replica: actor, verdict: task.ForceRelease(t.Spec, held, actor, reason)}
		f.verdict.Message = clean(f.verdict.Message, maxMessage)
		if err := f.run(tx); err != nil {
			return err
		}
		*e = f.effects
		e.attempts = append(e.attempts, held.ID) // somebody closes it in the cluster
		out = Released{
			TaskID: t.ID, State: f.result.Task.State, Outcome: f.verdict.Outcome, Reason: f.verdict.Reason, Number: held.Number,
			Fence: held.Fence, MayStillRun: task.MayStillRun(held),
		}
		a.namespace = held.Namespace
		a.before = facts{"task": t.ID, "attempt": held.Number, "fence": held.Fence}
		a.after = facts{"state": out.State, "outcome": out.Outcome, "reason": reason, "may_still_run": out.MayStillRun}
		return nil
	})
	if err != nil {
		return Released{}, fmt.Errorf("take lane %s from its holder: %w", key, err)
	}
	return out, nil
}

// readHolder locks a lane and reads the Attempt that is live in it.
func readHolder(tx *gorm.DB, key string) (task.Attempt, error) {
	var lanes []laneRow
	if err := query(tx, "lane/lock", args{"lane": key}, &lanes); err != nil {
		return task.Attempt{}, err
	}
	if len(lanes) == 0 {
		return task.Attempt{}, ErrNotFound
	}
	var ids []int64
	if err := query(tx, "upkeep/live", args{"lane": key}, &ids); err != nil {
		return task.Attempt{}, err
	}
	switch {
	case len(ids) > 0:
		return readAttempt(tx, ids[0])
	case lanes[0].Holder == nil:
		return task.Attempt{}, &HinderedError{Reason: HinderFree}
	}
	t, err := readTask(tx, *lanes[0].Holder)
	if err != nil {
		return task.Attempt{}, err
	}
	return task.Attempt{}, &HinderedError{ID: t.ID, State: t.State, Reason: HinderComposite}
}

// idleFor is how long nothing was claimed in a lane before its row is swept.
const idleFor = time.Hour

// idleLanes remembers which fence was the newest an hour ago: a lane whose last claim is older has been idle since. All
// instants are the database's.
type idleLanes struct {
	mu        sync.Mutex
	markedAt  time.Time
	mark      int64
	sweeping  bool
	olderThan int64
	after     string
}

// SweepLanes removes the rows of lanes in which nothing was claimed for an hour and nothing stands, looking at up to limit
// lanes. It goes through all of them once an hour; more says that it is not through yet.
func (s *Store) SweepLanes(ctx context.Context, limit int) (more bool, err error) {
	m := &s.idle
	m.mu.Lock()
	defer m.mu.Unlock()
	var row struct {
		Now   time.Time
		Fence int64
	}
	if err := query(s.db.WithContext(ctx), "upkeep/mark", nil, &row); err != nil {
		return false, classify(ctx, fmt.Errorf("sweep idle lanes: %w", err))
	}
	switch {
	case m.markedAt.IsZero():
		m.markedAt, m.mark = row.Now, row.Fence
	case !m.sweeping && row.Now.Sub(m.markedAt) >= idleFor:
		m.sweeping, m.olderThan, m.after = true, m.mark, ""
		m.markedAt, m.mark = row.Now, row.Fence
	}
	if !m.sweeping {
		return false, nil
	}
	seen, last, err := s.sweepSome(ctx, m.after, m.olderThan, limit)
	if err != nil {
		return false, fmt.Errorf("sweep idle lanes: %w", err)
	}
	m.after, m.sweeping = last, seen >= limit
	return m.sweeping, nil
}

func (s *Store) sweepSome(ctx context.Context, after string, fence int64, limit int) (seen int, last string, err error) {
	err = s.inTx(ctx, func(tx *gorm.DB) error {
		var row struct {
			Seen int
			Last string
			Idle []byte
		}
		if err := query(tx, "upkeep/idle", args{"after": after, "fence": fence, "limit": limit}, &row); err != nil {
			return err
		}
		seen, last = row.Seen, row.Last
		if len(row.Idle) == 0 {
			return nil
		}
		_, err := exec(tx, "upkeep/sweep", args{"lanes": string(row.Idle)})
		return err
	})
	return seen, last, err
}
