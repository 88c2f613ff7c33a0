package app

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/firing"
	"slipway.dev/slipway/controlplane/internal/httpapi"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/controlplane/internal/schedule"
	"slipway.dev/slipway/controlplane/internal/store"
)

// timetable is the store as firing and the routes of schedules want it.
type timetable struct {
	store   *store.Store
	kinds   *kinds.Registry
	gate    *auth.Gate
	counts  *counts
	cluster interface {
		httpapi.Claims
		StorageUse(ctx context.Context, namespace string) (map[string]int64, error)
	}
}

// Due lists schedules that are due.
func (t timetable) Due(ctx context.Context, limit int) ([]firing.Schedule, error) {
	all, err := t.store.DueSchedules(ctx, limit)
	out := make([]firing.Schedule, len(all))
	for i, s := range all {
		out[i] = firing.Schedule(s)
	}
	return out, known(err)
}

// Fire stores what is due.
func (t timetable) Fire(ctx context.Context, limit int, verdicts firing.Verdicts) (firing.Pass, error) {
	var unasked int
	only := make([]string, 0, len(verdicts))
	for v := range verdicts {
		only = append(only, v.ID)
	}
	done, err := t.store.FireSchedules(ctx, limit, only, func(in store.ScheduleInput) store.SchedulePlan {
		s := given(in)
		verdict, asked := verdicts[firing.Version{ID: s.ID, Revision: s.Revision}]
		if !asked {
			unasked++
			return store.SchedulePlan{Skip: true}
		}
		return t.plan(s, firing.Decide(s, around(in), in.Now, verdict.Refusal), verdict)
	})
	for _, f := range done.Fires {
		t.counts.fires.WithLabelValues(f.Outcome).Inc()
	}
	return firing.Pass{More: done.More, Unasked: unasked, NextIn: done.NextIn}, known(err)
}

func given(in store.ScheduleInput) firing.Schedule {
	s := firing.Schedule(in.Schedule)
	s.Live, s.Now = in.Live, in.Now
	return s
}

func around(in store.ScheduleInput) firing.Around {
	out := firing.Around{Missing: in.Missing}
	for _, c := range in.Calendars {
		out.Calendars = append(out.Calendars, firing.Calendar(c))
	}
	return out
}

// plan adds to a decision the Tasks that are to be stored, by the kinds of now and what was found out before.
func (t timetable) plan(s firing.Schedule, d firing.Decision, v firing.Verdict) store.SchedulePlan {
	out := store.SchedulePlan{Considered: d.Considered, Next: d.Next, Broken: d.Broken, Waits: d.Waits}
	for _, f := range d.Fires {
		fire := store.ScheduleFire{At: f.At, Nominal: f.Nominal, Outcome: f.Outcome, Why: f.Why, Wait: f.Wait}
		if f.Submit {
			item, err := httpapi.BuildTemplate(t.kinds, s.Namespace, s.Template, v.Found)
			if err != nil {
				fire.Outcome, fire.Why = firing.Refused, "its template: "+err.Error()
			} else {
				items := []httpapi.Item{item}
				httpapi.WithStorage(items, v.Storage)
				fire.Item = &itemsOf(items)[0]
			}
		}
		out.Fires = append(out.Fires, fire)
	}
	return out
}

// Overtaken names Tasks that later fires replace.
func (t timetable) Overtaken(ctx context.Context, limit int) ([]string, error) {
	ids, err := t.store.OvertakenFires(ctx, limit)
	return ids, known(err)
}

// Replace cancels a Task that a later fire replaces.
func (t timetable) Replace(ctx context.Context, id string) error {
	_, err := t.store.Cancel(ctx, id, "slipway:schedules", "replaced by a later run of its schedule")
	var ended *store.EndedError
	if errors.As(err, &ended) {
		return nil
	}
	return known(err)
}

// Ask asks whether who changed a schedule last may still do what it does, and looks up what its template selects. What is
// wrong with the template is said by the fire.
func (t timetable) Ask(ctx context.Context, s firing.Schedule) (firing.Verdict, error) {
	why, err := t.refused(ctx, s)
	if err != nil || why != "" {
		return firing.Verdict{Refusal: why}, err
	}
	v, err := t.found(ctx, s)
	var invalid *kinds.InvalidError
	if errors.As(err, &invalid) {
		return firing.Verdict{Refusal: "its template: " + invalid.Error()}, nil
	}
	return v, err
}

// found finds out what a template is about in the cluster. A refusal is a *kinds.InvalidError.
func (t timetable) found(ctx context.Context, s firing.Schedule) (v firing.Verdict, err error) {
	if v.Found, err = httpapi.Selected(ctx, t.cluster, t.kinds, s.Namespace, s.Template); err != nil {
		return v, err
	}
	room := httpapi.Room{Storage: standing{t.store}, Cluster: t.cluster}
	v.Storage, err = room.Template(ctx, t.kinds, s.Namespace, s.Template, v.Found)
	return v, err
}

func (t timetable) refused(ctx context.Context, s firing.Schedule) (string, error) {
	if httpapi.IsOwn(s.Rights) {
		return "", nil
	}
	who, known := httpapi.KeptIdentity(s.Rights)
	if !known {
		return "nobody is known whose rights it has; a change of it mends that", nil
	}
	err := httpapi.MayFire(ctx, t.gate, who, t.kinds, s.Namespace, s.Template)
	var forbidden *auth.ForbiddenError
	var invalid *kinds.InvalidError
	switch {
	case errors.As(err, &forbidden):
		return who.User + ", who changed it last, is " + forbidden.Error(), nil
	case errors.As(err, &invalid):
		return "", nil
	}
	return "", err
}

// planNew finds the next instant of what was just written.
func planNew(in store.ScheduleInput) store.SchedulePlan {
	d := withoutTasks(firing.Decide(given(in), around(in), in.Now, ""), string(schedule.Missed), "the schedule was changed before it ran")
	return timetable{}.plan(given(in), d, firing.Verdict{})
}

func withoutTasks(d firing.Decision, outcome, why string) firing.Decision {
	for i := range d.Fires {
		if d.Fires[i].Submit {
			d.Fires[i].Submit, d.Fires[i].Outcome, d.Fires[i].Why = false, outcome, why
		}
	}
	return d
}

// Schedule reads a schedule.
func (t timetable) Schedule(ctx context.Context, id string) (httpapi.ScheduleView, error) {
	s, err := t.store.Schedule(ctx, id)
	return httpapi.ScheduleView(s), known(err)
}

// Schedules lists schedules.
func (t timetable) Schedules(ctx context.Context, f httpapi.ScheduleFilter) (httpapi.ScheduleSheet, error) {
	page, err := t.store.Schedules(ctx, store.ScheduleFilter(f))
	if err != nil {
		return httpapi.ScheduleSheet{}, badPosition(err)
	}
	out := httpapi.ScheduleSheet{Items: make([]httpapi.ScheduleView, len(page.Schedules)), Next: page.Next}
	for i, s := range page.Schedules {
		out.Items[i] = httpapi.ScheduleView(s)
	}
	return out, nil
}

// CreateSchedule stores a schedule.
func (t timetable) CreateSchedule(ctx context.Context, s httpapi.ScheduleView, by string) (httpapi.ScheduleView, error) {
	made, err := t.store.CreateSchedule(from(ctx), store.Schedule(s), by, planNew)
	return httpapi.ScheduleView(made), scheduleError(err)
}

// ChangeSchedule changes a schedule.
func (t timetable) ChangeSchedule(ctx context.Context, id string, c httpapi.ScheduleChange, change func(*httpapi.ScheduleView)) (httpapi.ScheduleView, error) {
	now, err := t.store.ChangeSchedule(from(ctx), id, store.ScheduleChange(c), func(s *store.Schedule) error {
		v := httpapi.ScheduleView(*s)
		change(&v)
		*s = store.Schedule(v)
		return nil
	}, planNew)
	return httpapi.ScheduleView(now), scheduleError(err)
}

// DeleteSchedule removes a schedule.
func (t timetable) DeleteSchedule(ctx context.Context, id string, revision int64, by string) error {
	return scheduleError(t.store.DeleteSchedule(from(ctx), id, revision, by))
}

// Fires reads a ledger.
func (t timetable) Fires(ctx context.Context, f httpapi.FireFilter) (httpapi.FireSheet, error) {
	page, err := t.store.Fires(ctx, f.Schedule, f.Outcome, f.Cursor, f.Limit)
	if err != nil {
		return httpapi.FireSheet{}, badPosition(err)
	}
	out := httpapi.FireSheet{Items: make([]httpapi.FireView, len(page.Fires)), Next: page.Next}
	for i, fire := range page.Fires {
		out.Items[i] = httpapi.FireView(fire)
	}
	return out, nil
}

// FireByHand runs a schedule now, or makes up for a range.
func (t timetable) FireByHand(ctx context.Context, id string, h httpapi.Hand) ([]httpapi.FireView, error) {
	found, err := t.selects(ctx, id)
	if err != nil {
		return nil, err
	}
	ask := store.HandFire{ID: id, Verb: "run", By: h.By, From: h.From, To: h.To}
	source := store.FromHand
	if h.Range {
		ask.Verb, source = "backfill", store.FromBackfill
	}
	fires, err := t.store.FireSchedule(from(ctx), ask, func(in store.ScheduleInput) store.SchedulePlan {
		s := given(in)
		d := firing.ByHand(s, around(in), in.Now, firing.Hand{
			Range: h.Range, From: h.From, To: h.To, Most: h.Most, NewestFirst: h.NewestFirst, Overlap: h.Overlap, Done: in.Done,
		})
		if s.Revision != h.Revision || s.Revision != found.revision {
			d = withoutTasks(d, firing.Refused, "the schedule was changed meanwhile: what it needs now was not asked for")
		}
		p := t.plan(s, d, found.verdict)
		p.Keep = true
		for i := range p.Fires {
			p.Fires[i].Source = source
		}
		return p
	})
	out := make([]httpapi.FireView, len(fires))
	for i, f := range fires {
		t.counts.fires.WithLabelValues(f.Outcome).Inc()
		out[i] = httpapi.FireView{At: f.At, Nominal: f.Nominal, Source: f.Source, Outcome: f.Outcome, Why: f.Why, Task: f.Task}
	}
	return out, scheduleError(err)
}

// selection is what was found out about a schedule when it was looked at.
type selection struct {
	revision int64
	verdict  firing.Verdict
}

// selects looks up what a schedule is about, before its run by hand.
func (t timetable) selects(ctx context.Context, id string) (selection, error) {
	s, err := t.store.Schedule(ctx, id)
	if err != nil {
		return selection{}, known(err)
	}
	v, err := t.found(ctx, firing.Schedule(s))
	return selection{revision: s.Revision, verdict: v}, err
}

// Calendars lists calendars.
func (t timetable) Calendars(ctx context.Context, namespace string) ([]httpapi.CalendarView, error) {
	all, err := t.store.Calendars(ctx, namespace)
	out := make([]httpapi.CalendarView, len(all))
	for i, c := range all {
		out[i] = httpapi.CalendarView(c)
	}
	return out, known(err)
}

// SetCalendar makes a calendar or changes it.
func (t timetable) SetCalendar(ctx context.Context, c httpapi.CalendarView, revision int64, by string) error {
	return scheduleError(t.store.SetCalendar(from(ctx), store.Calendar(c), revision, by))
}

// DeleteCalendar removes a calendar.
func (t timetable) DeleteCalendar(ctx context.Context, c httpapi.CalendarView, revision int64, by string) error {
	return scheduleError(t.store.DeleteCalendar(from(ctx), store.Calendar(c), revision, by))
}

// scheduleError gives errors of the store the names of the edge.
func scheduleError(err error) error {
	var used *store.CalendarUsedError
	var refused store.FieldErrors
	switch {
	case errors.Is(err, store.ErrRevision):
		return httpapi.ErrRevision
	case errors.Is(err, store.ErrTaken):
		return httpapi.ErrTaken
	case errors.As(err, &used):
		return &httpapi.CalendarUsedError{Schedule: used.Schedule}
	case errors.As(err, &refused):
		out := &httpapi.RuleError{}
		for _, f := range refused {
			out.Fields = append(out.Fields, kinds.FieldError{Pointer: f.Pointer, Reason: f.Reason})
		}
		return out
	}
	return known(err)
}

// Every reads an interval.
func (t timetable) Every(text string) (time.Duration, error) {
	d, err := schedule.ParseEvery(text)
	return d, ruleError(err)
}

// around reads what holds for a schedule that is not stored as it is.
func (t timetable) around(ctx context.Context, s httpapi.ScheduleView) (firing.Around, error) {
	var out firing.Around
	all, err := t.store.Calendars(ctx, s.Namespace)
	if err != nil {
		return out, known(err)
	}
	holding, missing := store.CalendarsOf(store.Schedule(s), all)
	for _, c := range holding {
		out.Calendars = append(out.Calendars, firing.Calendar(c))
	}
	out.Missing = missing
	return out, nil
}

// Check refuses what can never fire.
func (t timetable) Check(ctx context.Context, s httpapi.ScheduleView) error {
	around, err := t.around(ctx, s)
	if err != nil {
		return err
	}
	return ruleError(firing.Check(firing.Schedule(s), around))
}

// CheckWindows refuses blackouts that are none.
func (t timetable) CheckWindows(raw json.RawMessage) error {
	return ruleError(firing.CheckCalendar(raw))
}

// Preview lists instants that lie ahead.
func (t timetable) Preview(ctx context.Context, s httpapi.ScheduleView, after time.Time, n int) ([]httpapi.ComingView, string, error) {
	around, err := t.around(ctx, s)
	if err != nil {
		return nil, "", err
	}
	if after.IsZero() {
		if after, err = t.store.Now(ctx); err != nil {
			return nil, "", known(err)
		}
	}
	all, words, err := firing.Preview(firing.Schedule(s), around, after, n)
	out := make([]httpapi.ComingView, len(all))
	for i, c := range all {
		out[i] = httpapi.ComingView(c)
	}
	return out, words, ruleError(err)
}

// Collisions finds the fullest minutes of the coming day.
func (t timetable) Collisions(ctx context.Context, all []httpapi.ScheduleView) ([]httpapi.CollisionView, error) {
	const day, most = 24 * time.Hour, 100
	now, err := t.store.Now(ctx)
	if err != nil {
		return nil, known(err)
	}
	list := make([]firing.Schedule, len(all))
	for i, s := range all {
		list[i] = firing.Schedule(s)
	}
	var out []httpapi.CollisionView
	for _, c := range firing.Collisions(list, now, now.Add(day), most) {
		out = append(out, httpapi.CollisionView(c))
	}
	return out, nil
}

// ruleError gives errors of rules the names of the edge.
func ruleError(err error) error {
	var invalid *schedule.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	out := &httpapi.RuleError{}
	for _, f := range invalid.Fields {
		out.Fields = append(out.Fields, kinds.FieldError{Pointer: f.Pointer, Reason: f.Reason})
	}
	return out
}
