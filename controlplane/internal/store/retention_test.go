package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

const dayLong = 24 * time.Hour

func keepAll() store.Keep {
	return store.Keep{
		Succeeded: 7 * dayLong, Failed: 30 * dayLong, Events: 7 * dayLong, Logs: 30 * dayLong, Fires: 30 * dayLong,
		Tasks: 1 << 40, LogBytes: 1 << 40,
	}
}

func (d database) retain(k store.Keep) store.Removed {
	d.t.Helper()
	out, err := d.Retain(d.t.Context(), k)
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

// end claims the one Task that waits, ends it and closes it.
func (d database) end(v task.Verdict) string {
	d.t.Helper()
	c := d.claimOne()
	d.finish(c, v)
	d.closeAll()
	return c.Task.ID
}

func (d database) closeAll() {
	d.sql("UPDATE slipway.attempts SET closed_at = slipway.now() WHERE finished_at IS NOT NULL")
}

// left are the names of the Tasks that are there.
func (d database) left() []string {
	d.t.Helper()
	return value[[]string](d, "SELECT coalesce(array_agg(name ORDER BY name), '{}') FROM slipway.tasks")
}

func (d database) wantLeft(when string, want ...string) {
	d.t.Helper()
	if got := d.left(); !slices.Equal(got, want) {
		d.t.Errorf("%s: left are %v, want %v", when, got, want)
	}
}

func named(name string, it store.Item) store.Item {
	it.Task.Name = name
	return it
}

func TestWhatHasEndedIsKeptByStateAndAgeAndAsLongAsItIsNeeded(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	once := task.Verdict{Outcome: task.OutcomeRejected, Reason: task.ReasonExitCode}
	d.one(named("well", item("")))
	d.end(success)
	d.one(named("failed", item("")))
	d.end(once)
	canceled := d.one(named("canceled", item("")))
	if _, err := d.Cancel(t.Context(), canceled.ID, "bob", ""); err != nil {
		t.Fatal(err)
	}
	d.one(named("not closed", item("")))
	d.finish(d.claimOne(), success)
	open := value[int64](d, "SELECT a.id FROM slipway.attempts a JOIN slipway.tasks t ON t.key = a.task WHERE t.name = 'not closed'")
	d.one(named("waited for", item("")))
	needed := d.end(success)
	d.sql(fmt.Sprintf("UPDATE slipway.attempts SET closed_at = NULL WHERE id = %d", open))
	waits := itemWith(func(i *store.Item) { i.After, i.RunIf, i.Task.Name = []string{needed}, store.AllFinished, "waits" }).of("volume:ns/w")
	dependent := d.one(waits)
	if err := d.Hold(t.Context(), dependent.ID, "bob", ""); err != nil {
		t.Fatal(err)
	}
	everything := []string{"canceled", "failed", "not closed", "waited for", "waits", "well"}
	d.advance(7*dayLong - time.Minute)
	d.retain(keepAll())
	d.wantLeft("before a week is over", everything...)
	d.advance(2 * time.Minute)
	if got := d.retain(keepAll()); got.Tasks != 1 {
		t.Errorf("removed %+v", got)
	}
	d.wantLeft("after a week", slices.DeleteFunc(slices.Clone(everything), func(n string) bool { return n == "well" })...)
	d.closeAll()
	d.retain(keepAll())
	d.wantLeft("once it is closed", "canceled", "failed", "waited for", "waits")
	d.advance(23 * dayLong)
	if _, err := d.Cancel(t.Context(), dependent.ID, "bob", ""); err != nil {
		t.Fatal(err)
	}
	d.retain(keepAll())
	d.wantLeft("after thirty days", "waits")
	for _, rows := range []string{"attempts", "logs", "leases"} {
		if n := value[int](d, "SELECT count(*) FROM slipway."+rows); n != 0 {
			t.Errorf("%d %s are left", n, rows)
		}
	}
	if _, found := d.checked(); len(found) > 0 {
		t.Errorf("lanes: %v", found)
	}
}

func TestATreeGoesWholeOrNotAtAll(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	parent := named("parent", item("branch:ns/a"))
	parent.Children = []store.Item{named("child 1", item("")), named("child 2", item(""))}
	d.one(parent)
	d.claim(10)
	d.settle()
	once := task.Verdict{Outcome: task.OutcomeRejected, Reason: task.ReasonExitCode}
	for n, c := range d.claim(10) {
		d.finish(c, []task.Verdict{success, once}[n])
	}
	d.closeAll()
	d.settle()
	d.advance(8 * dayLong)
	d.retain(keepAll()) // the child that succeeded is what a retry of its parent leaves out
	d.wantLeft("after a week", "child 1", "child 2", "parent")
	d.advance(23 * dayLong)
	if got := d.retain(keepAll()); got.Tasks != 3 {
		t.Errorf("removed %+v", got)
	}
	d.wantLeft("after thirty days")
}

func TestTheLastSuccessOfAScheduleStays(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	s := d.schedule(every("a", time.Hour))
	for range 3 {
		d.advance(time.Hour)
		d.fire()
		d.end(success)
	}
	d.sql("UPDATE slipway.schedules SET enabled = false, next_at = NULL")
	last := d.reread(s).LastSuccessAt
	d.advance(40 * dayLong)
	if got := d.retain(keepAll()); got.Tasks != 2 || got.Fires != 3 {
		t.Errorf("removed %+v", got)
	}
	now := d.reread(s)
	if !now.LastSuccessAt.Equal(last) || now.LedgerFrom.IsZero() || now.LedgerFrom.After(last) {
		t.Errorf("last success %v, want %v; the ledger reaches back to %v", now.LastSuccessAt, last, now.LedgerFrom)
	}
	if err := d.DeleteSchedule(t.Context(), s.ID, 0, "bob"); err != nil {
		t.Fatal(err)
	}
	d.retain(keepAll())
	d.wantLeft("without its schedule")
}

func TestBeyondTheMostEndedTasksTheOldestGo(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	for n := range 5 {
		d.one(named(fmt.Sprint(n), item("")))
		d.end(success)
		d.advance(time.Second)
	}
	d.one(named("queued", item("")))
	k := keepAll()
	k.Tasks = 2
	d.retain(k)
	d.wantLeft("with two at most", "3", "4", "queued")
	k.Tasks = 0
	d.retain(k)
	d.wantLeft("with none", "queued")
}

// hold keeps a transaction open that has run a statement.
func (d database) holding(statement string) (end func()) {
	d.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, statement); err != nil {
		d.t.Fatal(err)
	}
	return func() {
		_ = tx.Rollback(ctx)
		_ = conn.Close(ctx)
	}
}

func TestRetentionWaitsForNobodyAndTakesTheRest(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	for _, name := range []string{"a", "b"} {
		d.one(named(name, item("")))
		d.end(success)
	}
	s := d.schedule(every("s", time.Hour))
	d.advance(time.Hour)
	d.fire()
	d.sql("UPDATE slipway.schedules SET enabled = false, next_at = NULL; UPDATE slipway.tasks SET held = true WHERE state = 'queued'")
	d.sql("INSERT INTO slipway.idempotency VALUES ('x', 'old', '', '[]', slipway.now()), ('x', 'young', '', '[]', slipway.now() + interval '90 days')")
	d.advance(31 * dayLong)
	end := d.holding("SELECT 1 FROM slipway.tasks t, slipway.schedules s WHERE t.name = 'a' FOR KEY SHARE OF t FOR NO KEY UPDATE OF s")
	began := time.Now()
	got := d.retain(keepAll())
	if took := time.Since(began); took > 5*time.Second || got.Tasks != 1 || got.Fires != 0 || got.Keys != 1 {
		t.Errorf("beside a transaction it took %v and removed %+v", took, got)
	}
	end()
	if got := d.retain(keepAll()); got.Tasks != 1 || got.Fires != 1 || got.Keys != 0 {
		t.Errorf("afterwards it removed %+v", got)
	}
	if all := d.outcomes(s); len(all) != 0 {
		t.Errorf("the ledger has %v", all)
	}
}

func TestDaysOfEventsAndLogsGoByAgeAndBySizeAndAreMadeAhead(t *testing.T) {
	d := newDatabase(t)
	d.sql("CREATE TABLE slipway.stray (n int)") // of no concern
	d.clockAt()
	d.retain(keepAll())
	days := func(parent string) int {
		return value[int](d, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'slipway."+parent+"'::regclass") - 1 // the default part
	}
	if events, logs := days("events"), days("logs"); events != 4 || logs != 4 {
		t.Fatalf("%d and %d days are there, want today and three", events, logs)
	}
	for range 9 {
		d.advance(dayLong)
		d.one(item(""))
		d.end(success)
		d.sql("INSERT INTO slipway.logs (attempt, part, at, bytes) VALUES (1, 0, slipway.now(), 'x')")
		d.retain(store.Keep{Events: 365 * dayLong, Logs: 365 * dayLong, Fires: dayLong, Succeeded: 365 * dayLong, Failed: dayLong, Tasks: 100, LogBytes: 1 << 40})
	}
	if n := value[int](d, "SELECT count(*) FROM slipway.events_default"); n != 0 {
		t.Errorf("%d events came on a day without a part", n)
	}
	end := d.holding("SELECT count(*) FROM slipway.events") // somebody reads them all
	if got := d.retain(keepAll()); got.EventDays != 0 {
		t.Errorf("beside a reader %d days went", got.EventDays)
	}
	end()
	if got := d.retain(keepAll()); got.EventDays != 2 || got.LogDays != 0 {
		t.Errorf("by age %+v went", got)
	}
	k := keepAll()
	k.LogBytes = 0
	if got := d.retain(k); got.LogDays != 9 || days("logs") != 4 {
		t.Errorf("by size %+v went, %d are left", got, days("logs"))
	}
	d.sql("DROP TABLE slipway.stray; INSERT INTO slipway.events_default (task, type, at) SELECT 1, 'old', slipway.now() - interval '20 days' FROM generate_series(1, 1200)")
	if got := d.retain(keepAll()); got.Strays != 1200 {
		t.Errorf("%d strays went", got.Strays)
	}
}
