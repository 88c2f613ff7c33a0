package store

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// FiredSchedules is what one pass has done.
type FiredSchedules struct {
	Looked int            // schedules that were planned
	Fires  []ScheduleFire // what was noted
	More   bool           // another pass would find more at once
	NextIn time.Duration  // until the next one is due; 0: none is
}

// DueSchedules lists schedules that are due, without a lock, for what has to be asked of others before they fire: id,
// namespace, name, template, rights and revision.
func (s *Store) DueSchedules(ctx context.Context, limit int) ([]Schedule, error) {
	var rows []struct {
		ID, Namespace, Name string
		Template, Rights    []byte
		Revision            int64
	}
	if err := query(s.db.WithContext(ctx), "schedule/due", args{"limit": limit}, &rows); err != nil {
		return nil, classify(ctx, fmt.Errorf("read due schedules: %w", err))
	}
	out := make([]Schedule, len(rows))
	for i, r := range rows {
		out[i] = Schedule{ID: r.ID, Namespace: r.Namespace, Name: r.Name, Template: r.Template, Rights: r.Rights, Revision: r.Revision}
	}
	return out, nil
}

// FireSchedules plans schedules that are due, and stores in one transaction what the plans say: the Tasks, a row of the
// ledger for each instant, and when to look again. Replicas share the work: a schedule that another one has locked is
// left to it. With only, none but those are looked at. What cannot be planned is marked broken, and the others go on.
func (s *Store) FireSchedules(ctx context.Context, limit int, only []string, plan SchedulePlanner) (FiredSchedules, error) {
	var out FiredSchedules
	var e effects
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		out, e = FiredSchedules{}, effects{}
		var rows []scheduleRow
		if err := query(tx, "schedule/lock_due", args{"limit": limit, "any": only == nil, "ids": jsonOf(only)}, &rows); err != nil {
			return err
		}
		f := firing{store: s, tx: tx, effects: &e}
		if err := f.plan(rows, plan); err != nil {
			return err
		}
		if err := f.apply(); err != nil {
			return err
		}
		out.Looked, out.Fires = len(f.planned), f.fires()
		out.More = len(rows) == limit && len(f.planned) > 0
		return f.wait(&out)
	})
	if err != nil {
		return FiredSchedules{}, fmt.Errorf("fire schedules: %w", err)
	}
	s.announce(e)
	return out, nil
}

// HandFire is what somebody asks of a schedule; the audit names verb and who. From and To, where given, are the range of
// instants of which the plan has to know whether they have fired.
type HandFire struct {
	ID, Verb, By string
	From, To     time.Time
}

// FireSchedule notes what plan says of one schedule, due or not, for a run by hand or a backfill.
func (s *Store) FireSchedule(ctx context.Context, h HandFire, plan SchedulePlanner) ([]ScheduleFire, error) {
	if !validID(h.ID) {
		return nil, ErrNotFound
	}
	var out []ScheduleFire
	first := newID() // the Task of a run by hand has the same id in each try
	run := func(tx *gorm.DB, e *effects) error {
		a := audit{actor: h.By, verb: h.Verb, resource: "schedules"}
		rows, err := lockSchedule(tx, h.ID)
		if err != nil {
			return err
		}
		var done []struct{ At time.Time }
		if !h.From.IsZero() {
			if err := query(tx, "schedule/done", args{"id": h.ID, "from": h.From, "to": h.To}, &done); err != nil {
				return err
			}
		}
		f := firing{store: s, tx: tx, effects: e}
		err = f.plan(rows, func(in ScheduleInput) SchedulePlan {
			for _, d := range done {
				in.Done = append(in.Done, d.At.UTC())
			}
			p := plan(in)
			for i := range p.Fires {
				if item := p.Fires[i].Item; item != nil && item.Task.ID == "" {
					item.Task.ID = first
					break
				}
			}
			return p
		})
		if err != nil {
			return err
		}
		if err := f.apply(); err != nil {
			return err
		}
		out = f.fires()
		a.name, a.namespace = rows[0].Namespace+"/"+rows[0].Name, rows[0].Namespace
		a.after = firedFacts(out)
		return a.write(tx)
	}
	err := s.announced(ctx, run, func(ctx context.Context) (bool, error) {
		found, err := s.tasksByID(ctx, []string{first})
		return len(found) > 0, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s schedule %s: %w", h.Verb, h.ID, err)
	}
	return out, nil
}

func firedFacts(all []ScheduleFire) facts {
	const most = 20
	tasks := []string{}
	for _, f := range all {
		if f.Task != "" && len(tasks) < most {
			tasks = append(tasks, f.Task)
		}
	}
	return facts{"instants": len(all), "tasks": tasks}
}

func lockSchedule(tx *gorm.DB, id string) ([]scheduleRow, error) {
	var rows []scheduleRow
	if err := query(tx, "schedule/lock", args{"id": id}, &rows); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, ErrNotFound
	}
	return rows, nil
}

// OvertakenFires names Tasks of schedules that replace, which a later fire has overtaken and nobody has asked to stop.
func (s *Store) OvertakenFires(ctx context.Context, limit int) ([]string, error) {
	var ids []string
	if err := query(s.db.WithContext(ctx), "schedule/superseded", args{"limit": limit}, &ids); err != nil {
		return nil, classify(ctx, fmt.Errorf("look for overtaken fires: %w", err))
	}
	return ids, nil
}
