package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// checked looks at all lanes, a few at a time, and names what differs.
func (d database) checked() (lanes int, found []string) {
	d.t.Helper()
	for after := ""; ; {
		c, err := d.CheckLanes(d.t.Context(), after, 2)
		if err != nil {
			d.t.Fatal(err)
		}
		lanes += c.Checked
		for _, x := range c.Differences {
			found = append(found, x.Lane+" "+x.Field)
		}
		if after = c.Next; after == "" {
			return lanes, found
		}
	}
}

// everyLane stands in every state that a lane can have.
func (d database) everyLane() (running store.Claimed) {
	d.t.Helper()
	d.one(item("volume:ns/running"))
	running = d.claimOne()
	d.enqueue(item("volume:ns/running"), item("volume:ns/queued"), item("volume:ns/queued"), item(""))
	urgent := itemWith(func(it *store.Item) { it.Task.Class = task.Critical }).of("volume:ns/queued")
	d.one(urgent)
	held := d.one(item("volume:ns/held"))
	if err := d.Hold(d.t.Context(), held.ID, "ada", "look"); err != nil {
		d.t.Fatal(err)
	}
	d.one(itemWith(func(it *store.Item) { it.Delay = time.Hour }).of("volume:ns/delayed"))
	parent := item("branch:ns/b")
	parent.Children = []store.Item{item("volume:ns/child")}
	d.one(parent)
	return running
}

func TestACheckOfLanesFindsNothingInAnyState(t *testing.T) {
	d := newDatabase(t)
	c := d.everyLane()
	look := func(when string) {
		t.Helper()
		if n, found := d.checked(); n < 5 || len(found) > 0 {
			t.Fatalf("%s: %d lanes, found %v", when, n, found)
		}
	}
	look("at first")
	d.finish(c, failure) // back-off
	look("in back-off")
	d.claim(20)
	look("running")
	d.settle()
	look("with children")
	for _, id := range []string{"volume:ns/queued"} {
		got, err := d.Tasks(t.Context(), store.ListFilter{Lane: id, State: task.Queued})
		if err != nil || len(got.Tasks) == 0 {
			t.Fatal(got, err)
		}
		if _, err := d.Cancel(t.Context(), got.Tasks[0].ID, "ada", ""); err != nil {
			t.Fatal(err)
		}
	}
	look("after a cancel")
}

func TestACheckOfLanesFindsEveryDifferenceAndRepairsIt(t *testing.T) {
	for name, tc := range map[string]struct{ spoil, lane, fields string }{
		"a holder that does not run":      {"UPDATE slipway.lanes SET holder = 99999 WHERE key = 'volume:ns/queued'", "volume:ns/queued", "holder"},
		"a holder forgotten":              {"UPDATE slipway.lanes SET holder = NULL WHERE key = 'volume:ns/running'", "volume:ns/running", "holder"},
		"a lane forgotten":                {"DELETE FROM slipway.lanes WHERE key = 'volume:ns/queued'", "volume:ns/queued", "row"},
		"the lane of a holder gone":       {"DELETE FROM slipway.lanes WHERE key = 'volume:ns/running'", "volume:ns/running", "row"},
		"no head":                         {"UPDATE slipway.lanes SET head = NULL, rank = NULL WHERE key = 'volume:ns/queued'", "volume:ns/queued", "head rank"},
		"a wrong rank":                    {"UPDATE slipway.lanes SET rank = rank + interval '1 hour' WHERE key = 'volume:ns/queued'", "volume:ns/queued", "rank"},
		"shut without a back-off":         {"UPDATE slipway.lanes SET ready_at = slipway.now() + interval '1 hour' WHERE key = 'volume:ns/queued'", "volume:ns/queued", "ready_at"},
		"another queue":                   {"UPDATE slipway.lanes SET queue = 'volume' WHERE key = 'volume:ns/queued'", "volume:ns/queued", "queue"},
		"another kind":                    {"UPDATE slipway.lanes SET kind = 'x', namespace = 'y' WHERE key = 'volume:ns/queued'", "volume:ns/queued", "kind namespace"},
		"begins behind its head":          {"UPDATE slipway.lanes SET last_seq = 1000000000 WHERE key = 'volume:ns/queued'", "volume:ns/queued", "last_seq"},
		"an old fence":                    {"UPDATE slipway.lanes SET fence = 0 WHERE key = 'volume:ns/running'", "volume:ns/running", "fence"},
		"a private lane left over":        {"INSERT INTO slipway.lanes (key, queue, namespace, kind, private) VALUES ('task:99999', 'default', 'ns', 'k', true)", "task:99999", "row"},
		"a held head that may be claimed": {"UPDATE slipway.lanes SET rank = slipway.now() WHERE key = 'volume:ns/held'", "volume:ns/held", "rank"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			d.everyLane()
			d.sql(tc.spoil)
			var want []string
			for _, f := range strings.Fields(tc.fields) {
				want = append(want, tc.lane+" "+f)
			}
			if _, found := d.checked(); !slices.Equal(found, want) {
				t.Fatalf("found %v, want %v", found, want)
			}
			done, err := d.RepairLane(t.Context(), tc.lane, "ada")
			if err != nil || len(done) != len(want) || !done[0].Repaired {
				t.Fatalf("repaired %+v, %v", done, err)
			}
			if _, found := d.checked(); len(found) > 0 {
				t.Errorf("still found %v", found)
			}
			if n := value[int](d, "SELECT count(*) FROM slipway.audit WHERE verb = 'repair' AND name = $1", tc.lane); n != 1 {
				t.Errorf("%d audit rows", n)
			}
			if done, err := d.RepairLane(t.Context(), tc.lane, "ada"); err != nil || len(done) > 0 {
				t.Errorf("repaired again %+v, %v", done, err)
			}
		})
	}
}

func TestALaneTakenByForceGoesToTheNextAndTheOldFenceIsDead(t *testing.T) {
	d := newDatabase(t)
	first, second := d.one(item("volume:ns/a")), d.one(item("volume:ns/a"))
	c := d.claimOne()
	if _, _, err := d.Start(t.Context(), store.StartRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "u", PodName: "p", Node: "n"}); err != nil {
		t.Fatal(err)
	}
	d.sql(fmt.Sprintf(`UPDATE slipway.tasks SET spec = jsonb_set(spec, '{idempotent}', 'false') WHERE id = '%s'`, first.ID))
	done, err := d.ForceRelease(t.Context(), "volume:ns/a", "ada", "its node is off")
	if err != nil || done.TaskID != first.ID || done.Reason != task.ReasonForceReleased || done.Outcome != task.OutcomeLost ||
		!slices.Equal(done.MayStillRun, []string{"pod p on node n"}) {
		t.Fatalf("%+v, %v", done, err)
	}
	d.wantState(first.ID, task.Failed, task.ReasonInterrupted)
	next := d.claimOne()
	if next.Task.ID != second.ID || next.Attempt.Fence <= c.Attempt.Fence {
		t.Errorf("next is %+v", next)
	}
	if err := d.Report(t.Context(), store.ReportRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "u", Report: task.Report{Outcome: task.OutcomeSucceeded}}); !errors.Is(err, store.ErrStale) {
		t.Errorf("a report under the old fence: %v", err)
	}
	if text := value[string](d, "SELECT concat(actor, ' ', verb, ' ', name, ' ', namespace, ' ', after ->> 'reason', ' ', before ->> 'fence') FROM slipway.audit WHERE verb = 'force-release'"); text != fmt.Sprint("ada force-release volume:ns/a ns its node is off ", c.Attempt.Fence) {
		t.Errorf("audit %q", text)
	}
	if _, found := d.checked(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

func TestWhatIsStoredOutweighsAForceReleaseAndWithoutAHolderThereIsNone(t *testing.T) {
	d := newDatabase(t)
	a := d.one(item("volume:ns/a"))
	if _, err := d.ForceRelease(t.Context(), "volume:ns/none", "ada", "x"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no lane: %v", err)
	}
	var hindered *store.HinderedError
	if _, err := d.ForceRelease(t.Context(), "volume:ns/a", "ada", "x"); !errors.As(err, &hindered) || hindered.Reason != store.HinderFree {
		t.Errorf("no holder: %v", err)
	}
	d.claimOne()
	if _, err := d.Cancel(t.Context(), a.ID, "bob", ""); err != nil {
		t.Fatal(err)
	}
	if done, err := d.ForceRelease(t.Context(), "volume:ns/a", "ada", "x"); err != nil || done.State != task.Canceled || done.Reason != task.ReasonCanceled {
		t.Errorf("canceled before: %+v, %v", done, err)
	}
	parent := item("branch:ns/b")
	parent.Children = []store.Item{item("volume:ns/child")}
	made := d.one(parent)
	d.claim(20)
	if _, err := d.ForceRelease(t.Context(), "branch:ns/b", "ada", "x"); !errors.As(err, &hindered) || hindered.Reason != store.HinderComposite || hindered.ID != made.ID {
		t.Errorf("composite: %v", err)
	}
}

func TestIdleLanesAreSweptAfterAnHourAndNeverOneWithWork(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	d.everyLane()
	for n := range 5 {
		d.one(item(fmt.Sprint("volume:idle/", n)))
	}
	for _, c := range d.claim(20) {
		if strings.HasPrefix(c.Task.Lane, "volume:idle/") {
			d.finish(c, success)
		}
	}
	before := value[int](d, "SELECT count(*) FROM slipway.lanes WHERE key NOT LIKE 'volume:idle/%'")
	sweep := func() int {
		t.Helper()
		for more := true; more; {
			var err error
			if more, err = d.SweepLanes(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
		}
		return value[int](d, "SELECT count(*) FROM slipway.lanes WHERE key LIKE 'volume:idle/%'")
	}
	sweep()
	d.advance(59 * time.Minute)
	if n := sweep(); n != 5 {
		t.Errorf("%d idle lanes are left before the hour", n)
	}
	d.one(item("volume:idle/3"))
	if c := d.claimOne(); c.Task.Lane != "volume:idle/3" {
		t.Fatal(c.Task.Lane)
	}
	d.finish(store.Claimed{Attempt: d.live("volume:idle/3")}, success)
	d.advance(2 * time.Minute)
	if n := sweep(); n != 1 {
		t.Errorf("%d idle lanes are left, want the one that was used since", n)
	}
	if n := value[int](d, "SELECT count(*) FROM slipway.lanes WHERE key NOT LIKE 'volume:idle/%' AND (holder IS NOT NULL OR head IS NOT NULL)"); n == 0 {
		t.Errorf("no lane with work is left of %d", before)
	}
	if _, found := d.checked(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	d.one(item("volume:idle/1")) // it is made anew
	if c := d.claimOne(); c.Task.Lane != "volume:idle/1" {
		t.Error(c.Task.Lane)
	}
}

// live is the Attempt that runs in a lane.
func (d database) live(lane string) task.Attempt {
	return task.Attempt{
		ID:    value[int64](d, "SELECT id FROM slipway.attempts WHERE lane = $1 AND finished_at IS NULL", lane),
		Fence: value[int64](d, "SELECT fence FROM slipway.attempts WHERE lane = $1 AND finished_at IS NULL", lane),
	}
}

func TestADependentOfATaskWhoseLaneWasSweptStillHearsOfItsEnd(t *testing.T) {
	d := newDatabase(t)
	first := d.one(itemWith(func(it *store.Item) { it.Delay = time.Hour }).of("volume:ns/later"))
	d.one(itemWith(func(it *store.Item) { it.After = []string{first.ID} }).of("volume:ns/after"))
	if n := value[int](d, "SELECT count(*) FROM slipway.lanes WHERE key = 'volume:ns/later'"); n != 1 {
		t.Errorf("the lane that its end will lock is not there")
	}
}

func TestALaneShowsItsLineInOrderWithWhatWasAbsorbed(t *testing.T) {
	d := newDatabase(t)
	latest := itemWith(func(it *store.Item) { it.Task.Mode = task.Latest; it.Task.Kind = "branch.observe" })
	first := d.one(item("volume:ns/a"))
	d.claimOne()
	second := d.one(item("volume:ns/a"))
	tail := d.enqueue(latest.of("volume:ns/a"), latest.of("volume:ns/a"))[0].Task // one absorbs the other at once
	d.one(latest.of("volume:ns/a"))
	d.enqueue(latest.of("volume:ns/a"), latest.of("volume:ns/a"))
	l, err := d.Lane(t.Context(), "volume:ns/a")
	if err != nil || l.Holder != first.ID || l.Fence == 0 || len(l.Line) != 2 || l.Line[0].ID != second.ID || l.Line[1].ID != tail.ID || l.Line[1].Absorbed != 4 {
		t.Errorf("%+v, %v", l, err)
	}
	if got, _ := d.get(tail.ID); got.Absorbed != 4 {
		t.Errorf("absorbed %d", got.Absorbed)
	}
}
