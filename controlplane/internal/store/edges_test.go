package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

func TestAGraphOverRepeatedAndAbsorbedItemsKeepsItsEdges(t *testing.T) {
	d := newDatabase(t)
	named := func(it store.Item, id string) store.Item {
		it.Task.ID = id
		return it
	}
	keyed := func(it store.Item, key string) store.Item {
		it.Key, it.Hash = key, []byte{1}
		return it
	}
	submit := func(items ...store.Item) []store.Enqueued {
		t.Helper()
		out, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: items})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	family := func(child string) store.Item { return composite("branch:ns/a", named(item("volume:ns/1"), child)) }
	first := submit(keyed(item("volume:ns/a"), "a"), keyed(family(uuid.NewString()), "p"))
	a, child, late := uuid.NewString(), uuid.NewString(), item("")
	late.After = []string{a, child}
	again := submit(keyed(named(item("volume:ns/a"), a), "a"), keyed(family(child), "p"), late)
	if again[0].Result != store.Repeated || again[0].Task.ID != first[0].Task.ID || again[2].Result != store.Created {
		t.Fatalf("%+v", again)
	}
	_, v := d.get(again[2].Task.ID)
	if want := []string{first[0].Task.ID, d.children(first[1].Task)[0].ID}; strings.Join(v.Needs, " ") != strings.Join(want, " ") {
		t.Errorf("runs after %v, want %v", v.Needs, want)
	}
	latest := func(id string) store.Item {
		it := named(item("volume:ns/latest"), id)
		it.Task.Mode = task.Latest
		return it
	}
	x, y, after := uuid.NewString(), uuid.NewString(), item("")
	after.After = []string{x, y}
	out := submit(latest(x), latest(y), after)
	if _, v := d.get(out[2].Task.ID); len(v.Needs) != 1 || v.Needs[0] != x {
		t.Errorf("two that became one: runs after %v", v.Needs)
	}
	z := uuid.NewString()
	after.After = []string{z}
	if _, v := d.get(submit(latest(z), after)[1].Task.ID); len(v.Needs) != 1 || v.Needs[0] != x {
		t.Errorf("one that went into a stored one: runs after %v", v.Needs)
	}
}

func TestALaneThatWaitsForItselfInOneRequestIsRefused(t *testing.T) {
	d := newDatabase(t)
	behind, holder := item("branch:ns/a"), composite("branch:ns/a", item("volume:ns/1"))
	behind.Task.ID = uuid.NewString()
	holder.Children[0].After = []string{behind.Task.ID}
	_, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: []store.Item{holder, behind}})
	if err == nil || !strings.Contains(err.Error(), "circle") {
		t.Errorf("got %v", err)
	}
	if _, err = d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: []store.Item{behind, holder}}); err != nil {
		t.Errorf("in the order in which they can run: %v", err)
	}
}

func TestWhatWaitsInACircleEndsByItsQueueDeadlineWhichNamesTheHolder(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	first := d.one(item("volume:ns/x"))
	behind := item("branch:ns/a")
	behind.After, behind.Task.Spec.QueueDeadline = []string{first.ID}, 60
	waiting := d.one(behind)
	holder := composite("branch:ns/a", item("volume:ns/1"))
	holder.Children[0].After, holder.Children[0].Task.Spec.QueueDeadline = []string{waiting.ID}, 120
	parent := d.one(holder)
	d.finish(d.claimOne(), success) // the first of the queue
	d.claim(10)
	d.settle()
	if _, v := d.get(waiting.ID); v.Wait != task.WaitLane || v.HolderID != parent.ID {
		t.Fatalf("%+v", v)
	}
	d.advance(61 * time.Second)
	if n, err := d.ExpireQueued(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	d.settle()
	d.wantState(waiting.ID, task.Failed, task.ReasonQueueDeadline)
	if got, _ := d.get(waiting.ID); !strings.Contains(got.Message, parent.ID) {
		t.Errorf("message %q", got.Message)
	}
	d.wantState(d.children(parent)[0].ID, task.Failed, task.ReasonDependency)
	d.wantState(parent.ID, task.Failed, task.ReasonChildFailed)
	if got, _ := d.get(parent.ID); !strings.HasPrefix(got.Message, "succeeded 0 of 1") {
		t.Errorf("message %q", got.Message)
	}
}

func TestAPageOfAListSaysWhatEachOfItsTasksWaitsFor(t *testing.T) {
	d := newDatabase(t)
	running := d.one(item("volume:ns/a"))
	d.claimOne()
	behind := d.one(item("volume:ns/a"))
	after := itemWith(func(i *store.Item) { i.After = []string{behind.ID} }).of("")
	dependent := d.one(after)
	parent := d.one(composite("branch:ns/b", item("volume:ns/1")))
	page, err := d.Tasks(t.Context(), store.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		running.ID: "launching  ", behind.ID: "waiting lane " + running.ID, dependent.ID: "waiting dependency " + behind.ID,
		parent.ID: "waiting dispatch ", d.children(parent)[0].ID: "waiting dependency " + parent.ID,
	}
	for i, got := range page.Tasks {
		v := page.Views[i]
		if text := fmt.Sprintf("%s %s %s", v.Phase, v.Wait, v.HolderID); text != want[got.ID] {
			t.Errorf("task %d: %q, want %q", i, text, want[got.ID])
		}
	}
	_, v := d.get(parent.ID)
	if len(v.Children) != 1 || v.Children[0].View.HolderID != parent.ID {
		t.Errorf("%+v", v.Children)
	}
}
