package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// every is a schedule of an interval, with what its fires submit.
func every(name string, d time.Duration) store.Schedule {
	return store.Schedule{
		Namespace: "ns", Name: name, Every: d, Zone: "UTC", Missed: "latest", Overlap: "allow", Enabled: true,
		Template: json.RawMessage(`{"kind":"volume.resize"}`),
	}
}

// plain plans an interval from its anchor: the newest instant that is due fires, those before it are missed.
func plain(in store.ScheduleInput) store.SchedulePlan {
	s := in.Schedule
	if s.Cron != "" || s.Every <= 0 {
		return store.SchedulePlan{Broken: "cron: " + s.Cron}
	}
	p := store.SchedulePlan{Considered: in.Now}
	at := s.ConsideredAt.Add(s.Every - s.ConsideredAt.Sub(s.AnchorAt)%s.Every)
	for ; !at.After(in.Now); at = at.Add(s.Every) {
		p.Fires = append(p.Fires, store.ScheduleFire{At: at, Nominal: at.String(), Outcome: "missed", Why: "a later one is due"})
	}
	p.Next = at
	if n := len(p.Fires); n > 0 {
		it := item("")
		it.Task.Name = s.Name
		last := &p.Fires[n-1]
		last.Outcome, last.Why, last.Item = store.FireFired, "", &it
		switch {
		case s.Overlap == "forbid" && len(in.Live) > 0:
			last.Outcome, last.Why, last.Item = "forbidden", "one is live", nil
		case s.Overlap == "queue", s.Overlap == "replace":
			last.Wait = true
		}
	}
	return p
}

func (d database) schedule(s store.Schedule) store.Schedule {
	d.t.Helper()
	made, err := d.CreateSchedule(d.t.Context(), s, "alice", plain)
	if err != nil {
		d.t.Fatal(err)
	}
	return made
}

func (d database) fire() store.FiredSchedules {
	d.t.Helper()
	out, err := d.FireSchedules(d.t.Context(), 1000, nil, plain)
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

func (d database) outcomes(s store.Schedule) (all []string) {
	d.t.Helper()
	page, err := d.Fires(d.t.Context(), s.Key, "", "", 500)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range page.Fires {
		all = append(all, f.Outcome)
	}
	return all
}

func (d database) reread(s store.Schedule) store.Schedule {
	d.t.Helper()
	now, err := d.Schedule(d.t.Context(), s.ID)
	if err != nil {
		d.t.Fatal(err)
	}
	return now
}

func TestAFireIsATaskALedgerRowAndTheNextInstant(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	s := d.schedule(every("a", time.Minute))
	if got := d.fire(); len(got.Fires) != 0 || got.NextIn != time.Minute {
		t.Errorf("before its time: %+v", got)
	}
	d.advance(3*time.Minute + time.Second)
	got := d.fire()
	if len(got.Fires) != 3 || got.NextIn != 59*time.Second {
		t.Fatalf("%d noted, next in %v", len(got.Fires), got.NextIn)
	}
	if all := d.outcomes(s); !slices.Equal(all, []string{"fired", "missed", "missed"}) {
		t.Errorf("the ledger says %v", all)
	}
	now := d.reread(s)
	made, _ := d.get(now.LastTask)
	if made.CreatedBy != "schedule:ns/a" || len(now.Live) != 1 || !now.NextAt.Equal(s.AnchorAt.Add(4*time.Minute)) || now.Revision != 1 {
		t.Errorf("made by %q, live %v, next %v, revision %d", made.CreatedBy, now.Live, now.NextAt, now.Revision)
	}
	if again := d.fire(); len(again.Fires) != 0 {
		t.Errorf("the same instants again: %+v", again.Fires)
	}
	d.finish(d.claimOne(), success)
	if now := d.reread(s); now.LastSuccessAt.IsZero() || len(now.Live) != 0 {
		t.Errorf("after its success: %+v", now)
	}
}

func TestOverlapForbidsAndQueuesByTheTasksThatAreLive(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	forbid, queue, replace := every("forbid", time.Minute), every("queue", time.Minute), every("replace", time.Minute)
	forbid.Overlap, queue.Overlap, replace.Overlap = "forbid", "queue", "replace"
	forbid, queue, replace = d.schedule(forbid), d.schedule(queue), d.schedule(replace)
	for range 2 {
		d.advance(time.Minute)
		d.fire()
	}
	if all := d.outcomes(forbid); !slices.Equal(all, []string{"forbidden", "fired"}) {
		t.Errorf("forbid: %v", all)
	}
	for _, s := range []store.Schedule{queue, replace} {
		now := d.reread(s)
		if len(now.Live) != 2 {
			t.Fatalf("%s: %v live", s.Name, now.Live)
		}
		if _, v := d.get(now.Live[1]); v.Wait != task.WaitDependency || v.HolderID != now.Live[0] {
			t.Errorf("%s: the second waits for %v %v", s.Name, v.Wait, v.HolderID)
		}
	}
	over, err := d.OvertakenFires(t.Context(), 10)
	if now := d.reread(replace); err != nil || !slices.Equal(over, now.Live[:1]) {
		t.Fatalf("overtaken are %v of %v, %v", over, now.Live, err)
	}
	if _, err := d.Cancel(t.Context(), over[0], "schedule:ns/replace", "replaced"); err != nil {
		t.Fatal(err)
	}
	if over, err := d.OvertakenFires(t.Context(), 10); len(over) != 0 || err != nil {
		t.Errorf("then %v, %v", over, err)
	}
}

func TestWhatARuleRefusesKeepsNoOtherScheduleFromItsFire(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	busy := itemWith(func(it *store.Item) { it.OnConflict = task.ConflictReject }).of("volume:ns/busy")
	holder := d.one(item("volume:ns/busy"))
	var all []store.Schedule
	for i := range 5 {
		all = append(all, d.schedule(every(fmt.Sprint(i), time.Minute)))
	}
	d.advance(time.Minute)
	out, err := d.FireSchedules(t.Context(), 100, nil, func(in store.ScheduleInput) store.SchedulePlan {
		p := plain(in)
		if in.Schedule.Name == "2" {
			it := busy
			p.Fires[0].Item = &it
		}
		return p
	})
	if err != nil || len(out.Fires) != 5 {
		t.Fatalf("%+v, %v", out, err)
	}
	for _, s := range all {
		want := "fired"
		if s.Name == "2" {
			want = "refused"
		}
		page, err := d.Fires(t.Context(), s.Key, "", "", 10)
		if err != nil || len(page.Fires) != 1 || page.Fires[0].Outcome != want {
			t.Errorf("schedule %s: %+v, %v; want %s", s.Name, page.Fires, err, want)
		}
	}
	if n := value[int](d, "SELECT count(*) FROM slipway.tasks WHERE schedule IS NOT NULL"); n != 4 {
		t.Errorf("%d tasks", n)
	}
	d.wantState(holder.ID, task.Queued, "")
}

func TestARowThatIsBrokenBehindTheAPIsBackIsMarkedAndTheOthersRunOn(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	for i := range 20 {
		d.schedule(every(fmt.Sprint(i), time.Minute))
	}
	d.sql(`INSERT INTO slipway.schedules (namespace, name, cron, template) VALUES ('ns', 'zone', 'TZ=0', '{}');
		INSERT INTO slipway.schedules (namespace, name, every, template) VALUES ('ns', 'nan', 'NaN', '{}'), ('ns', 'huge', '1e300', '{}'), ('ns', 'inf', '-Infinity', '{}');
		INSERT INTO slipway.schedules (namespace, name, every, template, labels) VALUES ('ns', 'labels', 60, '{}', '[1]');
		INSERT INTO slipway.schedules (namespace, name, every, template, calendars) VALUES ('ns', 'calendars', 60, '{}', '{"a": 1}')`)
	d.advance(time.Minute)
	out, err := d.FireSchedules(t.Context(), 100, nil, func(in store.ScheduleInput) store.SchedulePlan {
		if in.Schedule.Name == "huge" {
			panic("no such length")
		}
		return plain(in)
	})
	if err != nil || len(out.Fires) != 20 || out.Looked != 26 {
		t.Fatalf("%d fires of %d, %v", len(out.Fires), out.Looked, err)
	}
	if n := value[int](d, "SELECT count(*) FROM slipway.schedules WHERE broken <> '' AND next_at IS NULL"); n != 6 {
		t.Errorf("%d are marked", n)
	}
	page, err := d.Schedules(t.Context(), store.ScheduleFilter{Broken: true})
	if err != nil || len(page.Schedules) != 6 {
		t.Errorf("the list shows %d broken ones, %v", len(page.Schedules), err)
	}
	if h, err := d.ScheduleHealth(t.Context()); err != nil || h != (store.ScheduleHealth{Total: 26, Broken: 6}) {
		t.Errorf("health: %+v, %v", h, err)
	}
	d.sql("UPDATE slipway.schedules SET expect_within = 30 WHERE name IN ('1', '2', 'nan')")
	d.sql("UPDATE slipway.tasks SET state = 'succeeded', ended_at = slipway.now() WHERE name = '1'")
	d.advance(time.Minute)
	if h, err := d.ScheduleHealth(t.Context()); err != nil || h.Late != 3 {
		t.Errorf("a minute later: %+v, %v", h, err)
	}
	promised, err := d.PromisedSchedules(t.Context(), 10)
	if err != nil || len(promised) != 3 {
		t.Fatalf("promised are %+v, %v", promised, err)
	}
	for _, p := range promised {
		if !p.Overdue || p.LastSuccessAt.IsZero() == (p.Name == "1") {
			t.Errorf("promised is %+v", p)
		}
	}
	if again := d.fire(); len(again.Fires) != 20 || again.Looked != 20 {
		t.Errorf("then %d fires of %d", len(again.Fires), again.Looked)
	}
	mended, err := d.ChangeSchedule(t.Context(), page.Schedules[0].ID, store.ScheduleChange{Verb: "patch", By: "alice"}, func(s *store.Schedule) error {
		s.Cron, s.Every, s.Calendars, s.Labels = "", time.Minute, nil, map[string]string{}
		return nil
	}, plain)
	if err != nil || mended.Broken != "" || mended.NextAt.IsZero() {
		t.Errorf("mended: %+v, %v", mended, err)
	}
}

func TestAScheduleThatIsDueAtOnceForEverIsBrokenAndDoesNotSpin(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	d.schedule(every("a", time.Minute))
	d.advance(time.Minute)
	stuck := func(store.ScheduleInput) store.SchedulePlan { return store.SchedulePlan{Next: time.Unix(1, 0)} }
	for range 3 {
		if _, err := d.FireSchedules(t.Context(), 10, nil, stuck); err != nil {
			t.Fatal(err)
		}
	}
	if why := value[string](d, "SELECT broken FROM slipway.schedules"); why == "" {
		t.Error("it is not marked")
	}
}

func TestAChangeCountsFromNowOnAndWhatWasDueIsNotedAsMissed(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	s := d.schedule(every("a", time.Minute))
	change := func(fn func(*store.Schedule)) store.Schedule {
		t.Helper()
		now, err := d.ChangeSchedule(t.Context(), s.ID, store.ScheduleChange{Verb: "patch", By: "bob"}, func(s *store.Schedule) error { fn(s); return nil }, plain)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	d.advance(150 * time.Second) // nobody fires
	now := change(func(s *store.Schedule) { s.Enabled = false })
	if !now.NextAt.IsZero() || now.Revision != 2 || now.ChangedBy != "bob" {
		t.Errorf("disabled: %+v", now)
	}
	if all := d.outcomes(s); !slices.Equal(all, []string{"missed", "missed"}) {
		t.Errorf("the ledger says %v", all)
	}
	d.advance(24 * time.Hour)
	d.fire()
	now = change(func(s *store.Schedule) { s.Enabled = true })
	if got := d.fire(); len(got.Fires) != 0 || got.NextIn <= 0 || !now.EnabledAt.Equal(now.ConsideredAt) {
		t.Errorf("after a day off: %+v", got)
	}
	if again := change(func(*store.Schedule) {}); again.Revision != now.Revision {
		t.Errorf("an empty change made revision %d of %d", again.Revision, now.Revision)
	}
	_, err := d.ChangeSchedule(t.Context(), s.ID, store.ScheduleChange{Revision: 1, Verb: "patch", By: "bob"}, func(*store.Schedule) error { return nil }, plain)
	if !errors.Is(err, store.ErrRevision) {
		t.Errorf("an old revision: %v", err)
	}
	if err := d.DeleteSchedule(t.Context(), s.ID, 1, "bob"); !errors.Is(err, store.ErrRevision) {
		t.Errorf("deleted by an old revision: %v", err)
	}
	if _, err := d.CreateSchedule(t.Context(), every("a", time.Hour), "bob", plain); !errors.Is(err, store.ErrTaken) {
		t.Errorf("a second one of the name: %v", err)
	}
	if err := d.DeleteSchedule(t.Context(), s.ID, now.Revision, "bob"); err != nil {
		t.Fatal(err)
	}
	if n := value[int](d, "SELECT count(*) FROM slipway.schedule_fires"); n != 0 {
		t.Errorf("%d rows of its ledger are left", n)
	}
	want := []string{"create", "patch", "patch", "delete"}
	if got := value[[]string](d, "SELECT array_agg(verb ORDER BY id) FROM slipway.audit WHERE resource = 'schedules'"); !slices.Equal(got, want) {
		t.Errorf("the audit tells %v", got)
	}
}

// Case 34: two hundred changes of different fields at once while the firing writes the same rows.
func TestConcurrentChangesAndTheFiringLoseNothingOfEachOther(t *testing.T) {
	d := newDatabase(t)
	s := d.schedule(every("a", 20*time.Millisecond))
	stop := make(chan struct{})
	var firing, changing sync.WaitGroup
	var fired atomic.Int64
	firing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			out, err := d.FireSchedules(context.Background(), 10, nil, plain)
			if err != nil {
				t.Error(err)
				return
			}
			fired.Add(int64(len(out.Fires)))
		}
	})
	for field := range 2 {
		changing.Go(func() {
			for n := range 200 {
				_, err := d.ChangeSchedule(context.Background(), s.ID, store.ScheduleChange{Verb: "patch", By: "alice"}, func(s *store.Schedule) error {
					if field == 0 {
						s.Description = fmt.Sprint(n)
						if n == 199 {
							s.Description = "" // empty is a value
						}
					} else {
						s.ExpectSuccess = time.Duration(199-n) * time.Second
					}
					return nil
				}, plain)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	changing.Wait()
	close(stop)
	firing.Wait()
	now := d.reread(s)
	if now.Description != "" || now.ExpectSuccess != 0 {
		t.Errorf("description %q, expected within %v", now.Description, now.ExpectSuccess)
	}
	if now.Revision != 401 {
		t.Errorf("revision %d after 400 changes", now.Revision)
	}
	notes := value[int64](d, "SELECT count(*) FROM slipway.schedule_fires")
	if fired.Load() == 0 || notes != fired.Load() || now.LastTask == "" {
		t.Errorf("%d fires, %d in the ledger, the last one %q", fired.Load(), notes, now.LastTask)
	}
	if at := value[time.Time](d, "SELECT max(at) FROM slipway.schedule_fires WHERE task IS NOT NULL"); !at.Equal(now.LastFireAt) {
		t.Errorf("the row says that it fired last at %v, the ledger %v", now.LastFireAt, at)
	}
	if n := d.Deadlocks(); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	if _, err := d.ChangeSchedule(t.Context(), s.ID, store.ScheduleChange{Verb: "pause", By: "alice"}, func(s *store.Schedule) error { s.Enabled = false; return nil }, plain); err != nil {
		t.Fatal(err)
	}
	was := value[int](d, "SELECT count(*) FROM slipway.tasks")
	time.Sleep(50 * time.Millisecond) // three intervals, of which none may fire
	d.fire()
	if n := value[int](d, "SELECT count(*) FROM slipway.tasks"); n != was {
		t.Errorf("%d tasks after it was disabled, %d before", n, was)
	}
}

// Case 5, in the database: a thousand schedules of one minute, three replicas.
func TestAThousandSchedulesOfOneMinuteFireOnceEachWhoeverRaces(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	const many = 1000
	d.sql(fmt.Sprintf(`INSERT INTO slipway.schedules (namespace, name, every, overlap, template, next_at)
		SELECT 'ns' || n %% 10, 'n' || n, 60, 'allow', '{}', slipway.now() + interval '60 seconds' FROM generate_series(1, %d) n`, many))
	replicas := []*store.Store{d.Store}
	for _, name := range []string{"b", "c"} {
		replicas = append(replicas, pgtest.Open(t, store.Config{URL: d.url, Replica: name}))
	}
	d.advance(time.Minute)
	began := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration // of each fire, from the minute on
	for _, s := range replicas {
		all.Go(func() {
			for {
				out, err := s.FireSchedules(context.Background(), 100, nil, plain)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for range out.Fires {
					took = append(took, time.Since(began))
				}
				mu.Unlock()
				if !out.More {
					return
				}
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	if len(took) != many {
		t.Fatalf("%d fires", len(took))
	}
	t.Logf("p50 %v, p99 %v", took[many/2], took[many*99/100])
	for what, want := range map[string]int{
		"SELECT count(*) FROM slipway.tasks":                                                                                        many,
		"SELECT count(DISTINCT (schedule, fire_at)) FROM slipway.tasks":                                                             many,
		"SELECT count(*) FROM slipway.schedule_fires WHERE outcome = 'fired'":                                                       many,
		"SELECT count(*) FROM slipway.schedules WHERE next_at <= slipway.now()":                                                     0,
		"SELECT count(*) FROM slipway.tasks t WHERE EXISTS (SELECT 1 FROM slipway.lanes l WHERE l.key = t.lane AND l.head = t.key)": many,
	} {
		if got := value[int](d, what); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
}

func TestAReplicaThatFreezesWhileItFiresIsOvertakenAndDoublesNothing(t *testing.T) {
	d := newDatabase(t)
	s := d.schedule(every("a", time.Hour))
	d.sql("UPDATE slipway.schedules SET considered_at = considered_at - interval '1 hour', anchor_at = anchor_at - interval '1 hour', next_at = slipway.now()")
	frozen := pgtest.Open(t, store.Config{URL: d.url, Replica: "frozen", StatementTimeout: 500 * time.Millisecond})
	inside, wake, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		first := true
		_, err := frozen.FireSchedules(context.Background(), 10, nil, func(in store.ScheduleInput) store.SchedulePlan {
			if first {
				first = false
				close(inside)
				<-wake
			}
			return plain(in)
		})
		ended <- err
	}()
	<-inside
	if out := d.fire(); len(out.Fires) != 0 {
		t.Errorf("fired under the lock of another: %+v", out.Fires)
	}
	for began := time.Now(); len(d.fire().Fires) == 0; { // until the server ends the frozen one's transaction
		if time.Since(began) > 10*time.Second {
			t.Fatal("nobody takes over")
		}
		time.Sleep(20 * time.Millisecond)
	}
	close(wake)
	if err := <-ended; err != nil && !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the frozen one: %v", err)
	}
	if n := value[int](d, "SELECT count(*) FROM slipway.tasks WHERE schedule IS NOT NULL"); n != 1 {
		t.Errorf("%d tasks", n)
	}
	if all := d.outcomes(s); !slices.Equal(all, []string{"fired"}) {
		t.Errorf("the ledger says %v", all)
	}
}

func TestABackfillMakesUpForAMissedInstantAndRepeatsNone(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	s := d.schedule(every("a", time.Minute))
	d.advance(2 * time.Minute)
	d.fire()
	backfill := func(store.ScheduleInput) store.SchedulePlan {
		p := store.SchedulePlan{Keep: true}
		for n := range 2 {
			it := item("")
			p.Fires = append(p.Fires, store.ScheduleFire{
				At: s.AnchorAt.Add(time.Duration(n+1) * time.Minute), Source: store.FromBackfill, Outcome: store.FireFired, Item: &it,
			})
		}
		return p
	}
	before := d.reread(s)
	got, err := d.FireSchedule(t.Context(), store.HandFire{ID: s.ID, Verb: "backfill", By: "alice"}, backfill)
	if err != nil || len(got) != 1 || got[0].Task == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if all := d.outcomes(s); !slices.Equal(all, []string{"fired", "fired"}) {
		t.Errorf("the ledger says %v", all)
	}
	after := d.reread(s)
	if !after.NextAt.Equal(before.NextAt) || !after.ConsideredAt.Equal(before.ConsideredAt) {
		t.Errorf("the clock's part has moved: %v %v", after.NextAt, after.ConsideredAt)
	}
}

func TestACalendarHoldsForWhoNamesItAndStaysWhileNamed(t *testing.T) {
	d := newDatabase(t)
	set := func(c store.Calendar) {
		t.Helper()
		if c.Windows == nil {
			c.Windows = json.RawMessage(`[]`)
		}
		if err := d.SetCalendar(t.Context(), c, 0, "alice"); err != nil {
			t.Fatal(err)
		}
	}
	set(store.Calendar{Name: "holidays"})
	set(store.Calendar{Name: "everywhere", ForAll: true})
	set(store.Calendar{Namespace: "other", Name: "holidays"})
	s := every("a", time.Hour)
	s.Calendars = []string{"holidays", "gone"}
	var saw store.ScheduleInput
	look := func(in store.ScheduleInput) store.SchedulePlan { saw = in; return plain(in) }
	made, err := d.CreateSchedule(t.Context(), s, "alice", look)
	if err != nil {
		t.Fatal(err)
	}
	names := func() (all []string) {
		for _, c := range saw.Calendars {
			all = append(all, c.Namespace+"/"+c.Name)
		}
		return all
	}
	if got := names(); !slices.Equal(got, []string{"/everywhere", "/holidays"}) || !slices.Equal(saw.Missing, []string{"gone"}) {
		t.Errorf("it is held by %v, misses %v", got, saw.Missing)
	}
	set(store.Calendar{Namespace: "ns", Name: "holidays"})
	if out, err := d.FireSchedules(t.Context(), 10, nil, look); err != nil || out.Looked != 1 {
		t.Fatalf("after a change of its calendar: %+v, %v", out, err)
	}
	if got := names(); !slices.Equal(got, []string{"/everywhere", "ns/holidays"}) {
		t.Errorf("its own namespace's goes first: %v", got)
	}
	var used *store.CalendarUsedError
	if err := d.DeleteCalendar(t.Context(), store.Calendar{Namespace: "ns", Name: "holidays"}, 0, "alice"); !errors.As(err, &used) || used.Schedule != "ns/a" {
		t.Errorf("deleted while named: %v", err)
	}
	if err := d.DeleteSchedule(t.Context(), made.ID, 0, "alice"); err != nil {
		t.Fatal(err)
	}
	if err := d.DeleteCalendar(t.Context(), store.Calendar{Namespace: "ns", Name: "holidays"}, 7, "alice"); !errors.Is(err, store.ErrRevision) {
		t.Errorf("deleted by another revision: %v", err)
	}
	if err := d.DeleteCalendar(t.Context(), store.Calendar{Namespace: "ns", Name: "holidays"}, 1, "alice"); err != nil {
		t.Error(err)
	}
}

func TestSchedulesAreListedInPagesThatMissNone(t *testing.T) {
	d := newDatabase(t)
	for i := range 7 {
		s := every(fmt.Sprint("s", i), time.Hour)
		s.Labels = map[string]string{"odd": fmt.Sprint(i % 2)}
		d.schedule(s)
	}
	var seen []string
	for f := (store.ScheduleFilter{Namespace: "ns", Limit: 3}); ; {
		page, err := d.Schedules(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Schedules {
			seen = append(seen, s.Name)
		}
		if f.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	if want := []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6"}; !slices.Equal(seen, want) {
		t.Errorf("seen %v", seen)
	}
	yes := true
	page, err := d.Schedules(t.Context(), store.ScheduleFilter{Labels: map[string]string{"odd": "1"}, Enabled: &yes})
	if err != nil || len(page.Schedules) != 3 {
		t.Errorf("%d are odd, %v", len(page.Schedules), err)
	}
	if _, err := d.Schedules(t.Context(), store.ScheduleFilter{Cursor: "%%"}); err == nil {
		t.Error("a made-up cursor passes")
	}
}

// Case 27: a session in any zone sees and stores the same instants.
func TestInstantsOfSchedulesAreTheSameInEverySessionZone(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	s := d.schedule(every("a", time.Minute))
	d.sql("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = %L', current_database(), 'Asia/Kolkata'); END $$")
	abroad := database{pgtest.Open(t, store.Config{URL: d.url, Replica: "abroad"}), t, d.url}
	if zone := value[string](d, "SHOW timezone"); zone != "Asia/Kolkata" {
		t.Fatalf("a new session is in %s", zone)
	}
	if there := abroad.reread(s); !there.NextAt.Equal(s.NextAt) || !there.ConsideredAt.Equal(s.ConsideredAt) {
		t.Errorf("next %v and considered %v, at home %v and %v", there.NextAt, there.ConsideredAt, s.NextAt, s.ConsideredAt)
	}
	d.advance(time.Minute)
	if got := abroad.fire(); len(got.Fires) != 1 || !got.Fires[0].At.Equal(s.NextAt) || got.NextIn != time.Minute {
		t.Errorf("%+v, want one at %v", got, s.NextAt)
	}
	page, err := d.Fires(t.Context(), s.Key, "", "", 1)
	if err != nil || len(page.Fires) != 1 || !page.Fires[0].At.Equal(s.NextAt) {
		t.Errorf("the ledger at home: %+v, %v", page, err)
	}
	if n := value[int](d, `SELECT count(*) FROM information_schema.columns WHERE table_schema = 'slipway' AND data_type IN ('timestamp without time zone', 'date')`); n != 0 {
		t.Errorf("%d columns have no zone", n)
	}
}
