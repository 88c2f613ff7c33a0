package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

func TestBlockedWorkAtTheHeadNeverHidesWhatCanRun(t *testing.T) {
	const blocked = 60 // of each sort, all before what can run
	d := newDatabase(t)
	ctx := t.Context()
	d.queue(func(q *store.Queue) { q.Cap, q.NamespaceCap, q.MaxQueued = 50, 1, 10_000 })
	of := func(namespace, kind string) itemWith {
		return func(it *store.Item) { it.Task.Namespace, it.Task.Kind, it.Task.Class = namespace, kind, task.Critical }
	}
	var all []store.Item
	for n := range blocked {
		all = append(all, of("frozen", "k").of(fmt.Sprint("volume:frozen/", n)), of("held", "k").of(fmt.Sprint("volume:held/", n)),
			of("off", "off").of(fmt.Sprint("volume:off/", n)), of("capped", "k").of(fmt.Sprint("volume:capped/", n)),
			of("busy", "k").of("volume:busy/1"))
	}
	for _, made := range d.enqueue(all...) {
		if made.Task.Namespace == "held" {
			if err := d.Hold(ctx, made.Task.ID, "ada", ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := d.Freeze(ctx, store.Freeze{Namespace: "frozen", Actor: "ada", Reason: "x"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := d.SwitchKind(ctx, store.KindSwitch{Kind: "off", Executor: "off", Actor: "ada", Reason: ""}); err != nil {
		t.Fatal(err)
	}
	if got := d.claim(20); len(got) != 2 { // one of capped, one of busy: both are full now
		t.Fatalf("%d were claimed", len(got))
	}
	last := itemWith(func(it *store.Item) { it.Task.Namespace, it.Task.Class = "free", task.Low }).of("volume:free/1")
	runnable := d.one(last)
	for _, limit := range []int{1, 20} {
		got := d.claim(limit)
		if len(got) != 1 || got[0].Task.ID != runnable.ID {
			t.Fatalf("limit %d: claimed %d, want the one that can run", limit, len(got))
		}
		d.finish(got[0], success)
		runnable = d.one(last)
	}
}

// rounds plays a queue in turns: everything that is claimed ends before the next claim. It gives in which turn the Tasks
// of each quiet namespace were claimed.
func (d database) rounds(quiet int, noise int) []int {
	d.t.Helper()
	d.queue(func(q *store.Queue) { q.Cap, q.NamespaceCap, q.MaxQueued = 10, 10, 100_000 })
	var items []store.Item
	for n := range noise { // submitted before the quiet ones
		items = append(items, itemWith(func(it *store.Item) { it.Task.Namespace = "noisy" }).of(fmt.Sprint("volume:noisy/", n)))
	}
	for n := range quiet {
		for m := range 10 {
			items = append(items, itemWith(func(it *store.Item) { it.Task.Namespace = fmt.Sprint("quiet-", n) }).of(fmt.Sprintf("volume:quiet-%d/%d", n, m)))
		}
	}
	d.enqueue(items...)
	var turns []int
	for turn := 1; len(turns) < quiet*10; turn++ {
		got := d.claim(20)
		if len(got) == 0 {
			d.t.Fatal("nothing is claimed, and quiet tasks wait")
		}
		for _, c := range got {
			if c.Task.Namespace != "noisy" {
				turns = append(turns, turn)
			}
			d.finish(c, success)
		}
	}
	slices.Sort(turns)
	return turns
}

func TestANoisyTenantLeavesTheQuietOnesWithinTwiceTheirTime(t *testing.T) {
	const quiet = 5
	alone, beside := newDatabase(t).rounds(quiet, 0), newDatabase(t).rounds(quiet, 450) // 90 % of the load
	p95 := func(turns []int) int { return turns[len(turns)*95/100] }
	if a, b := p95(alone), p95(beside); b > 2*a {
		t.Errorf("p95 in turns: %d alone, %d beside a noisy tenant", a, b)
	}
}

func TestALongSnapshotAndItsDeadEntriesChangeNothingOfWhatIsClaimed(t *testing.T) {
	d := newDatabase(t)
	d.queue(func(q *store.Queue) { q.Cap, q.NamespaceCap = 8, 5 })
	conn, err := pgx.Connect(t.Context(), d.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM slipway.tasks"); err != nil {
		t.Fatal(err)
	}
	other := database{pgtest.Open(t, store.Config{URL: d.url, Replica: "b"}), t, d.url}
	var order []string
	for n := range 40 {
		for m := range 5 {
			order = append(order, d.one(item(fmt.Sprintf("volume:ns/%d", m))).Lane)
			_ = n
		}
	}
	last, live, most := map[string]int64{}, 0, 0
	for n := 0; n < len(order); {
		got := []database{d, other}[n%2].claim(3)
		if len(got) == 0 {
			t.Fatalf("nothing is claimed after %d of %d", n, len(order))
		}
		live += len(got)
		most = max(most, live)
		for _, c := range got {
			if c.Task.Seq <= last[c.Task.Lane] {
				t.Fatalf("lane %s: %d after %d", c.Task.Lane, c.Task.Seq, last[c.Task.Lane])
			}
			last[c.Task.Lane] = c.Task.Seq
			[]database{d, other}[(n+1)%2].finish(c, success)
			live--
			n++
		}
	}
	if most > 5 {
		t.Errorf("%d were live at once, cap 5", most)
	}
}

func TestAnUrgentTaskGoesNextThoughMuchIsReadyBehindIt(t *testing.T) {
	d := newDatabase(t)
	d.queue(func(q *store.Queue) { q.Cap, q.NamespaceCap = 1000, 1000 })
	for n := range 30 {
		d.one(item(fmt.Sprint("volume:ns/", n)))
	}
	d.claim(5) // it is remembered where the rest begins
	for _, class := range []task.Class{task.High, task.Critical} {
		urgent := d.one(itemWith(func(it *store.Item) { it.Task.Class = class }).of("volume:ns/urgent-" + class.String()))
		if got := d.claim(1); len(got) != 1 || got[0].Task.ID != urgent.ID {
			t.Errorf("%s did not go next", class)
		}
	}
	// Of another replica it is heard within a second, however much is ready.
	other := database{pgtest.Open(t, store.Config{URL: d.url, Replica: "b"}), t, d.url}
	urgent := other.one(itemWith(func(it *store.Item) { it.Task.Class = task.Critical }).of("volume:ns/others"))
	began := time.Now()
	for n := 0; ; n++ {
		d.one(item(fmt.Sprint("volume:ns/more-", n)))
		got := d.claim(1)
		if len(got) != 1 {
			t.Fatal("nothing was claimed")
		}
		if got[0].Task.ID == urgent.ID {
			break
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal("it never went")
		}
	}
}

func TestAClaimWithRoomLeftFindsWhatOnlyAnotherReplicaKnows(t *testing.T) {
	d := newDatabase(t)
	for n := range 8 {
		d.one(item(fmt.Sprint("volume:ns/", n)))
	}
	d.claim(2) // it is remembered where the rest begins
	other := database{pgtest.Open(t, store.Config{URL: d.url, Replica: "b"}), t, d.url}
	first := itemWith(func(it *store.Item) { it.Task.Class = task.Critical }).of("volume:ns/others")
	elsewhere := itemWith(func(it *store.Item) { it.Task.Namespace = "elsewhere" }).of("volume:elsewhere/1")
	other.enqueue(first, elsewhere)
	if got := d.claim(20); len(got) != 8 {
		t.Errorf("claimed %d, want the 6 that are left and 2 of the other replica", len(got))
	}
}
