package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/controlplane/internal/failpoint"
	"slipway.dev/slipway/pkg/task"
)

// Settle looks at nudged Tasks: children begin after their parent's claim, dependents run or fail, cancels reach the
// children, a parent ends when all its children have. More says that the limit was reached.
func (s *Store) Settle(ctx context.Context, limit int) (more bool, err error) {
	n, err := s.lookAt(ctx, "settle/nudged", limit, s.settleOne)
	return n >= limit, err
}

// EnterDue lets delayed Tasks whose time has come enter their lanes; each draws its place under the lane's lock.
func (s *Store) EnterDue(ctx context.Context, limit int) (n int, err error) {
	return s.lookAt(ctx, "settle/due", limit, s.settleOne)
}

// ExpireQueued fails queued Tasks whose queue deadline is over, and stops composite Tasks that ran too long.
func (s *Store) ExpireQueued(ctx context.Context, limit int) (n int, err error) {
	expired, err := s.lookAt(ctx, "settle/expired", limit, s.expireOne)
	if err != nil {
		return expired, err
	}
	overrun, err := s.lookAt(ctx, "settle/overrun", limit, s.overrunOne)
	return expired + overrun, err
}

// lookAt lists Tasks without a lock and looks at each in a transaction of its own.
func (s *Store) lookAt(ctx context.Context, list string, limit int, look func(context.Context, int64) error) (int, error) {
	var keys []int64
	if err := query(s.db.WithContext(ctx), list, args{"limit": limit}, &keys); err != nil {
		return 0, classify(ctx, err)
	}
	var errs []error
	for _, key := range keys {
		err := look(ctx, key)
		if errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			return 0, err
		}
		if err != nil { // one Task must not keep the others from being looked at
			errs = append(errs, fmt.Errorf("settle task %d: %w", key, err))
		}
	}
	return len(keys), errors.Join(errs...)
}

type factsRow struct {
	Key            int64
	ID             string
	State          string
	Children       int
	CancelAt       *time.Time
	IsOutside      bool
	Outside        *string
	RunIf          string
	Stop           string
	Due            bool
	Expired        *bool
	Replaces       []byte
	ParentState    *string
	ParentCancelAt *time.Time
	ParentID       *string
	ParentCancelBy *string
	OpenNeeds      int
	OpenNeed       *string // the first of them
	BadNeed        *string
	OpenChildren   int
	Succeeded      int // of the children
	Failed         int
	Canceled       int
	BadChild       *string
	HolderID       *string
	HeldBy         *string
}

// withFacts runs fn under the lane's lock of a Task, with what decides read after it. A Task that is gone is skipped.
// Settling takes its nudges away first, in a statement after the lock and before the facts: a nudge that is written
// meanwhile is not seen here and stays.
func (s *Store) withFacts(ctx context.Context, key int64, settling bool, fn func(under locked) error) error {
	var e effects
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		e = effects{}
		where, err := findTask(tx, "key = ?", key)
		if errors.Is(err, ErrNotFound) || err == nil && task.State(where.State).Terminal() {
			_, err := exec(tx, "settle/unnudge", args{"task": key})
			return err
		}
		if err != nil {
			return err
		}
		lane, err := lockLaneOf(tx, where)
		if err != nil {
			return err
		}
		if settling {
			if _, err := exec(tx, "settle/unnudge", args{"task": key}); err != nil {
				return err
			}
		}
		u := locked{tx: tx, e: &e, lane: lane, replica: s.cfg.Replica}
		if err := query(tx, "settle/facts", args{"task": key}, &u.facts); err != nil {
			return err
		}
		if task.State(u.facts.State).Terminal() {
			return errEndedMeanwhile
		}
		if err := fn(u); err != nil {
			return err
		}
		failpoint.Hit("settle-before-commit")
		return nil
	})
	if errors.Is(err, errEndedMeanwhile) {
		return nil // the next look removes its nudge
	}
	if err != nil {
		return err
	}
	failpoint.Hit("settle-after-commit")
	s.announce(e)
	return nil
}

// errEndedMeanwhile rolls back, because the lock may have made a lane row that nobody needs.
var errEndedMeanwhile = errors.New("ended meanwhile")

// locked is a Task under its lane's lock.
type locked struct {
	tx      *gorm.DB
	e       *effects
	lane    *laneRow
	replica string
	facts   factsRow
}

func (s *Store) settleOne(ctx context.Context, key int64) error {
	return s.withFacts(ctx, key, true, func(u locked) error {
		failpoint.Hit("settle-decides")
		return u.do(settling(u.facts))
	})
}

// step is what Settle does with a Task.
type step struct {
	do      string
	outside string // stepStay: the gate that is closed now
	ending  ending // stepEnd
}

const (
	stepNothing = ""
	stepStay    = "stay"
	stepEnter   = "enter"
	stepEnd     = "end"    // a queued Task ends
	stepCancel  = "cancel" // as its parent
	stepClose   = "close"  // a composite Task ends
	stepCount   = "count"  // a composite Task notes how many of its children have ended
)

// settling decides: pure and total.
func settling(f factsRow) step {
	parent := task.State(value(f.ParentState))
	parentOver := f.ParentState != nil && (parent.Terminal() || f.ParentCancelAt != nil)
	switch {
	case task.State(f.State).Terminal():
		return step{}
	case parentOver && f.CancelAt == nil:
		return step{do: stepCancel}
	case task.State(f.State) == task.Running:
		switch {
		case f.Children == 0:
			return step{}
		case f.OpenChildren > 0:
			return step{do: stepCount}
		}
		return step{do: stepClose, ending: parentEnding(f)}
	case !f.IsOutside:
		return step{}
	case f.ParentState != nil && parent == task.Queued:
		return step{do: stepStay, outside: outsideParent}
	case f.BadNeed != nil && RunIf(f.RunIf) == AllSucceeded:
		return step{do: stepEnd, ending: ending{
			state: task.Failed, reason: task.ReasonDependency, message: "task " + *f.BadNeed + " did not succeed",
		}}
	case f.OpenNeeds > 0:
		return step{do: stepStay, outside: outsideDependency}
	case !f.Due:
		return step{do: stepStay, outside: outsideDelay}
	}
	return step{do: stepEnter}
}

// parentEnding says how a composite Task ends once all its children have, and how many of them succeeded.
func parentEnding(f factsRow) ending {
	part := fmt.Sprintf("succeeded %d of %d", f.Succeeded, f.Children)
	switch {
	case task.StopReason(f.Stop) == task.StopRunDeadline:
		return ending{state: task.Failed, outcome: task.OutcomeTimedOut, reason: task.ReasonRunDeadline, message: part + "; its children ran longer than its run deadline"}
	case task.StopReason(f.Stop) == task.StopSuperseded:
		return ending{state: task.Canceled, outcome: task.OutcomeCanceled, reason: task.ReasonSuperseded, message: part}
	case f.CancelAt != nil:
		return ending{state: task.Canceled, outcome: task.OutcomeCanceled, reason: task.ReasonCanceled, message: part}
	case f.BadChild != nil:
		return ending{state: task.Failed, outcome: task.OutcomeFailed, reason: task.ReasonChildFailed, message: part + "; child " + *f.BadChild + " did not"}
	}
	return ending{state: task.Succeeded, outcome: task.OutcomeSucceeded, message: part}
}

func (u locked) do(d step) error {
	switch d.do {
	case stepStay:
		_, err := exec(u.tx, "lane/gate", args{"task": u.facts.Key, "outside": d.outside})
		return err
	case stepEnter:
		return u.enter()
	case stepEnd:
		d.ending.by = u.replica
		return endQueuedOne(u.tx, u.e, u.lane, u.facts.Key, d.ending)
	case stepCancel:
		row := cancelRow{Key: u.facts.Key, ID: u.facts.ID, State: u.facts.State, Children: u.facts.Children, CancelAt: u.facts.CancelAt}
		ask := cancelAsk{by: value(u.facts.ParentCancelBy), note: "its parent " + value(u.facts.ParentID) + " was ended"}
		return cancelLocked(u.tx, u.e, u.lane, row, ask)
	case stepClose:
		return u.closeParent(d.ending)
	case stepCount:
		return u.count()
	}
	return nil
}

// count notes how many children have ended. The nudge that led here is gone with it: each end is noted once, several that
// come together in one event.
func (u locked) count() error {
	f := u.facts
	if f.Succeeded+f.Failed+f.Canceled == 0 {
		return nil
	}
	data := facts{"succeeded": f.Succeeded, "failed": f.Failed, "canceled": f.Canceled, "of": f.Children}
	_, err := exec(u.tx, "lane/event", args{"task": f.Key, "attempt": 0, "type": "children", "actor": u.replica, "data": jsonOf(data)})
	return err
}

// enter gives a Task its place in its lane.
func (u locked) enter() error {
	var front *int64
	if len(u.facts.Replaces) > 0 {
		var kinds []string
		if err := json.Unmarshal(u.facts.Replaces, &kinds); err != nil {
			return fmt.Errorf("read what task %s replaces: %w", u.facts.ID, err)
		}
		var err error
		front, err = supersede(u.tx, u.e, replacement{lane: u.lane.Key, kinds: kinds, by: u.replica, id: u.facts.ID})
		var full *FullError
		if err != nil && !errors.As(err, &full) { // no room in front: it queues behind
			return err
		}
	}
	if _, err := exec(u.tx, "lane/enter", args{"task": u.facts.Key, "front": front}); err != nil {
		return err
	}
	return showLane(u.tx, u.e, u.lane.Key)
}

func (u locked) closeParent(how ending) error {
	var done endedTasks
	err := query(u.tx, "settle/end_parent", args{
		"task": u.facts.Key, "state": string(how.state), "outcome": string(how.outcome), "reason": string(how.reason),
		"message": how.message, "replica": u.replica,
	}, &done)
	if err != nil || done.Ended == 0 {
		return err
	}
	if err := done.tell(u.e); err != nil {
		return err
	}
	return releaseLane(u.tx, u.e, u.lane, u.facts.Key)
}

func (s *Store) expireOne(ctx context.Context, key int64) error {
	return s.withFacts(ctx, key, false, func(u locked) error {
		if task.State(u.facts.State) != task.Queued || !value(u.facts.Expired) {
			return nil
		}
		how := ending{state: task.Failed, reason: task.ReasonQueueDeadline, message: u.waited(), by: u.replica}
		return endQueuedOne(u.tx, u.e, u.lane, key, how)
	})
}

// waited names what a Task waited for when its queue deadline came.
func (u locked) waited() string {
	f := u.facts
	switch {
	case f.OpenNeeds > 0:
		return "it waited for task " + value(f.OpenNeed) + ", which it was to run after"
	case f.IsOutside && f.ParentState != nil:
		return "it waited for its parent " + value(f.ParentID)
	case f.HolderID != nil && *f.HolderID != f.ID:
		return "it waited for task " + *f.HolderID + ", which holds lane " + u.lane.Key
	case f.HeldBy != nil:
		return "it was held by " + *f.HeldBy
	}
	return "it waited in its queue"
}

func (s *Store) overrunOne(ctx context.Context, key int64) error {
	return s.withFacts(ctx, key, false, func(u locked) error {
		if task.State(u.facts.State) != task.Running || u.facts.CancelAt != nil {
			return nil
		}
		return askStop(u.tx, u.e, stopAsk{task: key, why: task.StopRunDeadline, by: u.replica, note: "run deadline"})
	})
}
