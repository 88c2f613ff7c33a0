package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"
)

// ScheduleFilter narrows a list of schedules; empty fields do not filter.
type ScheduleFilter struct {
	Namespace, Name, Owner string
	Labels                 map[string]string
	Enabled                *bool
	Broken                 bool
	Cursor                 string // SchedulePage.Next of the page before
	Limit                  int    // 1 to 500; 0: 50
}

// SchedulePage is one page of schedules, by namespace and name.
type SchedulePage struct {
	Schedules []Schedule
	Next      string // empty: that was all
}

// Schedule reads one schedule with what its Tasks tell.
func (s *Store) Schedule(ctx context.Context, id string) (Schedule, error) {
	if !validID(id) {
		return Schedule{}, ErrNotFound
	}
	return s.scheduleBy(ctx, "id = ?", id)
}

// ScheduleNamed reads the schedule of a namespace that has the name.
func (s *Store) ScheduleNamed(ctx context.Context, namespace, name string) (Schedule, error) {
	return s.scheduleBy(ctx, "namespace = ? AND name = ?", namespace, name)
}

func (s *Store) scheduleBy(ctx context.Context, condition string, values ...any) (Schedule, error) {
	var rows []scheduleRow
	err := s.db.WithContext(ctx).Model(&scheduleRow{}).Select("*, slipway.now() AS now").Where(condition, values...).Limit(1).Find(&rows).Error
	if err != nil {
		return Schedule{}, classify(ctx, fmt.Errorf("read a schedule: %w", err))
	}
	if len(rows) == 0 {
		return Schedule{}, ErrNotFound
	}
	all, err := s.joined(ctx, rows)
	if err != nil {
		return Schedule{}, err
	}
	return all[0], nil
}

// Schedules lists schedules by namespace and name. As with Tasks, the SQL is built for the filters that are set.
func (s *Store) Schedules(ctx context.Context, f ScheduleFilter) (SchedulePage, error) {
	limit := pageSize(f.Limit)
	var rows []scheduleRow
	err := s.narrowed(ctx, func(tx *gorm.DB) error {
		rows = nil
		db, err := f.narrow(tx.Model(&scheduleRow{}))
		if err != nil {
			return err
		}
		return db.Select("*, slipway.now() AS now").Order("namespace, name").Limit(limit + 1).Find(&rows).Error
	})
	if err != nil {
		return SchedulePage{}, fmt.Errorf("list schedules: %w", err)
	}
	var page SchedulePage
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		page.Next = base64.RawURLEncoding.EncodeToString([]byte(last.Namespace + "/" + last.Name))
	}
	page.Schedules, err = s.joined(ctx, rows)
	return page, err
}

func (f ScheduleFilter) narrow(db *gorm.DB) (*gorm.DB, error) {
	for _, c := range []struct{ column, value string }{
		{"namespace", f.Namespace}, {"name", f.Name}, {"owner", f.Owner},
	} {
		if c.value != "" {
			db = db.Where(c.column+" = ?", c.value)
		}
	}
	if len(f.Labels) > 0 {
		db = db.Where("labels @> CAST(? AS jsonb)", jsonOf(f.Labels))
	}
	if f.Enabled != nil {
		db = db.Where("enabled = ?", *f.Enabled)
	}
	if f.Broken {
		db = db.Where("broken <> ''")
	}
	if f.Cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(f.Cursor)
		namespace, name, ok := strings.Cut(string(raw), "/")
		if err != nil || !ok || clean(string(raw), maxMessage) != string(raw) {
			return nil, FieldErrors{{"/cursor", "is not one of ours"}}
		}
		db = db.Where("(namespace, name) > (?, ?)", namespace, name)
	}
	return db, nil
}

// joined adds what Tasks tell: those that are live, and the last success.
func (s *Store) joined(ctx context.Context, rows []scheduleRow) ([]Schedule, error) {
	out, at := make([]Schedule, len(rows)), map[string]int{}
	ids := make([]string, len(rows))
	for i, r := range rows {
		made, err := r.schedule()
		if err != nil && made.Broken == "" {
			made.Broken = err.Error()
		}
		out[i], ids[i], at[r.ID] = made, r.ID, i
	}
	if len(rows) == 0 {
		return out, nil
	}
	db := s.db.WithContext(ctx)
	var live []struct{ Schedule, ID string }
	var ended []struct {
		Schedule string
		At       time.Time
	}
	err := query(db, "schedule/live", args{"ids": jsonOf(ids)}, &live)
	if err == nil {
		err = query(db, "schedule/succeeded", args{"ids": jsonOf(ids)}, &ended)
	}
	if err != nil {
		return nil, classify(ctx, fmt.Errorf("read the tasks of schedules: %w", err))
	}
	for _, l := range live {
		one := &out[at[l.Schedule]]
		one.Live = append(one.Live, l.ID)
	}
	for _, e := range ended {
		out[at[e.Schedule]].LastSuccessAt = e.At.UTC()
	}
	return out, nil
}

// ScheduleHealth counts schedules: all, those that are broken, and those without a success for longer than is expected.
type ScheduleHealth struct{ Total, Broken, Late int }

// ScheduleHealth counts schedules by their health.
func (s *Store) ScheduleHealth(ctx context.Context) (h ScheduleHealth, err error) {
	if err := query(s.db.WithContext(ctx), "schedule/health", nil, &h); err != nil {
		return h, classify(ctx, fmt.Errorf("count schedules: %w", err))
	}
	return h, nil
}

// Promised is a schedule of which a success is expected. Zero times: never.
type Promised struct {
	Namespace, Name       string
	NextAt, LastSuccessAt time.Time
	Overdue               bool // it had none for longer than is expected
}

// PromisedSchedules lists schedules of which a success is expected, the oldest first.
func (s *Store) PromisedSchedules(ctx context.Context, limit int) ([]Promised, error) {
	var rows []struct {
		Namespace, Name       string
		Overdue               bool
		NextAt, LastSuccessAt *time.Time
	}
	if err := query(s.db.WithContext(ctx), "schedule/promised", args{"limit": limit}, &rows); err != nil {
		return nil, classify(ctx, fmt.Errorf("read schedules of which a success is expected: %w", err))
	}
	out := make([]Promised, len(rows))
	for i, r := range rows {
		out[i] = Promised{
			Namespace: r.Namespace, Name: r.Name, Overdue: r.Overdue, NextAt: instant(r.NextAt), LastSuccessAt: instant(r.LastSuccessAt),
		}
	}
	return out, nil
}

// FirePage is a page of a ledger, newest first.
type FirePage struct {
	Fires []Fire
	Next  string
}

type fireRow struct {
	At      time.Time
	Nominal string
	Source  string
	Outcome string
	Why     string
	Task    *string
	NotedAt time.Time
}

// Fires reads the ledger of a schedule.
func (s *Store) Fires(ctx context.Context, key int64, outcome, cursorText string, limit int) (FirePage, error) {
	limit = pageSize(limit)
	var rows []fireRow
	err := s.narrowed(ctx, func(tx *gorm.DB) error {
		rows = nil
		db := tx.Table("slipway.schedule_fires").Where("schedule = ?", key)
		if outcome != "" {
			db = db.Where("outcome = ?", outcome)
		}
		if cursorText != "" {
			at, _, err := parseCursor(cursorText)
			if err != nil {
				return err
			}
			db = db.Where("at < ?", at)
		}
		return db.Select("at, nominal, source, outcome, why, task, noted_at").Order("at DESC").Limit(limit + 1).Find(&rows).Error
	})
	if err != nil {
		return FirePage{}, fmt.Errorf("read a ledger of fires: %w", err)
	}
	var page FirePage
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = cursor(rows[limit-1].At, 0)
	}
	for _, r := range rows {
		page.Fires = append(page.Fires, Fire{
			At: r.At.UTC(), Nominal: r.Nominal, Source: r.Source, Outcome: r.Outcome, Why: r.Why, Task: value(r.Task), NotedAt: r.NotedAt.UTC(),
		})
	}
	return page, nil
}

type calendarRow struct {
	Namespace, Name string
	Windows         []byte
	ForAll          bool
	Note            string
	Revision        int64
	ChangedBy       string
	ChangedAt       time.Time
}

func readCalendars(db *gorm.DB, namespaces []string) ([]Calendar, error) {
	var rows []calendarRow
	if err := query(db, "schedule/calendars", args{"namespaces": jsonOf(namespaces)}, &rows); err != nil {
		return nil, err
	}
	out := make([]Calendar, len(rows))
	for i, r := range rows {
		out[i] = Calendar{
			Namespace: r.Namespace, Name: r.Name, Windows: json.RawMessage(r.Windows), ForAll: r.ForAll, Note: r.Note, Revision: r.Revision,
			ChangedBy: r.ChangedBy, ChangedAt: r.ChangedAt.UTC(),
		}
	}
	return out, nil
}

// Calendars lists the calendars that hold in a namespace: its own, and those of all. An empty one gives the latter.
func (s *Store) Calendars(ctx context.Context, namespace string) ([]Calendar, error) {
	all, err := readCalendars(s.db.WithContext(ctx), []string{namespace})
	if err != nil {
		return nil, classify(ctx, fmt.Errorf("list calendars: %w", err))
	}
	return all, nil
}

// SetCalendar makes a calendar or changes it. The schedules that it holds back are looked at anew.
func (s *Store) SetCalendar(ctx context.Context, c Calendar, revision int64, by string) error {
	const maxWindows = 64 << 10
	if why := unstorable(c.Windows, maxWindows); why != "" {
		return FieldErrors{{"/windows", why}}
	}
	return s.changeCalendar(ctx, "set", c, revision, by, func(tx *gorm.DB, e *effects, was *Calendar) error {
		_, err := exec(tx, "schedule/set_calendar", args{
			"namespace": c.Namespace, "name": c.Name, "windows": string(c.Windows), "for_all": c.ForAll, "note": clean(c.Note, maxNote), "by": by,
		})
		if err != nil {
			return err
		}
		_, err = exec(tx, "schedule/look_again", args{
			"namespace": c.Namespace, "name": c.Name, "all": c.ForAll || was != nil && was.ForAll,
		})
		e.planned = true
		return err
	})
}

// DeleteCalendar removes a calendar; a *CalendarUsedError says that a schedule names it.
func (s *Store) DeleteCalendar(ctx context.Context, c Calendar, revision int64, by string) error {
	return s.changeCalendar(ctx, "delete", c, revision, by, func(tx *gorm.DB, e *effects, was *Calendar) error {
		if was == nil {
			return ErrNotFound
		}
		var users []string
		if err := query(tx, "schedule/calendar_user", args{"namespace": c.Namespace, "name": c.Name}, &users); err != nil {
			return err
		}
		if len(users) > 0 {
			return &CalendarUsedError{users[0]}
		}
		if _, err := exec(tx, "schedule/drop_calendar", args{"namespace": c.Namespace, "name": c.Name}); err != nil {
			return err
		}
		_, err := exec(tx, "schedule/look_again", args{"namespace": c.Namespace, "name": c.Name, "all": was.ForAll})
		e.planned = true
		return err
	})
}

// changeCalendar changes one calendar; was is nil where it is not there. Two changes of one calendar take turns.
func (s *Store) changeCalendar(ctx context.Context, verb string, c Calendar, revision int64, by string,
	change func(tx *gorm.DB, e *effects, was *Calendar) error,
) error {
	name := c.Namespace + "/" + c.Name
	a := audit{actor: by, verb: verb, resource: "calendars", name: name, namespace: c.Namespace}
	err := s.audited(ctx, a, func(tx *gorm.DB, e *effects, a *audit) error {
		// A row that is not there cannot be locked.
		if err := tx.Exec("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", "slipway.calendars/"+name).Error; err != nil {
			return err
		}
		all, err := readCalendars(tx, []string{c.Namespace})
		if err != nil {
			return err
		}
		var was *Calendar
		for i := range all {
			if all[i].Namespace == c.Namespace && all[i].Name == c.Name {
				was = &all[i]
				a.before = facts{"windows": was.Windows, "for_all": was.ForAll, "note": was.Note}
			}
		}
		if revision != 0 && (was == nil || was.Revision != revision) {
			return ErrRevision
		}
		if verb == "set" {
			a.after = facts{"windows": c.Windows, "for_all": c.ForAll, "note": c.Note}
		}
		return change(tx, e, was)
	})
	if err != nil {
		return fmt.Errorf("%s calendar %s: %w", verb, name, err)
	}
	return nil
}
