package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// disks plays the claims of a namespace.
type disks struct {
	mu    sync.Mutex
	claim map[string]int64
}

func (d *disks) read() map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.claim)
}

func (d *disks) grow(claim string, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claim[claim] = max(d.claim[claim], bytes)
}

func (d *disks) sum() (n int64) {
	for _, bytes := range d.read() {
		n += bytes
	}
	return n
}

func (d database) limit(namespace string, bytes int64) {
	d.t.Helper()
	if err := d.SetStorageLimit(d.t.Context(), namespace, &bytes, "olga"); err != nil {
		d.t.Fatal(err)
	}
}

// growing is a resize in the lane of its claim.
func growing(claim string, bytes int64) store.Item {
	it := item("volume:ns/" + claim)
	it.Supersedes = []string{"volume.resize"}
	it.Growth = &task.Growth{Claim: claim, Bytes: bytes}
	return it
}

// measured lets the claims be read as the edge does: after the limit, before the submit.
func (d database) measured(claims *disks, items ...store.Item) []store.Item {
	d.t.Helper()
	limits, err := d.StorageLimits(d.t.Context(), []string{"ns", "other"})
	if err != nil {
		d.t.Fatal(err)
	}
	for i := range items {
		if l, limited := limits[items[i].Task.Namespace]; limited && items[i].Growth != nil {
			items[i].Storage = &task.StorageUse{At: l.At, Claims: claims.read()}
		}
		items[i].Children = d.measured(claims, items[i].Children...)
	}
	return items
}

func (d database) submit(claims *disks, items ...store.Item) ([]store.Enqueued, error) {
	d.t.Helper()
	return d.Enqueue(d.t.Context(), store.Batch{Caller: "alice", Items: d.measured(claims, items...)})
}

func (d database) wantRoom(what string, claims *disks, it store.Item) task.Task {
	d.t.Helper()
	done, err := d.submit(claims, it)
	if err != nil {
		d.t.Fatalf("%s: %v", what, err)
	}
	return done[0].Task
}

func (d database) wantNoRoom(what string, claims *disks, pointer, text string, items ...store.Item) {
	d.t.Helper()
	before := value[int](d, "select count(*) from slipway.tasks")
	_, err := d.submit(claims, items...)
	var refused store.FieldErrors
	if !errors.As(err, &refused) || refused[0].Pointer != pointer || !strings.Contains(refused[0].Reason, text) {
		d.t.Fatalf("%s: %v, want %s … %s", what, err, pointer, text)
	}
	if after := value[int](d, "select count(*) from slipway.tasks"); after != before {
		d.t.Fatalf("%s: %d tasks were stored of a refused submit", what, after-before)
	}
}

func TestAGrowthThatItsNamespaceHasNoRoomForIsRefusedWithTheNumbers(t *testing.T) {
	d := newDatabase(t)
	claims := &disks{claim: map[string]int64{"a": 2 << 30, "b": 1 << 30}}
	d.limit("ns", 10<<30)
	d.wantRoom("up to the limit, with another reserved", claims, growing("a", 5<<30))
	d.wantNoRoom("one more", claims, "/items/0/params/size",
		"asks for 5Gi more than namespace ns has room for within its limit of storage: the limit is 10Gi, in use are 3Gi, tasks have reserved 3Gi more", growing("b", 6<<30))
	d.wantRoom("the same wish again takes nothing", claims, growing("a", 5<<30))
	d.wantRoom("what is left", claims, growing("b", 5<<30))
	d.wantNoRoom("nothing is left", claims, "/items/0/params/size", "asks for 1 more", growing("a", 5<<30+1))
	other := growing("x", 1<<40)
	other.Task.Namespace, other.Task.Lane = "other", "volume:other/x"
	d.wantRoom("another namespace has no limit", claims, other)
	d.limit("ns", 1<<30)
	d.wantRoom("a limit below what is there refuses nothing that takes nothing", claims, growing("a", 4<<30))
	if err := d.SetStorageLimit(t.Context(), "ns", nil, "olga"); err != nil {
		t.Fatal(err)
	}
	d.wantRoom("a limit that was taken away", claims, growing("a", 1<<40))
}

func TestABatchAndATreeAreCountedAsAWhole(t *testing.T) {
	d := newDatabase(t)
	claims := &disks{claim: map[string]int64{"a": 1, "b": 1}}
	d.limit("ns", 10)
	d.wantNoRoom("the second of a batch", claims, "/items/1/params/size", "tasks have reserved 5 more", growing("a", 6), growing("b", 6))
	d.wantRoom("two wishes for one claim are one", claims, growing("a", 6))
	tree := func(bytes int64) store.Item {
		parent := item("")
		parent.Task.Kind = "group"
		parent.Children = []store.Item{growing("b", bytes), growing("a", 6)}
		return parent
	}
	d.wantNoRoom("a child", claims, "/items/0/children/0/params/size", "asks for 4 more", tree(5))
	d.wantRoom("a tree that fits", claims, tree(4))
	d.wantNoRoom("its children hold it before they begin", claims, "/items/0/params/size", "reserved 8 more", growing("a", 7))
	dry := store.Batch{Caller: "alice", Items: d.measured(claims, growing("a", 7)), DryRun: true}
	var refused store.FieldErrors
	if _, err := d.Enqueue(t.Context(), dry); !errors.As(err, &refused) {
		t.Errorf("a dry run: %v", err)
	}
}

func TestAReservationEndsWithItsTaskHoweverThatEnds(t *testing.T) {
	d := newDatabase(t)
	claims := &disks{claim: map[string]int64{"a": 1, "b": 1}}
	d.limit("ns", 10)
	ctx := t.Context()
	cancel := func(id string) {
		t.Helper()
		if _, err := d.Cancel(ctx, id, "bob", ""); err != nil {
			t.Fatal(err)
		}
	}
	attempt := func(v task.Verdict) func(string) {
		return func(string) { d.finish(d.claimOne(), v) }
	}
	permanent := failure
	permanent.Outcome = task.OutcomeRejected
	for name, end := range map[string]func(id string){
		"canceled while queued": cancel,
		"rejected":              attempt(permanent),
		"succeeded":             attempt(success),
		"canceled while running": func(id string) {
			c := d.claimOne()
			cancel(id)
			d.wantNoRoom("asked to stop, not stopped", claims, "/items/0/params/size", "reserved 8 more", growing("b", 4))
			d.finish(c, task.Verdict{Outcome: task.OutcomeCanceled, Reason: task.ReasonCanceled})
		},
		"failed after its retries": func(string) {
			for range 4 {
				c := d.claimOne()
				d.finish(c, failure)
				d.sql("UPDATE slipway.tasks SET run_at = slipway.now(); UPDATE slipway.lanes SET ready_at = NULL")
			}
		},
		"queue deadline": func(string) {
			d.sql("UPDATE slipway.tasks SET queue_by = slipway.now() WHERE state = 'queued'")
			if _, err := d.ExpireQueued(ctx, 10); err != nil {
				t.Fatal(err)
			}
		},
		"canceled, and deleted": func(id string) {
			cancel(id)
			if err := d.DeleteTask(ctx, id, "bob"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		id := d.wantRoom(name, claims, growing("a", 9)).ID
		d.wantNoRoom(name+": it holds as long as the task is open", claims, "/items/0/params/size", "reserved 8 more", growing("b", 4))
		end(id)
		last := d.wantRoom(name+": it has ended with the task", claims, growing("b", 4)).ID
		cancel(last)
		if all, err := d.Reservations(ctx, "ns"); err != nil || len(all) != 0 {
			t.Errorf("%s: %v %v are left", name, all, err)
		}
	}
}

func TestWhatASubmitReplacesReservesNothingBesideIt(t *testing.T) {
	d := newDatabase(t)
	claims := &disks{claim: map[string]int64{"a": 1}}
	d.limit("ns", 10)
	shared := func(claim string, bytes int64, on task.OnConflict) store.Item {
		it := growing(claim, bytes)
		it.Task.Lane, it.OnConflict = "volume:ns/shared", on
		return it
	}
	old := d.wantRoom("the first", claims, shared("a", 10, "")).ID
	d.wantNoRoom("beside it", claims, "/items/0/params/size", "reserved 9 more", shared("b", 9, ""))
	d.wantRoom("instead of it", claims, shared("b", 9, task.ConflictReplace))
	d.wantState(old, task.Canceled, task.ReasonSuperseded)
	running := d.claimOne()
	d.wantNoRoom("one that runs can still grow", claims, "/items/0/params/size", "reserved 9 more", shared("c", 5, task.ConflictReplace))
	d.finish(running, success)
}

func TestASubmitThatIsAbsorbedReservesItsOwnWish(t *testing.T) {
	d := newDatabase(t)
	claims := &disks{claim: map[string]int64{}}
	d.limit("ns", 10)
	latest := func(bytes int64) store.Item {
		it := growing("a", bytes)
		it.Task.Mode = task.Latest
		return it
	}
	kept := d.wantRoom("the first", claims, latest(4)).ID
	if again := d.wantRoom("absorbed", claims, latest(7)).ID; again != kept {
		t.Fatal("it was not absorbed")
	}
	if _, err := d.submit(claims, latest(8), latest(3)); err != nil {
		t.Fatal(err)
	}
	if all, err := d.Reservations(t.Context(), "ns"); err != nil || fmt.Sprint(all) != fmt.Sprintf("[{%s a 3}]", kept) {
		t.Errorf("%v %v", all, err)
	}
}

func TestALimitThatIsSetCountsWhatWasTakenInBefore(t *testing.T) {
	d := newDatabase(t)
	claims := &disks{claim: map[string]int64{"a": 1}}
	d.wantRoom("without a limit", claims, growing("a", 9))
	before := d.measured(claims, growing("b", 2)) // nobody asks for the claims where there is no limit
	if before[0].Storage != nil {
		t.Fatal("the claims were read")
	}
	d.limit("ns", 10)
	if _, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: before}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a submit that knew of no limit: %v", err)
	}
	d.wantNoRoom("after it", claims, "/items/0/params/size", "reserved 8 more", growing("b", 2))
	old := d.measured(claims, growing("b", 1))
	old[0].Storage.At = old[0].Storage.At.Add(-time.Hour)
	if _, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: old}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a reading of an hour ago: %v", err)
	}
}

func TestWhatGrewWhileTheClaimsWereReadStillCounts(t *testing.T) {
	d := newDatabase(t)
	claims := &disks{claim: map[string]int64{"a": 1}}
	d.limit("ns", 10)
	d.wantRoom("the first", claims, growing("a", 9))
	read := d.measured(claims, growing("b", 2)) // a has 1
	c := d.claimOne()
	claims.grow("a", 9)
	d.finish(c, success) // and has reserved nothing any more
	var refused store.FieldErrors
	if _, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: read}); !errors.As(err, &refused) {
		t.Errorf("counted on what had been given away: %v", err)
	}
	d.wantRoom("what is left", claims, growing("b", 1))
}

func TestReservationsOfEndedTasksAreSwept(t *testing.T) {
	d := newDatabase(t)
	d.clockAt()
	claims := &disks{claim: map[string]int64{}}
	d.limit("ns", 10)
	d.wantRoom("the first", claims, growing("a", 9))
	d.finish(d.claimOne(), success)
	d.wantRoom("at once", claims, growing("b", 1))
	if n := value[int](d, "select count(*) from slipway.reservations"); n != 2 {
		t.Errorf("%d rows, want both", n)
	}
	d.advance(11 * time.Minute)
	d.wantRoom("later", claims, growing("c", 1))
	if n := value[int](d, "select count(*) from slipway.reservations"); n != 2 {
		t.Errorf("%d rows, want those of the open ones", n)
	}
}

func TestAFireWithoutRoomIsRefusedInTheLedgerAndTheOthersFire(t *testing.T) {
	d := newDatabase(t)
	claims := &disks{claim: map[string]int64{"a": 1}}
	d.limit("ns", 10)
	small, large := every("small", time.Hour), every("large", time.Hour)
	plan := func(in store.ScheduleInput) store.SchedulePlan {
		p := plain(in)
		for i := range p.Fires {
			if p.Fires[i].Item == nil {
				continue
			}
			bytes := map[string]int64{"small": 5, "large": 50}[in.Schedule.Name]
			it := d.measured(claims, growing(in.Schedule.Name, bytes))[0]
			p.Fires[i].Item = &it
		}
		return p
	}
	small, large = d.schedule(small), d.schedule(large)
	d.sql("UPDATE slipway.schedules SET next_at = slipway.now(), considered_at = slipway.now() - interval '1 hour', anchor_at = slipway.now() - interval '2 hours'")
	if _, err := d.FireSchedules(t.Context(), 10, nil, plan); err != nil {
		t.Fatal(err)
	}
	if got := d.outcomes(small); len(got) != 1 || got[0] != store.FireFired {
		t.Errorf("the small one: %v", got)
	}
	page, err := d.Fires(t.Context(), large.Key, "", "", 10)
	if err != nil || len(page.Fires) != 1 || page.Fires[0].Outcome != store.FireRefused || !strings.HasPrefix(page.Fires[0].Why, "/params/size: asks for 50 more") {
		t.Errorf("the large one: %+v %v", page.Fires, err)
	}
}

func TestALimitOfStorageIsAuditedAndSetOnce(t *testing.T) {
	d := newDatabase(t)
	d.limit("ns", 10<<30)
	d.limit("ns", 10<<30)
	d.limit("ns", 20<<30)
	if err := d.SetStorageLimit(t.Context(), "ns", nil, "olga"); err != nil {
		t.Fatal(err)
	}
	page, err := d.Audit(t.Context(), store.AuditFilter{Namespace: "ns"})
	var got []string
	for _, e := range page.Entries {
		got = append(got, fmt.Sprintf("%s %s %s %s %s→%s", e.Actor, e.Verb, e.Resource, e.Name, e.Before, e.After))
	}
	want := `olga set limits ns {"storage": "20Gi"}→{"storage": null}; olga set limits ns {"storage": "10Gi"}→{"storage": "20Gi"}; ` +
		`olga set limits ns {"storage": null}→{"storage": "10Gi"}`
	if err != nil || strings.Join(got, "; ") != want {
		t.Errorf("%v\n%s\nwant\n%s", err, strings.Join(got, "; "), want)
	}
}

// finishUnderAnyStop ends an Attempt that others may ask to stop meanwhile.
func (d database) finishUnderAnyStop(ctx context.Context, c store.Claimed) error {
	for {
		_, a, _, err := d.OpenAttempt(ctx, c.Attempt.ID)
		if err != nil {
			return err
		}
		v := success
		v.Stop = a.Stop
		if _, err = d.Finish(ctx, c.Attempt.ID, c.Attempt.Fence, v, store.Ending{}); !errors.Is(err, store.ErrChanged) {
			return err
		}
	}
}

// Submits of all kinds beside runs that really grow the claims, and an operator who moves the limit of another namespace:
// what the claims have, and what open tasks will make of them, never passes the limit.
func TestRaceOfSubmitsNeverReservesTheSameRoomTwice(t *testing.T) {
	d := newDatabase(t).running()
	const limit, rounds, senders = 100, 25, 12
	ctx := t.Context()
	d.sql("UPDATE slipway.queues SET cap = 1000, ns_cap = 1000")
	var accepted, refusals atomic.Int64
	for round := range rounds {
		claims := &disks{claim: map[string]int64{}}
		for n := range 20 {
			claims.claim[fmt.Sprintf("r%d-c%d", round, n)] = 1
		}
		d.limit("ns", limit)
		d.limit("other", limit)
		worked, stop := make(chan struct{}), make(chan struct{})
		go func() { // the runs
			defer close(worked)
			for last := false; ; {
				r, err := d.Claim(ctx, "default", 5)
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range r.Claims {
					if c.Task.Spec.Weight > 0 { // of namespace ns: it carries its wish
						claims.grow(strings.TrimPrefix(c.Task.Lane, "volume:ns/"), int64(c.Task.Spec.Weight))
					}
					if err := d.finishUnderAnyStop(ctx, c); err != nil {
						t.Error(err)
					}
				}
				if last && len(r.Claims) == 0 {
					return
				}
				select {
				case <-stop:
					last = true
				default:
				}
			}
		}()
		var all sync.WaitGroup
		for n := range senders {
			all.Go(func() {
				for turn := range 4 {
					claim := fmt.Sprintf("r%d-c%d", round, (n+turn*7)%20)
					it := growing(claim, int64(10+turn))
					it.Task.Spec.Weight = float64(10 + turn)
					elsewhere := growing("x", int64(n))
					elsewhere.Growth.Bytes++
					elsewhere.Task.Namespace, elsewhere.Task.Lane = "other", "volume:other/x"
					items := []store.Item{it}
					switch n % 3 {
					case 1:
						items = append(items, elsewhere)
					case 2:
						items = append([]store.Item{elsewhere}, it)
					}
					switch done, err := d.submit(claims, items...); {
					case err == nil:
						accepted.Add(1)
						if turn == 2 {
							for _, e := range done {
								if _, err := d.Cancel(ctx, e.Task.ID, "bob", ""); err != nil && !errors.As(err, new(*store.EndedError)) {
									t.Error(err)
								}
							}
						}
					case errors.As(err, new(store.FieldErrors)):
						refusals.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		close(stop)
		select {
		case <-worked:
		case <-time.After(time.Minute):
			t.Fatal("the runs never end")
		}
		if sum := claims.sum(); sum > limit {
			t.Fatalf("round %d: the claims have %d, the limit is %d", round, sum, limit)
		}
	}
	if accepted.Load() == 0 || refusals.Load() == 0 {
		t.Errorf("%d were taken, %d refused: nothing was tried", accepted.Load(), refusals.Load())
	}
	if n := d.Deadlocks(); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	t.Logf("%d rounds: %d taken, %d refused, %d deadlocks", rounds, accepted.Load(), refusals.Load(), d.Deadlocks())
}
