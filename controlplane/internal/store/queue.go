package store

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

type queueListRow struct {
	Name                  string
	Cap, NsCap, MaxQueued int
	Rate, Burst           float64
	Paused, Draining      bool
	Note                  string
	Queued, Running       int
}

// Queues lists the queues with what stands in them; Queued is counted up to 10,001.
func (s *Store) Queues(ctx context.Context) ([]Queue, error) {
	var rows []queueListRow
	if err := query(s.db.WithContext(ctx), "queue/list", nil, &rows); err != nil {
		return nil, classify(ctx, fmt.Errorf("list queues: %w", err))
	}
	out := make([]Queue, len(rows))
	for i, r := range rows {
		out[i] = Queue{
			Name: r.Name, Cap: r.Cap, NamespaceCap: r.NsCap, MaxQueued: r.MaxQueued, Rate: r.Rate, Burst: r.Burst,
			Paused: r.Paused, Draining: r.Draining, Note: r.Note, Queued: r.Queued, Running: r.Running,
		}
	}
	return out, nil
}

// SetQueue makes a queue or changes it.
func (s *Store) SetQueue(ctx context.Context, q Queue, actor string) error {
	var rate *float64
	if q.Rate > 0 {
		rate = &q.Rate
	}
	err := s.audited(ctx, audit{actor: actor, verb: "set", resource: "queues", name: q.Name, data: q}, func(tx *gorm.DB, e *effects) error {
		e.queues = append(e.queues, q.Name)
		_, err := exec(tx, "queue/set", args{
			"name": q.Name, "cap": q.Cap, "ns_cap": q.NamespaceCap, "max_queued": q.MaxQueued, "rate": rate, "burst": max(1, q.Burst),
			"paused": q.Paused, "draining": q.Draining, "note": clean(q.Note, maxNote), "actor": actor,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("set queue %s: %w", q.Name, err)
	}
	return nil
}

// audit is one row of who changed what.
type audit struct {
	actor, verb, resource, name string
	data                        any
}

// audited makes a change and its audit row in one transaction.
func (s *Store) audited(ctx context.Context, a audit, fn func(tx *gorm.DB, e *effects) error) error {
	var e effects
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		e = effects{}
		if err := fn(tx, &e); err != nil {
			return err
		}
		_, err := exec(tx, "queue/audit", args{
			"actor": a.actor, "verb": a.verb, "resource": a.resource, "name": a.name,
			"data": string(cleanJSON([]byte(jsonOf(a.data)), maxNote*4)),
		})
		return err
	})
	if err == nil {
		s.announce(e)
	}
	return err
}

// Hold keeps a queued Task from running; in a strict lane those behind it wait too. What runs goes on.
func (s *Store) Hold(ctx context.Context, id, actor, reason string) error {
	return s.hold(ctx, id, true, audit{actor: actor, verb: "hold", resource: "tasks", name: id, data: map[string]string{"reason": reason}})
}

// Unhold lets a held Task run.
func (s *Store) Unhold(ctx context.Context, id, actor string) error {
	return s.hold(ctx, id, false, audit{actor: actor, verb: "unhold", resource: "tasks", name: id})
}

func (s *Store) hold(ctx context.Context, id string, held bool, a audit) error {
	if !validID(id) {
		return ErrNotFound
	}
	err := s.audited(ctx, a, func(tx *gorm.DB, e *effects) error {
		where, err := findTask(tx, "id = ?", id)
		if err != nil {
			return err
		}
		if st := task.State(where.State); st.Terminal() {
			return &EndedError{ID: id, State: st}
		}
		lane, err := lockLaneOf(tx, where)
		if err != nil {
			return err
		}
		n, err := exec(tx, "queue/held", args{"task": where.Key, "held": held})
		if err != nil || n == 0 {
			return err
		}
		statement, more := "queue/unhold", args{"task": where.Key}
		if held {
			reason := a.data.(map[string]string)["reason"]
			statement, more = "queue/hold", args{"task": where.Key, "actor": a.actor, "reason": clean(reason, maxNote)}
		}
		if _, err := exec(tx, statement, more); err != nil {
			return err
		}
		return showLane(tx, e, lane.Key)
	})
	if err != nil {
		return fmt.Errorf("%s task %s: %w", a.verb, id, err)
	}
	return nil
}

// Freeze stops launches of a namespace, a queue or everything for d. What runs goes on; a cancel passes.
func (s *Store) Freeze(ctx context.Context, f Freeze, d time.Duration) (Freeze, error) {
	var made struct {
		ID                   int64
		CreatedAt, ExpiresAt time.Time
	}
	err := s.audited(ctx, audit{actor: f.Actor, verb: "freeze", resource: "freezes", name: f.Namespace + "/" + f.Queue, data: f}, func(tx *gorm.DB, _ *effects) error {
		err := query(tx, "queue/freeze", args{
			"namespace": f.Namespace, "queue": f.Queue, "actor": f.Actor, "reason": clean(f.Reason, maxNote), "seconds": d.Seconds(),
		}, &made)
		return err
	})
	if err != nil {
		return Freeze{}, fmt.Errorf("freeze: %w", err)
	}
	f.ID, f.CreatedAt, f.ExpiresAt = made.ID, made.CreatedAt.UTC(), made.ExpiresAt.UTC()
	return f, nil
}

// Thaw ends a freeze before its time.
func (s *Store) Thaw(ctx context.Context, id int64, actor string) error {
	err := s.audited(ctx, audit{actor: actor, verb: "thaw", resource: "freezes", name: fmt.Sprint(id)}, func(tx *gorm.DB, e *effects) error {
		n, err := exec(tx, "queue/thaw", args{"id": id, "actor": actor})
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		return wakeAll(tx, e)
	})
	if err != nil {
		return fmt.Errorf("thaw freeze %d: %w", id, err)
	}
	return nil
}

func wakeAll(tx *gorm.DB, e *effects) error {
	var names []string
	if err := tx.Table("slipway.queues").Pluck("name", &names).Error; err != nil {
		return err
	}
	e.queues = append(e.queues, names...)
	return nil
}

// Freezes lists the freezes in force.
func (s *Store) Freezes(ctx context.Context) ([]Freeze, error) {
	var rows []Freeze
	if err := query(s.db.WithContext(ctx), "queue/freezes", nil, &rows); err != nil {
		return nil, classify(ctx, fmt.Errorf("list freezes: %w", err))
	}
	return rows, nil
}

// SwitchKind sets where Attempts of a kind run from now on; an empty executor goes back to what each Task says.
func (s *Store) SwitchKind(ctx context.Context, kind string, to task.Executor, actor, reason string) error {
	a := audit{actor: actor, verb: "switch", resource: "kinds", name: kind, data: map[string]string{"executor": string(to), "reason": reason}}
	err := s.audited(ctx, a, func(tx *gorm.DB, e *effects) error {
		var err error
		if to == "" {
			_, err = exec(tx, "queue/unswitch", args{"kind": kind})
		} else {
			_, err = exec(tx, "queue/switch", args{"kind": kind, "executor": string(to), "actor": actor, "reason": clean(reason, maxNote)})
		}
		if err != nil {
			return err
		}
		return wakeAll(tx, e)
	})
	if err != nil {
		return fmt.Errorf("switch kind %s: %w", kind, err)
	}
	return nil
}
