package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
)

// scheduleCaller stores the Tasks of fires, in the audit; each Task names its schedule.
const scheduleCaller = "slipway:schedules"

// notedAtOnce is how many instants one statement notes.
const notedAtOnce = 2000

// firing is one transaction that plans locked schedules and stores what comes of it.
type firing struct {
	store   *Store
	tx      *gorm.DB
	effects *effects
	planned []plannedSchedule
}

type plannedSchedule struct {
	schedule Schedule
	plan     SchedulePlan
}

// plan asks the planner about each of the locked schedules.
func (f *firing) plan(rows []scheduleRow, plan SchedulePlanner) error {
	if len(rows) == 0 {
		return nil
	}
	around, err := readAround(f.tx, rows)
	if err != nil {
		return err
	}
	for _, r := range rows {
		sched, err := r.schedule()
		sched.Live = around.live[sched.ID]
		p := plannedSchedule{schedule: sched}
		switch {
		case err != nil:
			p.plan = SchedulePlan{Broken: err.Error()}
		case !sched.Enabled && !sched.NextAt.IsZero() && !around.now.Before(sched.NextAt):
			p.plan = safely(plan, around.input(sched))
			if !p.plan.Keep && !p.plan.Skip {
				p.plan = SchedulePlan{} // switched off behind the API's back
			}
		default:
			p.plan = safely(plan, around.input(sched))
		}
		if !p.plan.Skip {
			f.planned = append(f.planned, p)
		}
	}
	return nil
}

// safely makes a panic of the planner the fault of the schedule that met it.
func safely(plan SchedulePlanner, in ScheduleInput) (out SchedulePlan) {
	defer func() {
		if cause := recover(); cause != nil {
			out = SchedulePlan{Broken: clean(fmt.Sprintf("it cannot be planned: %v", cause), maxNote)}
		}
	}()
	out = plan(in)
	stuck := !out.Next.After(in.Now) && !out.Considered.After(in.Schedule.ConsideredAt)
	if !out.Next.IsZero() && stuck && !out.Keep && !out.Skip {
		return SchedulePlan{Fires: out.Fires, Considered: out.Considered, Broken: "it would be due again at once, for ever"}
	}
	return out
}

// around is what the plans of some schedules stand on.
type around struct {
	now       time.Time
	live      map[string][]string
	calendars []Calendar
}

func readAround(tx *gorm.DB, rows []scheduleRow) (around, error) {
	out := around{live: map[string][]string{}}
	ids, namespaces := make([]string, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		ids[i], namespaces[i] = r.ID, r.Namespace
	}
	var clock struct{ Now time.Time }
	if err := query(tx, "schedule/now", nil, &clock); err != nil {
		return out, err
	}
	out.now = clock.Now.UTC()
	var live []struct{ Schedule, ID string }
	if err := query(tx, "schedule/live", args{"ids": jsonOf(ids)}, &live); err != nil {
		return out, err
	}
	for _, l := range live {
		out.live[l.Schedule] = append(out.live[l.Schedule], l.ID)
	}
	slices.Sort(namespaces)
	var err error
	out.calendars, err = readCalendars(tx, slices.Compact(namespaces))
	return out, err
}

func (a around) input(s Schedule) ScheduleInput {
	in := ScheduleInput{Schedule: s, Now: a.now, Live: a.live[s.ID]}
	in.Calendars, in.Missing = CalendarsOf(s, a.calendars)
	return in
}

// CalendarsOf picks the calendars that hold for a schedule: those that it names, of its namespace before those of all, and
// those for all schedules. Missing are names that nothing has.
func CalendarsOf(s Schedule, all []Calendar) (holding []Calendar, missing []string) {
	for _, c := range all {
		own := c.Namespace == s.Namespace
		shadowed := !own && slices.ContainsFunc(all, func(o Calendar) bool { return o.Namespace == s.Namespace && o.Name == c.Name })
		if named := slices.Contains(s.Calendars, c.Name) && !shadowed; (own || c.Namespace == "") && (named || c.ForAll) {
			holding = append(holding, c)
		}
	}
	for _, name := range s.Calendars {
		if !slices.ContainsFunc(holding, func(c Calendar) bool { return c.Name == name }) {
			missing = append(missing, name)
		}
	}
	return holding, missing
}

// apply stores what was planned.
func (f *firing) apply() error {
	if len(f.planned) == 0 {
		return nil
	}
	var due []*ScheduleFire
	for i := range f.planned {
		p := &f.planned[i]
		live := p.schedule.Live // what a fire that waits has to wait for
		for n := range p.plan.Fires {
			fire := &p.plan.Fires[n]
			if fire.Source == "" {
				fire.Source = FromSchedule
			}
			if fire.Item == nil {
				continue
			}
			item := *fire.Item
			item.Schedule, item.FireAt, item.By = p.schedule.ID, fire.At, "schedule:"+p.schedule.Namespace+"/"+p.schedule.Name
			if item.Task.ID == "" {
				item.Task.ID = newID()
			}
			if fire.Wait && len(live) > 0 {
				item.After, item.RunIf = slices.Clone(live), AllFinished
			}
			live = append(slices.Clip(live), item.Task.ID)
			fire.Item = &item
			due = append(due, fire)
		}
	}
	if err := f.lockLimits(due); err != nil {
		return err
	}
	if err := f.submit(due); err != nil {
		return err
	}
	return f.write()
}

// lockLimits locks the limits of storage of all fires at once: one by one they would come after lanes.
func (f *firing) lockLimits(due []*ScheduleFire) error {
	b := Batch{}
	for _, fire := range due {
		b.Items = append(b.Items, *fire.Item)
	}
	all, _ := flatten(b)
	namespaces := growing(all)
	if len(namespaces) == 0 {
		return nil
	}
	_, err := lockLimits(f.tx, namespaces)
	return err
}

// submit stores the Tasks: all at once, or where one of them is refused each by itself, in the order of their lanes.
func (f *firing) submit(due []*ScheduleFire) error {
	if len(due) == 0 {
		return nil
	}
	refused, err := f.together(due)
	if err != nil || refused == nil {
		return err
	}
	if len(due) > 1 {
		alone := slices.Clone(due)
		slices.SortStableFunc(alone, func(a, b *ScheduleFire) int { return strings.Compare(a.Item.Task.Lane, b.Item.Task.Lane) })
		out := map[string]bool{} // what was refused, and cannot be waited for
		for _, fire := range alone {
			id := fire.Item.Task.ID
			fire.Item.After = slices.DeleteFunc(fire.Item.After, func(id string) bool { return out[id] })
			if err := f.submit([]*ScheduleFire{fire}); err != nil {
				return err
			}
			out[id] = fire.Task == ""
		}
		return nil
	}
	fire := due[0]
	if c, ok := errors.AsType[*ConflictError](refused); ok && c.Reason == ConflictFired {
		fire.Outcome, fire.Why, fire.Item = "", "", nil // fired before: what was noted then stays
		return nil
	}
	fire.Outcome, fire.Why, fire.Item = FireRefused, clean(strings.ReplaceAll(refused.Error(), "/items/0/", "/"), maxNote), nil
	return nil
}

// together stores Tasks in a savepoint; refused is the rule that keeps all of them out.
func (f *firing) together(due []*ScheduleFire) (refused, err error) {
	const savepoint = "fires"
	b := Batch{Caller: scheduleCaller}
	for _, fire := range due {
		b.Items = append(b.Items, *fire.Item)
	}
	all, wrong := flatten(b)
	if len(wrong) > 0 {
		return wrong, nil
	}
	w := &submit{store: f.store, batch: b, all: all}
	w.reset()
	if err := f.tx.SavePoint(savepoint).Error; err != nil {
		return nil, err
	}
	if err := w.run(f.tx); err != nil {
		if !isRefusal(err) {
			return nil, err
		}
		return err, f.tx.RollbackTo(savepoint).Error
	}
	f.effects.add(w.effects)
	for _, e := range all {
		if e.parent >= 0 {
			continue
		}
		fire := due[e.top]
		if fire.Task = e.taskID(); fire.Task != e.id {
			fire.Why = strings.TrimPrefix(fire.Why+"; absorbed by a task that waited", "; ")
		}
	}
	return nil, nil
}

// isRefusal tells what a rule refused from trouble.
func isRefusal(err error) bool {
	_, conflicts := errors.AsType[*ConflictError](err)
	_, full := errors.AsType[*FullError](err)
	_, wrong := errors.AsType[FieldErrors](err)
	return conflicts || full || wrong
}

// write notes the fires and moves the schedules on.
func (f *firing) write() error {
	type fireRow struct {
		Schedule int64     `json:"schedule"`
		At       time.Time `json:"at"`
		Nominal  string    `json:"nominal"`
		Source   string    `json:"source"`
		Outcome  string    `json:"outcome"`
		Why      string    `json:"why"`
		Task     *string   `json:"task"`
	}
	type stateRow struct {
		Key        int64      `json:"key"`
		Keep       bool       `json:"keep"`
		Considered *time.Time `json:"considered"`
		Next       *time.Time `json:"next"`
		Broken     string     `json:"broken"`
		Waits      string     `json:"waits"`
		Fired      *time.Time `json:"fired"`
		Task       *string    `json:"task"`
	}
	fires, states := []fireRow{}, []stateRow{}
	for _, p := range f.planned {
		st := stateRow{Key: p.schedule.Key, Keep: p.plan.Keep, Broken: clean(p.plan.Broken, maxNote), Waits: clean(p.plan.Waits, maxNote)}
		st.Considered, st.Next = given(p.plan.Considered), given(p.plan.Next)
		for _, fire := range p.plan.Fires {
			if fire.Outcome == "" {
				continue
			}
			row := fireRow{
				Schedule: p.schedule.Key, At: fire.At, Nominal: clean(fire.Nominal, maxNote), Source: fire.Source, Outcome: fire.Outcome,
				Why: clean(fire.Why, maxNote),
			}
			if fire.Task != "" {
				row.Task, st.Fired, st.Task = &fire.Task, &fire.At, &fire.Task
			}
			fires = append(fires, row)
		}
		states = append(states, st)
	}
	// After a long stop there are many, and each statement has its time limit.
	for part := range slices.Chunk(fires, notedAtOnce) {
		if _, err := exec(f.tx, "schedule/note", args{"fires": jsonOf(part)}); err != nil {
			return err
		}
	}
	_, err := exec(f.tx, "schedule/advance", args{"states": jsonOf(states)})
	return err
}

func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// fires are what was noted.
func (f *firing) fires() []ScheduleFire {
	var all []ScheduleFire
	for _, p := range f.planned {
		for _, fire := range p.plan.Fires {
			if fire.Outcome != "" {
				all = append(all, fire)
			}
		}
	}
	return all
}

// wait finds out when the next schedule is due.
func (f *firing) wait(out *FiredSchedules) error {
	var row struct{ Seconds float64 }
	if err := query(f.tx, "schedule/wait", nil, &row); err != nil {
		return err
	}
	if row.Seconds >= 0 {
		out.NextIn = max(duration(row.Seconds), time.Millisecond)
	}
	return nil
}
