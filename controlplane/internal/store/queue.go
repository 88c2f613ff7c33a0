package store

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
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
		out[i] = r.queue()
	}
	return out, nil
}

func (r queueListRow) queue() Queue {
	return Queue{
		Name: r.Name, Cap: r.Cap, NamespaceCap: r.NsCap, MaxQueued: r.MaxQueued, Rate: r.Rate, Burst: r.Burst,
		Paused: r.Paused, Draining: r.Draining, Note: r.Note, Queued: r.Queued, Running: r.Running,
	}
}

// SetQueue makes a queue or changes it.
func (s *Store) SetQueue(ctx context.Context, q Queue, actor string) error {
	a := audit{actor: actor, verb: "set", resource: "queues", name: q.Name, after: queueFacts(q)}
	err := s.audited(ctx, a, func(tx *gorm.DB, e *effects, _ *audit) error { return setQueue(tx, e, q, actor) })
	if err != nil {
		return fmt.Errorf("set queue %s: %w", q.Name, err)
	}
	return nil
}

func setQueue(tx *gorm.DB, e *effects, q Queue, actor string) error {
	var rate *float64
	if q.Rate > 0 {
		rate = &q.Rate
	}
	e.queues = append(e.queues, q.Name)
	_, err := exec(tx, "queue/set", args{
		"name": q.Name, "cap": q.Cap, "ns_cap": q.NamespaceCap, "max_queued": q.MaxQueued, "rate": rate, "burst": max(1, q.Burst),
		"paused": q.Paused, "draining": q.Draining, "note": clean(q.Note, maxNote), "actor": actor,
	})
	return err
}

func queueFacts(q Queue) facts {
	return facts{
		"cap": q.Cap, "ns_cap": q.NamespaceCap, "max_queued": q.MaxQueued, "rate": q.Rate, "burst": q.Burst,
		"paused": q.Paused, "draining": q.Draining, "note": q.Note,
	}
}

// ChangeQueue changes a queue that is there: change gets it as it is, under its lock. The verb is for the audit.
func (s *Store) ChangeQueue(ctx context.Context, name, verb, actor string, change func(*Queue)) error {
	a := audit{actor: actor, verb: verb, resource: "queues", name: name}
	err := s.audited(ctx, a, func(tx *gorm.DB, e *effects, a *audit) error {
		var rows []queueListRow
		if err := query(tx, "queue/lock", args{"name": name}, &rows); err != nil {
			return err
		}
		if len(rows) == 0 {
			return ErrNotFound
		}
		q := rows[0].queue()
		was := q
		change(&q)
		if q == was {
			a.verb = ""
			return nil
		}
		a.before, a.after = queueFacts(was), queueFacts(q)
		return setQueue(tx, e, q, actor)
	})
	if err != nil {
		return fmt.Errorf("%s queue %s: %w", verb, name, err)
	}
	return nil
}

// Freeze stops launches of a namespace, a queue or everything for d. What runs goes on; a cancel passes.
func (s *Store) Freeze(ctx context.Context, f Freeze, d time.Duration) (Freeze, error) {
	var made struct {
		ID                   int64
		CreatedAt, ExpiresAt time.Time
	}
	a := audit{actor: f.Actor, verb: "freeze", resource: "freezes", name: f.Namespace + "/" + f.Queue, namespace: f.Namespace}
	a.after = facts{"reason": f.Reason, "seconds": d.Seconds()}
	err := s.audited(ctx, a, func(tx *gorm.DB, _ *effects, _ *audit) error {
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
	err := s.audited(ctx, audit{actor: actor, verb: "thaw", resource: "freezes", name: fmt.Sprint(id)}, func(tx *gorm.DB, e *effects, a *audit) error {
		var was []string
		err := query(tx, "queue/thaw", args{"id": id, "actor": actor}, &was)
		if err == nil && len(was) == 0 {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		a.namespace = was[0]
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

// SwitchKind sets where Attempts of a kind run from now on; an empty executor goes back to what each Task says. With a
// percentage below 100 that is so for as many of the lanes, chosen by their keys: the others run as each Task says.
func (s *Store) SwitchKind(ctx context.Context, to KindSwitch) error {
	if to.Percent == 0 {
		to.Percent = 100
	}
	a := audit{
		actor: to.Actor, verb: "switch", resource: "kinds", name: to.Kind,
		after: facts{"executor": to.Executor, "percent": to.Percent, "reason": to.Reason},
	}
	err := s.audited(ctx, a, func(tx *gorm.DB, e *effects, a *audit) error {
		var was []KindSwitch
		err := query(tx, "queue/switched", args{"kind": to.Kind}, &was)
		if err != nil {
			return err
		}
		if len(was) > 0 {
			a.before = facts{"executor": was[0].Executor, "percent": was[0].Percent, "reason": was[0].Reason}
		}
		if to.Executor == "" {
			_, err = exec(tx, "queue/unswitch", args{"kind": to.Kind})
		} else {
			_, err = exec(tx, "queue/switch", args{
				"kind": to.Kind, "executor": to.Executor, "percent": to.Percent, "actor": to.Actor, "reason": clean(to.Reason, maxNote),
			})
		}
		if err != nil {
			return err
		}
		return wakeAll(tx, e)
	})
	if err != nil {
		return fmt.Errorf("switch kind %s: %w", to.Kind, err)
	}
	return nil
}

// KindSwitch is where Attempts of a kind run from now on, whatever each Task says.
type KindSwitch struct {
	Kind, Executor, Actor, Reason string
	Percent                       int // of the lanes; in SwitchKind 0 is all of them
	ChangedAt                     time.Time
}

// KindSwitches lists the switches that are set.
func (s *Store) KindSwitches(ctx context.Context) ([]KindSwitch, error) {
	var rows []KindSwitch
	if err := query(s.db.WithContext(ctx), "queue/switches", nil, &rows); err != nil {
		return nil, classify(ctx, fmt.Errorf("list kind switches: %w", err))
	}
	return rows, nil
}
