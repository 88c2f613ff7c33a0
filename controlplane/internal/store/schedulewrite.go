package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// CreateSchedule stores a schedule; its columns that users write are taken, and the plan says when it fires first.
// ErrTaken says that its namespace has one of that name.
func (s *Store) CreateSchedule(ctx context.Context, made Schedule, by string, plan SchedulePlanner) (Schedule, error) {
	if wrong := made.check(); len(wrong) > 0 {
		return Schedule{}, wrong
	}
	id := newID()
	run := func(tx *gorm.DB, e *effects) error {
		_, err := exec(tx, "schedule/create", args{
			"id": id, "namespace": made.Namespace, "name": made.Name, "rights": orEmptyObject(made.Rights), "by": by, "columns": jsonOf(made.jsonColumns()),
		})
		if sqlState(err) == uniqueViolation {
			return ErrTaken
		}
		if err != nil {
			return err
		}
		e.planned = true
		if err := s.replan(tx, e, id, plan); err != nil {
			return err
		}
		return audit{
			actor: by, verb: "create", resource: "schedules", name: made.Namespace + "/" + made.Name, namespace: made.Namespace, after: made.facts(),
		}.write(tx)
	}
	if err := s.announced(ctx, run, func(ctx context.Context) (bool, error) { return s.hasSchedule(ctx, id) }); err != nil {
		return Schedule{}, fmt.Errorf("create schedule %s/%s: %w", made.Namespace, made.Name, err)
	}
	return s.Schedule(ctx, id)
}

// jsonColumns are the columns with their JSON as such.
func (s Schedule) jsonColumns() map[string]any {
	all := s.columns()
	for _, name := range []string{"labels", "template", "blackouts", "calendars"} {
		all[name] = json.RawMessage(all[name].(string))
	}
	return all
}

// stamp is the database's time in a column that GORM writes.
var stamp = clause.Expr{SQL: "slipway.stamp()"}

func orEmptyObject(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "{}"
	}
	return string(raw)
}

// announced runs fn in a transaction and sends the wake-ups that it causes.
func (s *Store) announced(ctx context.Context, fn func(tx *gorm.DB, e *effects) error, verify func(context.Context) (bool, error)) error {
	var e effects
	err := s.settled(ctx, func(tx *gorm.DB) error {
		e = effects{}
		return fn(tx, &e)
	}, verify)
	if err == nil {
		s.announce(e)
	}
	return err
}

func (s *Store) hasSchedule(ctx context.Context, id string) (bool, error) {
	var n int64
	err := s.db.WithContext(ctx).Model(&scheduleRow{}).Where("id = ?", id).Count(&n).Error
	return n > 0, classify(ctx, err)
}

// replan finds the next instant of a schedule that has just been written. Nothing fires: it was considered up to now.
func (s *Store) replan(tx *gorm.DB, e *effects, id string, plan SchedulePlanner) error {
	rows, err := lockSchedule(tx, id)
	if err != nil {
		return err
	}
	f := firing{store: s, tx: tx, effects: e}
	if !rows[0].Enabled {
		plan = func(ScheduleInput) SchedulePlan { return SchedulePlan{} }
	}
	if err := f.plan(rows, func(in ScheduleInput) SchedulePlan {
		p := plan(in)
		p.Skip, p.Keep, p.Fires = false, false, nil
		return p
	}); err != nil {
		return err
	}
	return f.write()
}

// ScheduleChange is who changes a schedule, and on what ground.
type ScheduleChange struct {
	Revision int64 // that it must have; 0: any
	Verb, By string
	Rights   json.RawMessage // the identity whose rights it has from now on
}

// ChangeSchedule changes the columns that users write, and of those only what change makes different; it gets the
// schedule as it is, under its lock, and may be called again. What was due under the old rule and not made up for is noted
// as missed; the new rule counts from now on.
func (s *Store) ChangeSchedule(ctx context.Context, id string, c ScheduleChange, change func(*Schedule) error, plan SchedulePlanner) (Schedule, error) {
	if !validID(id) {
		return Schedule{}, ErrNotFound
	}
	err := s.audited(ctx, audit{actor: c.By, verb: c.Verb, resource: "schedules"}, func(tx *gorm.DB, e *effects, a *audit) error {
		rows, err := lockSchedule(tx, id)
		if err != nil {
			return err
		}
		was, unread := rows[0].schedule() // a change may mend it
		if c.Revision != 0 && c.Revision != was.Revision {
			return ErrRevision
		}
		now := was
		now.Labels, now.Calendars = maps.Clone(was.Labels), slices.Clone(was.Calendars)
		if err := change(&now); err != nil {
			return err
		}
		if wrong := now.check(); len(wrong) > 0 {
			return wrong
		}
		columns := differing(was, now)
		if unread != nil {
			columns["labels"], columns["calendars"] = now.columns()["labels"], now.columns()["calendars"]
		}
		if len(columns) == 0 {
			a.verb = ""
			return nil
		}
		a.name, a.namespace, a.before, a.after = was.Namespace+"/"+was.Name, was.Namespace, was.facts(), now.facts()
		return s.changeSchedule(tx, e, rows, c, columns, plan)
	})
	if err != nil {
		return Schedule{}, fmt.Errorf("%s schedule %s: %w", c.Verb, id, err)
	}
	return s.Schedule(ctx, id)
}

func (s *Store) changeSchedule(tx *gorm.DB, e *effects, rows []scheduleRow, c ScheduleChange, columns map[string]any, plan SchedulePlanner) error {
	was := rows[0]
	moved := slices.ContainsFunc(timing, func(name string) bool { _, differs := columns[name]; return differs }) || was.Broken != ""
	if moved {
		if err := s.noteMissed(tx, e, rows, plan); err != nil {
			return err
		}
		columns["considered_at"] = clause.Expr{SQL: "GREATEST(considered_at, slipway.stamp())"}
	}
	if columns["enabled"] == true {
		columns["enabled_at"] = stamp
	}
	if _, other := columns["every"]; other {
		columns["anchor_at"] = clause.Expr{SQL: "coalesce(last_fire_at, slipway.stamp())"} // the rhythm goes on from the last fire
	}
	maps.Copy(columns, map[string]any{
		"revision": clause.Expr{SQL: "revision + 1"}, "changed_by": c.By, "changed_at": stamp, "rights": orEmptyObject(c.Rights),
	})
	done := tx.Model(&scheduleRow{}).Where("key = ? AND revision = ?", was.Key, was.Revision).Updates(columns)
	switch {
	case done.Error != nil:
		return done.Error
	case done.RowsAffected == 0:
		return ErrRevision
	}
	e.planned = true
	if !moved {
		return nil
	}
	return s.replan(tx, e, was.ID, plan)
}

// noteMissed notes what was due under a rule that is about to change. Nobody is there to say that it may still run.
func (s *Store) noteMissed(tx *gorm.DB, e *effects, rows []scheduleRow, plan SchedulePlanner) error {
	if !rows[0].Enabled || rows[0].NextAt == nil || rows[0].Broken != "" {
		return nil
	}
	f := firing{store: s, tx: tx, effects: e}
	err := f.plan(rows, func(in ScheduleInput) SchedulePlan {
		p := plan(in)
		p.Keep = true
		for i := range p.Fires {
			if p.Fires[i].Item != nil {
				p.Fires[i].Item, p.Fires[i].Outcome, p.Fires[i].Why = nil, "missed", "the schedule was changed before it ran"
			}
		}
		return p
	})
	if err != nil {
		return err
	}
	return f.apply()
}

// differing are the columns that a change makes different.
func differing(was, now Schedule) map[string]any {
	before, after := was.columns(), now.columns()
	maps.DeleteFunc(after, func(name string, v any) bool {
		if name == "template" || name == "blackouts" { // the database writes JSON in its own way
			return sameJSON(before[name], v)
		}
		return reflect.DeepEqual(before[name], v)
	})
	return after
}

func sameJSON(a, b any) bool {
	one, _ := a.(string)
	other, _ := b.(string)
	var x, y any
	return json.Unmarshal([]byte(one), &x) == nil && json.Unmarshal([]byte(other), &y) == nil && reflect.DeepEqual(x, y)
}

// DeleteSchedule removes a schedule with its ledger; its Tasks stay.
func (s *Store) DeleteSchedule(ctx context.Context, id string, revision int64, by string) error {
	if !validID(id) {
		return ErrNotFound
	}
	err := s.audited(ctx, audit{actor: by, verb: "delete", resource: "schedules"}, func(tx *gorm.DB, _ *effects, a *audit) error {
		rows, err := lockSchedule(tx, id)
		if err != nil {
			return err
		}
		if revision != 0 && revision != rows[0].Revision {
			return ErrRevision
		}
		was, _ := rows[0].schedule() // a broken one can be deleted
		a.name, a.namespace, a.before = was.Namespace+"/"+was.Name, was.Namespace, was.facts()
		return tx.Where("key = ?", was.Key).Delete(&scheduleRow{}).Error
	})
	if err != nil {
		return fmt.Errorf("delete schedule %s: %w", id, err)
	}
	return nil
}

// check refuses what can never be stored; the rules of expressions are the caller's.
func (s Schedule) check() FieldErrors {
	var errs FieldErrors
	const maxTemplate, maxBlackouts, maxCalendars = 512 << 10, 64 << 10, 20
	say := func(field, reason string) { errs = append(errs, FieldError{field, reason}) }
	for field, text := range map[string]string{
		"/name": s.Name, "/namespace": s.Namespace, "/cron": s.Cron, "/zone": s.Zone, "/owner": s.Owner, "/description": s.Description,
	} {
		switch {
		case clean(text, len(text)+1) != text:
			say(field, "holds what cannot be stored")
		case len(text) > maxNote:
			say(field, fmt.Sprintf("is longer than %d bytes", maxNote))
		}
	}
	if why := unstorable(s.Template, maxTemplate); why != "" {
		say("/template", why)
	}
	if why := unstorable(json.RawMessage(orEmptyList(s.Blackouts)), maxBlackouts); why != "" {
		say("/blackouts", why)
	}
	if len(s.Calendars) > maxCalendars {
		say("/calendars", fmt.Sprintf("has more than %d entries", maxCalendars))
	}
	for field, d := range map[string]time.Duration{
		"/every": s.Every, "/within": s.Within, "/window": s.Window, "/spread": s.Spread, "/expect_success_within": s.ExpectSuccess,
	} {
		if d < 0 {
			say(field, "is negative")
		}
	}
	slices.SortFunc(errs, func(a, b FieldError) int { return strings.Compare(a.Pointer, b.Pointer) })
	return errs
}
