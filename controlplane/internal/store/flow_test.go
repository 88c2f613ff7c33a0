package store_test

import (
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// A Task in back-off holds its lane: what replaces others goes right behind it, whether or not more wait there.
func TestReplaceGoesNextBehindAHolderInBackOffThatItDoesNotSupersede(t *testing.T) {
	for name, others := range map[string]int{"alone": 0, "before others": 1} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			d.clockAt()
			holder := item("branch:ns/a")
			holder.Task.Spec.Idempotent = true
			first := d.one(holder)
			r := d.finish(d.claimOne(), failure)
			want := []string{first.ID, ""}
			for range others {
				want = append(want, d.one(item("branch:ns/a")).ID)
			}
			replace := item("branch:ns/a")
			replace.Task.Kind, replace.OnConflict, replace.Supersedes = "branch.delete", task.ConflictReplace, []string{"branch.resize"}
			want[1] = d.one(replace).ID
			d.advance(r.Move.Delay.Duration() + time.Second)
			for i, id := range want {
				c := d.claimOne()
				if c.Task.ID != id {
					t.Fatalf("turn %d is that of %s", i, c.Task.Kind)
				}
				d.finish(c, success)
			}
		})
	}
}

// A newer event of mode latest waits as long as it says itself, not as long as what it is laid over.
func TestWhatIsAbsorbedBringsItsOwnQueueDeadline(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	latest := func(deadline time.Duration) store.Item {
		it := item("pool:ns/a")
		it.Task.Kind, it.Task.Mode = "pool.manage", task.Latest
		it.Task.Spec.QueueDeadline = task.Seconds(deadline.Seconds())
		return it
	}
	d.one(item("pool:ns/a"))
	d.claimOne()
	first := d.one(latest(time.Minute))
	d.advance(50 * time.Second)
	if again := d.enqueue(latest(time.Minute))[0]; again.Result != store.Coalesced {
		t.Fatalf("was %s", again.Result)
	}
	d.advance(20 * time.Second)
	if _, err := d.ExpireQueued(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	d.wantState(first.ID, task.Queued, "")
	d.advance(time.Minute)
	if _, err := d.ExpireQueued(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	d.wantState(first.ID, task.Failed, task.ReasonQueueDeadline)
}

// Where the database's clock was set back, what was accepted before waits for it, and nobody asks for it without a pause.
func TestAClaimOfHeadsThatMayNotRunYetIsNotRepeatedAtOnce(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	d.enqueue(item(""), item(""), item(""))
	d.advance(-time.Hour)
	r, err := d.Claim(t.Context(), "default", 2)
	if err != nil || len(r.Claims) > 0 || r.More {
		t.Fatalf("%d claims, more %v, %v", len(r.Claims), r.More, err)
	}
	d.advance(time.Hour)
	if n := len(d.claim(3)); n != 3 {
		t.Fatalf("%d claims once the clock is there again", n)
	}
}

func TestAHeldTaskThatExpiresSaysThatItWasHeld(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	it := item("volume:ns/a")
	it.Task.Spec.QueueDeadline = 60
	held := d.one(it)
	if err := d.Hold(t.Context(), held.ID, "bob", "until monday"); err != nil {
		t.Fatal(err)
	}
	d.advance(61 * time.Second)
	if n, err := d.ExpireQueued(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	d.wantState(held.ID, task.Failed, task.ReasonQueueDeadline)
	if got, _ := d.get(held.ID); got.Message != "it was held by bob" {
		t.Errorf("message %q", got.Message)
	}
}
