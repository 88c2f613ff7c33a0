package store_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// failed makes Tasks that have failed for good, one after the other.
func (d database) failed(items ...store.Item) (ids []string) {
	d.t.Helper()
	for _, it := range items {
		t := d.one(it)
		c := d.claimOne()
		if c.Task.ID != t.ID {
			d.t.Fatal("claimed another")
		}
		d.finish(c, task.Verdict{Outcome: task.OutcomeRejected, Reason: task.ReasonConfig, Spends: task.SpendsRetry})
		ids = append(ids, t.ID)
	}
	return ids
}

func (d database) pick(f store.ListFilter, rule store.PickRule) (ids []string) {
	d.t.Helper()
	all, err := d.Pick(d.t.Context(), f, rule, 100)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, p := range all {
		ids = append(ids, p.ID)
	}
	return ids
}

// onceEach is a batch that retries each Task once.
func onceEach(ids ...string) store.Batch {
	b := store.Batch{Caller: "alice"}
	for _, id := range ids {
		it := item("")
		it.Task.RetryOf, it.Once = id, true
		b.Items = append(b.Items, it)
	}
	return b
}

func TestATaskIsRetriedOnceHoweverManyAskAtOnce(t *testing.T) {
	d := newDatabase(t)
	ids := d.failed(item(""), item(""), item(""), item(""))
	reversed := slices.Clone(ids)
	slices.Reverse(reversed)
	// Nothing can be stored until as many as possible have looked what was done before.
	blocker, err := pgx.Connect(t.Context(), d.url)
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Close(t.Context())
	block := func(sql string) {
		t.Helper()
		if _, err := blocker.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	block("BEGIN; LOCK TABLE slipway.audit IN EXCLUSIVE MODE")
	var all sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		all.Go(func() {
			b := onceEach(ids...)
			if i%2 == 1 {
				b = onceEach(reversed...)
			}
			_, errs[i] = d.Enqueue(t.Context(), b)
		})
	}
	for value[int](d, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") < len(errs) {
		runtime.Gosched() // until all of them wait: for the table, or for each other
	}
	block("COMMIT")
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := value[int](d, "select count(*) from slipway.tasks where retry_of is not null"); n != len(ids) || d.Deadlocks() != 0 {
		t.Fatalf("%d retries of %d tasks, %d deadlocks", n, len(ids), d.Deadlocks())
	}
	again, err := d.Enqueue(t.Context(), onceEach(ids...))
	if err != nil || again[0].Result != store.Repeated || again[0].Task.RetryOf != ids[0] {
		t.Errorf("again: %+v, %v", again, err)
	}
	if left := d.pick(store.ListFilter{State: task.Failed}, store.PickEnded); len(left) != 0 {
		t.Errorf("%v would be retried again", left)
	}
	if n := value[int](d, "select count(*) from slipway.audit where verb = 'retry' and after->'retry_of' ? '"+ids[0]+"'"); n != 1 {
		t.Errorf("%d audit rows", n)
	}
}

func TestARetryOfManyNamesWhatCouldBeRetried(t *testing.T) {
	d := newDatabase(t)
	labelled := item("volume:ns/a")
	labelled.Task.Labels = map[string]string{"team": "a"}
	old := item("pool:ns/p")
	old.Task.Mode = task.Latest
	newer := old
	other := item("")
	other.Task.Namespace = "other"
	ids := d.failed(labelled, old, newer, other)
	open := d.one(item("volume:ns/b")).ID
	composite := item("branch:ns/b")
	composite.Task.Kind, composite.Children = "branch.resize", []store.Item{item("volume:ns/c")}
	whole := d.one(composite).ID
	if _, err := d.Cancel(t.Context(), whole, "alice", ""); err != nil {
		t.Fatal(err)
	}
	d.settle()
	half := value[time.Time](d, "select ended_at from slipway.tasks where id = '"+ids[2]+"'")
	for what, c := range map[string]struct {
		f    store.ListFilter
		rule store.PickRule
		want []string
	}{
		"failed ones; of those that replace each other the newest": {store.ListFilter{State: task.Failed}, store.PickEnded, []string{ids[0], ids[2], ids[3]}},
		"by reason":              {store.ListFilter{State: task.Failed, Reason: task.ReasonConfig}, store.PickEnded, []string{ids[0], ids[2], ids[3]}},
		"by another reason":      {store.ListFilter{State: task.Failed, Reason: task.ReasonEvicted}, store.PickEnded, nil},
		"by namespace":           {store.ListFilter{Namespaces: []string{"other"}}, store.PickEnded, []string{ids[3]}},
		"by label":               {store.ListFilter{Labels: map[string]string{"team": "a"}}, store.PickEnded, []string{ids[0]}},
		"that ended from then":   {store.ListFilter{EndedAfter: half}, store.PickEnded, []string{ids[2], ids[3]}},
		"that ended before":      {store.ListFilter{EndedBefore: half}, store.PickEnded, []string{ids[0]}},
		"no part of a composite": {store.ListFilter{State: task.Canceled}, store.PickEnded, nil},
		"open ones":              {store.ListFilter{}, store.PickOpen, []string{open}},
	} {
		if got := d.pick(c.f, c.rule); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
	done, err := d.Enqueue(t.Context(), onceEach(ids[1]))
	if err != nil || done[0].Result != store.Repeated || done[0].Task.ID != ids[2] {
		t.Errorf("one that was overtaken: %+v, %v", done, err)
	}
}

func TestAKeyKeepsWhichTasksAreMeant(t *testing.T) {
	d := newDatabase(t)
	ids := d.failed(item(""), item(""))
	pin := store.Pin{Caller: "alice", Key: "k", Hash: []byte{1}}
	if _, ok, err := d.Pinned(t.Context(), pin); ok || err != nil {
		t.Fatalf("before: %v, %v", ok, err)
	}
	keep := func(p store.Pin, these ...string) []store.Picked {
		t.Helper()
		kept, err := d.Keep(t.Context(), p, these)
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	if kept := keep(pin, ids[1], ids[0]); len(kept) != 2 || kept[0].ID != ids[1] || kept[0].Namespace != "ns" || kept[0].Kind != "volume.resize" {
		t.Errorf("kept %+v", kept)
	}
	if kept := keep(pin, ids[0]); len(kept) != 2 {
		t.Errorf("a second one kept %+v", kept)
	}
	if all, ok, err := d.Pinned(t.Context(), pin); !ok || err != nil || len(all) != 2 || all[0].ID != ids[1] {
		t.Errorf("pinned %+v, %v, %v", all, ok, err)
	}
	_, _, err := d.Pinned(t.Context(), store.Pin{Caller: "alice", Key: "k", Hash: []byte{2}})
	wantConflict(t, err, store.ConflictBody, ids[1])
	if kept := keep(store.Pin{Caller: "bob", Key: "k"}, ids[0]); len(kept) != 1 {
		t.Errorf("another's: %+v", kept)
	}
	if err := d.DeleteTask(t.Context(), ids[1], "alice"); err != nil {
		var hindered *store.HinderedError
		if !errors.As(err, &hindered) {
			t.Fatal(err)
		}
		d.sql("update slipway.attempts set closed_at = slipway.now()")
		if err := d.DeleteTask(t.Context(), ids[1], "alice"); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := d.Pinned(t.Context(), pin); ok || err != nil {
		t.Errorf("a task of it is gone, and it counts: %v, %v", ok, err)
	}
	if kept := keep(pin, ids[0]); len(kept) != 1 {
		t.Errorf("kept anew: %+v", kept)
	}
}
