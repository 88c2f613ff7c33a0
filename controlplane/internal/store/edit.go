package store

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

// editRow is a Task as it is under its lane's lock.
type editRow struct {
	Key      int64
	ID       string
	State    string
	Attempts int
	Seq      int64
	Outside  string
	Class    int16
	RunAt    time.Time
	Held     bool
	Now      time.Time
}

// edited runs fn on a queued Task under its lane's lock and audits what it did. One that was claimed gives a
// *HinderedError, one that has ended an *EndedError.
func (s *Store) edited(ctx context.Context, id string, a audit, fn func(u edit) error) error {
	if !validID(id) {
		return ErrNotFound
	}
	a.resource, a.name = "tasks", id
	err := s.audited(ctx, a, func(tx *gorm.DB, e *effects, a *audit) error {
		where, err := findTask(tx, "id = ?", id)
		if err != nil {
			return err
		}
		if st := task.State(where.State); st.Terminal() {
			return &EndedError{ID: id, State: st} // before the lock, which would make its lane again
		}
		lane, err := lockLaneOf(tx, where)
		if err != nil {
			return err
		}
		a.namespace = where.Namespace
		u := edit{tx: tx, e: e, lane: lane, audit: a}
		if err := query(tx, "edit/read", args{"task": where.Key}, &u.row); err != nil {
			return err
		}
		switch st := task.State(u.row.State); {
		case u.row.Key == 0:
			return ErrNotFound
		case st.Terminal():
			return &EndedError{ID: id, State: st}
		case st != task.Queued:
			return &HinderedError{ID: id, State: st, Reason: HinderClaimed}
		}
		return fn(u)
	})
	if err != nil {
		return fmt.Errorf("%s task %s: %w", a.verb, id, err)
	}
	return nil
}

// edit is a queued Task under its lane's lock.
type edit struct {
	tx    *gorm.DB
	e     *effects
	lane  *laneRow
	audit *audit
	row   editRow
}

func (u edit) event(kind string, data facts) error {
	_, err := exec(u.tx, "lane/event", args{"task": u.row.Key, "attempt": 0, "type": kind, "actor": u.audit.actor, "data": jsonOf(data)})
	return err
}

// Hold keeps a queued Task from running; in a strict lane those behind it wait too. Asking again changes nothing.
func (s *Store) Hold(ctx context.Context, id, actor, reason string) error {
	reason = clean(reason, maxNote)
	return s.edited(ctx, id, audit{actor: actor, verb: "hold"}, func(u edit) error {
		u.audit.after = facts{"held": true, "reason": reason}
		return u.hold(true, func() error {
			_, err := exec(u.tx, "queue/hold", args{"task": u.row.Key, "actor": actor, "reason": reason})
			return err
		})
	})
}

// Unhold lets a held Task run. Asking again changes nothing.
func (s *Store) Unhold(ctx context.Context, id, actor string) error {
	return s.edited(ctx, id, audit{actor: actor, verb: "unhold"}, func(u edit) error {
		u.audit.after = facts{"held": false}
		return u.hold(false, func() error {
			_, err := exec(u.tx, "queue/unhold", args{"task": u.row.Key})
			return err
		})
	})
}

func (u edit) hold(held bool, note func() error) error {
	if u.row.Held == held {
		u.audit.verb = ""
		return nil
	}
	u.audit.before = facts{"held": u.row.Held}
	if _, err := exec(u.tx, "queue/held", args{"task": u.row.Key, "held": held}); err != nil {
		return err
	}
	if err := note(); err != nil {
		return err
	}
	kind := "unheld"
	if held {
		kind = "held"
	}
	if err := u.event(kind, nil); err != nil {
		return err
	}
	return showLane(u.tx, u.e, u.lane.Key)
}

// TaskChange is what to change of a queued Task.
type TaskChange struct {
	Class *task.Class
	Move  bool      // whether RunAt counts
	RunAt time.Time // zero: at once
}

// ChangeTask changes a queued Task.
func (s *Store) ChangeTask(ctx context.Context, id string, c TaskChange, actor string) error {
	return s.edited(ctx, id, audit{actor: actor, verb: "patch"}, func(u edit) error { return u.change(c) })
}

// change moves a Task within, into or out of its lane. A first run_at that lies ahead keeps a Task outside its lane; one
// in back-off keeps its place, and only its time moves.
func (u edit) change(c TaskChange) error {
	was := u.row
	class := task.Class(was.Class)
	if c.Class != nil {
		class = *c.Class
	}
	due := &was.RunAt
	if c.Move {
		due = nil
		if !c.RunAt.IsZero() {
			at := c.RunAt.Truncate(time.Microsecond) // as the database keeps it
			due = &at
		}
	}
	if class == task.Class(was.Class) && (!c.Move || due != nil && due.Equal(was.RunAt)) {
		u.audit.verb = ""
		return nil
	}
	ahead := due != nil && due.After(was.Now)
	leave := c.Move && ahead && was.Seq != 0 && was.Attempts == 0
	fresh := c.Move && (leave || was.Outside == outsideDelay)
	if _, err := exec(u.tx, "edit/change", args{
		"task": was.Key, "class": int16(class), "run_at": due, "leave": leave, "fresh": fresh,
	}); err != nil {
		return err
	}
	if c.Move && !ahead && was.Outside == outsideDelay {
		if _, err := exec(u.tx, "edit/nudge", args{"task": was.Key}); err != nil {
			return err
		}
		u.e.nudged = true
	}
	before, after := facts{"class": task.Class(was.Class).String(), "run_at": was.RunAt.UTC()}, facts{"class": class.String(), "run_at": "now"}
	if due != nil {
		after["run_at"] = due.UTC()
	}
	u.audit.before, u.audit.after = before, after
	if err := u.event("changed", after); err != nil {
		return err
	}
	return showLane(u.tx, u.e, u.lane.Key)
}

type endedRow struct {
	Key                              int64
	ID, State, Kind, Namespace, Name string
	Lane, CreatedBy                  string
	Parent                           *int64
}

// DeleteTask removes an ended Task with its Attempts, events and kept logs. What still needs it is named by a
// *HinderedError. Its children, which have ended too, stay.
func (s *Store) DeleteTask(ctx context.Context, id, actor string) error {
	if !validID(id) {
		return ErrNotFound
	}
	a := audit{actor: actor, verb: "delete", resource: "tasks", name: id}
	err := s.audited(ctx, a, func(tx *gorm.DB, _ *effects, a *audit) error {
		var row endedRow
		if err := query(tx, "edit/lock_ended", args{"id": id}, &row); err != nil {
			return err
		}
		if row.Key == 0 {
			return ErrNotFound
		}
		if st := task.State(row.State); !st.Terminal() {
			return &HinderedError{ID: id, State: st, Reason: HinderNotEnded}
		}
		var met []struct{ Why, ID, State string }
		if err := query(tx, "edit/in_the_way", args{"task": row.Key}, &met); err != nil {
			return err
		}
		if len(met) > 0 {
			return &HinderedError{ID: met[0].ID, State: task.State(met[0].State), Reason: HinderReason(met[0].Why)}
		}
		a.namespace = row.Namespace
		a.before = facts{
			"kind": row.Kind, "namespace": row.Namespace, "name": row.Name, "lane": row.Lane, "state": row.State, "created_by": row.CreatedBy,
		}
		_, err := exec(tx, "edit/delete", args{"task": row.Key})
		return err
	})
	if err != nil {
		return fmt.Errorf("delete task %s: %w", id, err)
	}
	return nil
}
