package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// session is a transaction of another replica, held open at a chosen moment.
type session struct {
	t  *testing.T
	tx pgx.Tx
}

func (d database) session() session {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return session{d.t, tx}
}

func (s session) do(sql string) {
	s.t.Helper()
	if _, err := s.tx.Exec(s.t.Context(), sql); err != nil {
		s.t.Fatal(err)
	}
}

func (s session) commit() {
	s.t.Helper()
	if err := s.tx.Commit(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// blocked waits until one of the store's statements waits for a lock.
func (d database) blocked() {
	d.t.Helper()
	until(d.t, func() bool {
		return value[int](d, `select count(*) from pg_stat_activity where datname = current_database()
			and application_name like 'slipway/%' and wait_event_type = 'Lock'`) > 0
	})
}

const (
	lockQueue = "SELECT 1 FROM slipway.queues WHERE name = 'default' FOR UPDATE"
	oneMore   = `INSERT INTO slipway.tasks (id, seq, lane, queue, namespace, kind, mode, class, executor, params, spec, state, run_at, eligible_at,
			rank, created_by, created_at)
		SELECT gen_random_uuid(), nextval('slipway.task_seq'), lane, queue, namespace, 'another', mode, class, executor, params, spec, 'queued',
			run_at, eligible_at, rank, created_by, created_at FROM slipway.tasks LIMIT 1`
)

func TestAClaimThatMeetsAnotherWaitsAndSeesWhatCameMeanwhile(t *testing.T) {
	d := newDatabase(t)
	other := d.session()
	other.do(lockQueue)
	made := d.one(item("volume:ns/a"))
	got := make(chan store.ClaimResult, 1)
	go func() {
		r, err := d.Claim(t.Context(), "default", 10)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	d.blocked()
	other.commit()
	if r := <-got; len(r.Claims) != 1 || r.Claims[0].Task.ID != made.ID {
		t.Fatalf("the wake-up was lost: %+v", r)
	}
}

func TestAClaimCountsWhatWasCommittedWhileItWaited(t *testing.T) {
	d := newDatabase(t)
	d.queue(func(q *store.Queue) { q.Cap = 1 })
	d.many(2, "ns")
	other := d.session()
	other.do("SELECT set_config('slipway.binary', '1000', false)") // a replica of today
	other.do(lockQueue)
	other.do(`INSERT INTO slipway.attempts (task, number, fence, lane, queue, namespace, kind, executor, replica, state, claimed_at)
		SELECT key, 1, nextval('slipway.fences'), lane, queue, namespace, kind, 'job', 'b', 'leased', slipway.stamp() FROM slipway.tasks ORDER BY key LIMIT 1`)
	got := make(chan store.ClaimResult, 1)
	go func() {
		r, err := d.Claim(t.Context(), "default", 10)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	d.blocked()
	other.commit()
	if r := <-got; len(r.Claims) != 0 || r.Blocked != task.WaitCap {
		t.Fatalf("a cap of 1 was passed: %+v", r)
	}
}

func TestAFinishSeesWhatEnteredTheLaneWhileItWaited(t *testing.T) {
	d := newDatabase(t)
	d.one(item("volume:ns/a"))
	c := d.claimOne()
	other := d.session()
	other.do("SELECT 1 FROM slipway.lanes WHERE key = 'volume:ns/a' FOR NO KEY UPDATE")
	done := make(chan error, 1)
	go func() {
		_, err := d.Finish(t.Context(), c.Attempt.ID, c.Attempt.Fence, success, store.Ending{})
		done <- err
	}()
	d.blocked()
	other.do(oneMore)
	other.commit()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if next := d.claimOne(); next.Task.Kind != "another" {
		t.Fatal("the lane sleeps")
	}
}

func TestAnEnqueueSeesAnEndThatItWaitedFor(t *testing.T) {
	d := newDatabase(t)
	reject := itemWith(func(i *store.Item) { i.OnConflict = task.ConflictReject }).of("branch:ns/a")
	first := d.one(reject)
	other := d.session()
	other.do("SELECT 1 FROM slipway.lanes WHERE key = 'branch:ns/a' FOR NO KEY UPDATE")
	other.do("UPDATE slipway.tasks SET state = 'canceled', ended_at = slipway.stamp() WHERE id = '" + first.ID + "'")
	other.do("UPDATE slipway.lanes SET head = NULL, rank = NULL WHERE key = 'branch:ns/a'")
	done := make(chan error, 1)
	go func() {
		_, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: []store.Item{reject}})
		done <- err
	}()
	d.blocked()
	other.commit()
	if err := <-done; err != nil {
		t.Fatalf("refused because of a task that had ended: %v", err)
	}
	if got := d.claim(10); len(got) != 1 {
		t.Fatalf("claimed %d", len(got))
	}
}

func TestAnIdempotencyKeyWhoseFirstSenderIsNotDoneIsRefusedAsInProgress(t *testing.T) {
	d := newDatabase(t)
	other := d.session()
	other.do("INSERT INTO slipway.idempotency VALUES ('alice', 'k', '', '[]', slipway.now())")
	_, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Key: "k", Items: []store.Item{item("")}})
	wantConflict(t, err, store.ConflictInProgress, "")
}

// A runner that was told "go on" counts its fence time from there: the word has to be in the database first.
func TestAHeartbeatIsAnsweredOnlyAfterItsCommit(t *testing.T) {
	d := newDatabase(t).running()
	d.one(item("volume:ns/a"))
	c := d.claimOne()
	start := store.StartRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "pod", PodName: "p", Node: "n"}
	if _, _, err := d.Start(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	other := d.session()
	other.do("SELECT 1 FROM slipway.leases FOR UPDATE")
	done := make(chan error, 1)
	go func() {
		_, err := d.Beat(t.Context(), store.BeatRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "pod"})
		done <- err
	}()
	d.blocked()
	select {
	case err := <-done:
		t.Fatalf("answered before its batch was stored: %v", err)
	default:
	}
	other.commit()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A batch makes its lanes in their order; from the last to the first another transaction is faster each time, more
// often than a transaction is tried.
func TestABatchGetsInHoweverManyOfItsLanesOthersMakeMeanwhile(t *testing.T) {
	const lanes = 12
	d := newDatabase(t)
	items, makes := make([]store.Item, lanes), make([]string, lanes)
	for i := range items {
		lane := fmt.Sprintf("volume:ns/%02d", i)
		items[i] = item(lane)
		makes[i] = "INSERT INTO slipway.lanes (key, queue, namespace, kind) VALUES ('" + lane + "', 'default', 'ns', 'x') ON CONFLICT DO NOTHING"
	}
	faster := d.session()
	faster.do(makes[lanes-1])
	done := make(chan error, 1)
	go func() {
		_, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: items})
		done <- err
	}()
	d.blocked()
	for _, lane := range slices.Backward(makes[:lanes-1]) {
		next, made := d.session(), make(chan error, 1)
		go func() {
			_, err := next.tx.Exec(t.Context(), lane)
			made <- err
		}()
		until(t, func() bool { // it is there already, or waits for the batch that has made it too
			return len(made) > 0 || value[int](d, `select count(*) from pg_stat_activity where datname = current_database()
				and application_name not like 'slipway/%' and wait_event_type = 'Lock'`) > 0
		})
		faster.commit()
		if err := <-made; err != nil {
			t.Fatal(err)
		}
		faster = next
	}
	faster.commit()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
