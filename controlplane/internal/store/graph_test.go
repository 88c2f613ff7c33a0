package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

func composite(lane string, children ...store.Item) store.Item {
	it := item(lane)
	it.Task.Kind, it.Children = "branch.resize", children
	return it
}

func (d database) children(t task.Task) []task.Task {
	d.t.Helper()
	c, err := d.Children(d.t.Context(), t)
	if err != nil {
		d.t.Fatal(err)
	}
	return c
}

func TestAParentHoldsItsLaneAndNoSlotAndEndsAfterItsChildren(t *testing.T) {
	d := newDatabase(t)
	d.queue(func(q *store.Queue) { q.Cap = 2 })
	parent := d.one(composite("branch:ns/a", item("volume:ns/1"), item("volume:ns/1"), item("volume:ns/2")))
	kids := d.children(parent)
	if len(kids) != 3 || kids[0].Seq != 0 || kids[0].Parent != parent.ID {
		t.Fatalf("children %+v", kids)
	}
	r, err := d.Claim(t.Context(), "default", 10)
	if err != nil || r.Parents != 1 || len(r.Claims) != 0 {
		t.Fatalf("claim %+v, %v", r, err)
	}
	d.wantState(parent.ID, task.Running, "")
	d.settle()
	first := d.claim(10)
	if len(first) != 2 {
		t.Fatalf("%d children run, want 2: a parent holds no slot", len(first))
	}
	if _, v := d.get(d.one(item("branch:ns/a")).ID); v.Wait != task.WaitLane || v.HolderID != parent.ID {
		t.Fatalf("the parent's lane: %+v", v)
	}
	for _, c := range first {
		d.finish(c, success)
	}
	d.settle()
	d.wantState(parent.ID, task.Running, "")
	d.queue(func(q *store.Queue) { q.Cap = 10 })
	var last store.Claimed
	for _, c := range d.claim(10) {
		if c.Task.Parent == parent.ID {
			last = c
		}
	}
	d.finish(last, success)
	d.settle()
	d.wantState(parent.ID, task.Succeeded, "")
	if c := d.claimOne(); c.Task.Lane != "branch:ns/a" {
		t.Fatal("the parent's lane was not handed on")
	}
}

func TestAFailedChildFailsItsParentAndKeepsTheOthersSuccess(t *testing.T) {
	d := newDatabase(t)
	bad := item("volume:ns/1")
	bad.Task.Spec.Retry.Attempts = 1
	parent := d.one(composite("branch:ns/a", bad, item("volume:ns/2")))
	d.claim(10)
	d.settle()
	for _, c := range d.claim(10) {
		v := success
		if c.Task.Lane == "volume:ns/1" {
			v = failure
		}
		d.finish(c, v)
	}
	d.settle()
	d.wantState(parent.ID, task.Failed, task.ReasonChildFailed)
	if kids := d.children(parent); kids[1].State != task.Succeeded {
		t.Fatalf("the other child is %s", kids[1].State)
	}
}

func TestAParentEndsWhoseChildrenHaveAllEndedBeforeItsClaim(t *testing.T) {
	d := newDatabase(t)
	first := d.one(item("volume:ns/1"))
	it := composite("branch:ns/a", item("volume:ns/2"))
	it.After = []string{first.ID}
	parent := d.one(it)
	if _, err := d.Cancel(t.Context(), d.children(parent)[0].ID, "bob", ""); err != nil {
		t.Fatal(err)
	}
	d.settle()
	d.finish(d.claimOne(), success)
	d.settle()
	d.claim(1)
	d.settle()
	d.wantState(parent.ID, task.Failed, task.ReasonChildFailed)
}

func TestCancelReachesTheChildrenInEveryStage(t *testing.T) {
	d := newDatabase(t)
	queued := d.one(composite("branch:ns/q", item("volume:ns/1")))
	if _, err := d.Cancel(t.Context(), queued.ID, "bob", ""); err != nil {
		t.Fatal(err)
	}
	d.settle()
	if kids := d.children(queued); kids[0].State != task.Canceled {
		t.Fatalf("child of a queued parent is %s", kids[0].State)
	}
	running := d.one(composite("branch:ns/r", item("volume:ns/1"), item("volume:ns/1"), item("volume:ns/2")))
	d.claim(10)
	d.settle()
	started := d.claim(10)
	if _, err := d.Cancel(t.Context(), running.ID, "bob", ""); err != nil {
		t.Fatal(err)
	}
	d.settle()
	d.wantState(running.ID, task.Running, "")
	for _, c := range started {
		if _, a, _, err := d.OpenAttempt(t.Context(), c.Attempt.ID); err != nil || a.Stop != task.StopCancel {
			t.Fatalf("child's attempt: stop %q, %v", a.Stop, err)
		}
		d.finish(c, task.Verdict{Outcome: task.OutcomeCanceled, Reason: task.ReasonCanceled})
	}
	d.settle()
	d.wantState(running.ID, task.Canceled, task.ReasonCanceled)
	if n := value[int](d, "select count(*) from slipway.tasks where state not in ('canceled')"); n != 0 {
		t.Fatalf("%d tasks are left", n)
	}
}

func TestAParentsRunDeadlineEndsItsChildren(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	it := composite("branch:ns/a", item("volume:ns/1"))
	it.Task.Spec.RunDeadline = 60
	parent := d.one(it)
	d.claim(1)
	d.settle()
	c := d.claimOne()
	d.advance(61 * time.Second)
	if n, err := d.ExpireQueued(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	d.settle()
	d.finish(c, task.Verdict{Outcome: task.OutcomeCanceled, Reason: task.ReasonCanceled})
	d.settle()
	d.wantState(parent.ID, task.Failed, task.ReasonRunDeadline)
}

func TestAReplacedCompositeEndsAsSuperseded(t *testing.T) {
	d := newDatabase(t)
	old := d.one(composite("branch:ns/a", item("volume:ns/1")))
	d.claim(1)
	d.settle()
	by := item("branch:ns/a")
	by.Task.Kind, by.OnConflict, by.Supersedes = "branch.delete", task.ConflictReplace, []string{"branch.resize"}
	next := d.one(by)
	d.settle()
	d.wantState(old.ID, task.Canceled, task.ReasonSuperseded)
	if c := d.claimOne(); c.Task.ID != next.ID {
		t.Fatal("the replacing task is not next")
	}
}

func TestManyChildrenEndingAtOnceDuringACancelLeaveNoParentOpen(t *testing.T) {
	d := newDatabase(t)
	const groups, size = 12, 6
	d.queue(func(q *store.Queue) { q.Cap, q.NamespaceCap = 1000, 1000 })
	var parents []task.Task
	for g := range groups {
		var kids []store.Item
		for k := range size {
			kids = append(kids, item(fmt.Sprintf("volume:ns/%d-%d", g, k)))
		}
		parents = append(parents, d.one(composite(fmt.Sprintf("branch:ns/%d", g), kids...)))
	}
	d.claim(groups)
	d.settle()
	claims := d.claim(groups * size)
	if len(claims) != groups*size {
		t.Fatalf("%d children run", len(claims))
	}
	var all sync.WaitGroup
	for _, c := range claims {
		all.Go(func() {
			if _, err := d.Finish(t.Context(), c.Attempt.ID, c.Attempt.Fence, success, store.Ending{}); err != nil {
				t.Error(err)
			}
		})
	}
	for _, p := range parents {
		all.Go(func() {
			if _, err := d.Cancel(t.Context(), p.ID, "bob", ""); err != nil && !errors.As(err, new(*store.EndedError)) {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := d.Settle(t.Context(), 20); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	d.settle()
	if n := value[int](d, "select count(*) from slipway.tasks where state in ('queued', 'running')"); n != 0 {
		t.Fatalf("%d tasks are open", n)
	}
	if d.Deadlocks() != 0 {
		t.Fatal("deadlocks")
	}
}

func TestDependentsRunAfterWhatTheyNeedOrFailWithIt(t *testing.T) {
	d := newDatabase(t)
	good, bad := d.one(item("volume:ns/good")), item("volume:ns/bad")
	bad.Task.Spec.Retry.Attempts = 1
	broken := d.one(bad)
	after := func(lane string, runIf store.RunIf, ids ...string) task.Task {
		it := item(lane)
		it.After, it.RunIf = ids, runIf
		return d.one(it)
	}
	both := after("", store.AllSucceeded, good.ID, broken.ID)
	whatever := after("", store.AllFinished, good.ID, broken.ID)
	chain := after("", store.AllSucceeded, both.ID)
	if _, v := d.get(both.ID); v.Wait != task.WaitDependency || len(v.After) != 2 {
		t.Fatalf("view %+v", v)
	}
	claims := d.claim(10)
	if len(claims) != 2 {
		t.Fatalf("%d run", len(claims))
	}
	for _, c := range claims {
		v := success
		if c.Task.ID == broken.ID {
			v = failure
		}
		d.finish(c, v)
	}
	d.settle()
	d.wantState(both.ID, task.Failed, task.ReasonDependency)
	d.wantState(chain.ID, task.Failed, task.ReasonDependency)
	if c := d.claimOne(); c.Task.ID != whatever.ID {
		t.Fatal("all_finished did not run")
	}
	// What is needed has ended before the submit.
	late, never := after("", store.AllSucceeded, good.ID), after("", store.AllSucceeded, broken.ID)
	d.settle()
	d.wantState(never.ID, task.Failed, task.ReasonDependency)
	if c := d.claimOne(); c.Task.ID != late.ID {
		t.Fatal("what needs an ended task did not run")
	}
}

func TestADependencyThatEndsWhileItsDependentIsSubmittedIsNotMissed(t *testing.T) {
	d := newDatabase(t)
	for range 30 {
		first := d.one(item("volume:ns/a"))
		c := d.claimOne()
		var all sync.WaitGroup
		all.Go(func() { d.finish(c, success) })
		all.Go(func() {
			it := item("")
			it.After = []string{first.ID}
			d.one(it)
		})
		all.Wait()
		d.settle()
		d.finish(d.claimOne(), success)
	}
}

func TestSiblingsRunInTheOrderOfTheirGraph(t *testing.T) {
	d := newDatabase(t)
	resize, modify, observe := item("volume:ns/1"), item("volume:ns/1"), item("")
	resize.Task.ID, modify.Task.ID = uuid.NewString(), uuid.NewString()
	observe.After, observe.RunIf = []string{resize.Task.ID, modify.Task.ID}, store.AllFinished
	observe.Task.Kind = "branch.observe"
	parent := d.one(composite("branch:ns/a", resize, modify, observe))
	d.claim(1)
	for _, want := range []string{resize.Task.ID, modify.Task.ID, ""} {
		d.settle()
		c := d.claimOne()
		if want != "" && c.Task.ID != want || want == "" && c.Task.Kind != "branch.observe" {
			t.Fatalf("out of order: %s", c.Task.Kind)
		}
		d.finish(c, success)
	}
	d.settle()
	d.wantState(parent.ID, task.Succeeded, "")
}

func TestCirclesAndWrongNestingAreRefused(t *testing.T) {
	d := newDatabase(t)
	a, b := item("volume:ns/a"), item("volume:ns/b")
	a.Task.ID, b.Task.ID = uuid.NewString(), uuid.NewString()
	a.After, b.After = []string{b.Task.ID}, []string{a.Task.ID}
	parent := composite("branch:ns/a", item("volume:ns/1"))
	parent.Task.ID = uuid.NewString()
	parent.Children[0].After = []string{parent.Task.ID}
	unknown := item("")
	unknown.After = []string{uuid.NewString()}
	deep := composite("branch:ns/a", composite("volume:ns/1", item("")))
	for name, tc := range map[string]struct {
		items []store.Item
		want  string
	}{
		"circle":              {[]store.Item{a, b}, "circle"},
		"child needs parent":  {[]store.Item{parent}, "circle"},
		"same lane":           {[]store.Item{composite("branch:ns/a", item("branch:ns/a"))}, "does not rank below"},
		"same family":         {[]store.Item{composite("volume:ns/a", item("volume:ns/b"))}, "does not rank below"},
		"higher family":       {[]store.Item{composite("volume:ns/a", item("branch:ns/b"))}, "does not rank below"},
		"unknown dependency":  {[]store.Item{unknown}, "no task"},
		"grandchildren":       {[]store.Item{deep}, "cannot have children"},
		"too many children":   {[]store.Item{composite("branch:ns/a", make([]store.Item, 101)...)}, "at most 100"},
		"reserved lane":       {[]store.Item{item("task:1")}, "reserved"},
		"no lane, but strict": {[]store.Item{itemWith(func(i *store.Item) { i.Task.Lane = "" }).of("volume:ns/a")}, "is missing"},
	} {
		_, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: tc.items})
		var fields store.FieldErrors
		if !errors.As(err, &fields) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := value[int](d, "select count(*) from slipway.tasks"); n != 0 {
		t.Fatalf("%d tasks were stored", n)
	}
}
