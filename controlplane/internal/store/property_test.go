package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// worlds plays many worlds at once on one database and through two replicas. Whatever a replica does may be cut off in
// its middle, as a kill would; the other one goes on.
type worlds struct {
	database
	other *store.Store
	r     *rand.Rand
	all   []*world
	of    map[string]*world
	tasks map[string]*modelTask
	open  map[string]store.Claimed
	cuts  atomic.Int64
}

// TestRandomTreesAndGraphsEndAsTheModelSays plays ROUNDS worlds, 200 where nothing is said: 10,000 take minutes.
func TestRandomTreesAndGraphsEndAsTheModelSays(t *testing.T) {
	rounds, seed := number("ROUNDS", 200), number("ROUNDS_SEED", uint64(time.Now().UnixNano()))
	d := newDatabase(t)
	d.clockAt()
	d.queue(func(q *store.Queue) { q.Cap, q.NamespaceCap, q.MaxQueued = 100_000, 100_000, 1_000_000 })
	w := &worlds{database: d, other: pgtest.Open(t, store.Config{URL: d.url, Replica: "b"}), r: rand.New(rand.NewPCG(seed, 1))}
	t.Logf("seed %d", seed)
	const together = 100
	states := map[string]int{}
	for done := uint64(0); done < rounds; done += together {
		w.begin(int(done), int(min(together, rounds-done)))
		w.play()
		w.compare(states)
		if t.Failed() {
			t.FailNow()
		}
	}
	fmt.Printf("trees: rounds=%d differences=0 cut_off=%d ends=%v seed=%d\n", rounds, w.cuts.Load(), states, seed)
}

func (w *worlds) begin(from, n int) {
	w.all, w.of, w.tasks, w.open = nil, map[string]*world{}, map[string]*modelTask{}, map[string]store.Claimed{}
	for i := range n {
		one := imagine(w.r, fmt.Sprintf("w%d", from+i))
		w.all = append(w.all, one)
		for _, t := range one.all {
			w.of[t.id], w.tasks[t.id] = one, t
		}
	}
	w.each(func(i int, one *world, do func(func(context.Context, *store.Store) error)) {
		items := make([]store.Item, len(one.tops))
		for k, top := range one.tops {
			items[k] = itemOf(top)
		}
		batch := store.Batch{Caller: "alice", Key: fmt.Sprintf("world-%d", from+i), Hash: []byte{1}, Items: items}
		do(func(ctx context.Context, s *store.Store) error {
			_, err := s.Enqueue(ctx, batch)
			return err
		})
	})
	w.modelled()
}

// modelled lets every model follow its rules.
func (w *worlds) modelled() {
	for _, one := range w.all {
		one.settle()
	}
}

func itemOf(t *modelTask) store.Item {
	it := item(t.lane)
	it.Task.ID, it.Task.Namespace = t.id, "ns"
	it.Task.Spec.Idempotent, it.Task.Spec.Retry.Attempts, it.Task.Spec.QueueDeadline, it.Task.Spec.RunDeadline = true, t.attempts, 3600*1000, 0
	for _, n := range t.needs {
		it.After = append(it.After, n.id)
	}
	if it.RunIf = store.AllSucceeded; t.anyEnd {
		it.RunIf = store.AllFinished
	}
	for _, c := range t.children {
		it.Children = append(it.Children, itemOf(c))
	}
	return it
}

// each does something in every world, some at once. What is given to do is cut off now and then, and done again by the
// other replica until it is done.
func (w *worlds) each(fn func(i int, one *world, do func(func(context.Context, *store.Store) error))) {
	var all sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i, one := range w.all {
		r := rand.New(rand.NewPCG(w.r.Uint64(), uint64(i)))
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			fn(i, one, func(op func(context.Context, *store.Store) error) { w.surely(r, op) })
		})
	}
	all.Wait()
}

// surely does op; one time in twelve it is cut off first.
func (w *worlds) surely(r *rand.Rand, op func(context.Context, *store.Store) error) {
	if r.IntN(12) == 0 {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Duration(r.IntN(4000))*time.Microsecond)
		err := op(ctx, w.other)
		cancel()
		if err != nil {
			w.cuts.Add(1)
		}
	}
	if err := op(w.t.Context(), w.Store); err != nil {
		w.t.Error(err)
	}
}

// play goes on until everything has ended. Where nothing can go on any more, the queue deadlines end what waits.
func (w *worlds) play() {
	for range 200 {
		w.settled()
		claimed := w.claimAll()
		if claimed == 0 && len(w.open) == 0 {
			if !slices.ContainsFunc(w.all, func(one *world) bool {
				return slices.ContainsFunc(one.all, func(t *modelTask) bool { return !t.over() })
			}) {
				return
			}
			w.expireAll()
			continue
		}
		w.settled()
		w.modelled()
		w.act()
		w.advance(10 * time.Minute)
		w.modelled()
		if w.t.Failed() {
			return
		}
	}
	w.t.Error("the worlds never end")
}

// settled lets both replicas settle until no nudge is left; one of them is cut off now and then.
func (w *worlds) settled() {
	for {
		var left atomic.Bool
		var both sync.WaitGroup
		for range 2 {
			r := rand.New(rand.NewPCG(w.r.Uint64(), 0))
			both.Go(func() {
				w.surely(r, func(ctx context.Context, s *store.Store) error {
					more, err := s.Settle(ctx, 300)
					if more {
						left.Store(true)
					}
					return err
				})
			})
		}
		both.Wait()
		if w.t.Failed() || !left.Load() && value[int](w.database, "select count(*) from slipway.nudges") == 0 {
			return
		}
	}
}

// claimAll claims all that is ready, and holds it against the model: of each lane exactly one that may be next.
func (w *worlds) claimAll() int {
	taken := map[string]bool{}
	for {
		r, err := w.Claim(w.t.Context(), "default", 200)
		if err != nil {
			w.t.Error(err)
			return 0
		}
		for _, c := range r.Claims {
			w.open[c.Task.ID] = c
		}
		if len(r.Claims)+r.Parents == 0 {
			break
		}
	}
	for id, state := range w.states() {
		if t := w.tasks[id]; state == "running" && t.state == "queued" {
			taken[id] = true
		}
	}
	n := 0
	for _, one := range w.all {
		for _, choice := range one.ready() {
			var got []*modelTask
			for _, t := range choice {
				if taken[t.id] {
					got = append(got, t)
				}
			}
			if len(got) != 1 {
				w.t.Errorf("of %d tasks that may be next in lane %q %d were claimed", len(choice), choice[0].lane, len(got))
				return 0
			}
			got[0].state, got[0].claimed = "running", true
			delete(taken, got[0].id)
			n++
		}
	}
	if len(taken) > 0 {
		w.t.Errorf("%d tasks were claimed that may not run", len(taken))
	}
	return n
}

func (w *worlds) states() map[string]string {
	ids := make([]string, 0, len(w.tasks))
	for id := range w.tasks {
		ids = append(ids, id)
	}
	all, err := w.TasksByID(w.t.Context(), ids)
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]string{}
	for _, t := range all {
		out[t.ID] = string(t.State)
	}
	return out
}

// act ends some tries and cancels some Tasks, at least one thing in each world where something runs.
func (w *worlds) act() {
	var gone sync.Map
	w.each(func(i int, one *world, do func(func(context.Context, *store.Store) error)) {
		r := rand.New(rand.NewPCG(uint64(i), uint64(one.turns)))
		if r.IntN(8) == 0 {
			if t := one.all[r.IntN(len(one.all))]; !t.over() {
				do(func(ctx context.Context, s *store.Store) error {
					_, err := s.Cancel(ctx, t.id, "bob", "")
					if ended := new(store.EndedError); errors.As(err, &ended) && ended.State == task.Canceled {
						return nil // cut off after it was done
					}
					return err
				})
				t.cancel()
			}
		}
		ended := 0
		for _, t := range one.all {
			c, running := w.open[t.id]
			if !running || ended > 0 && r.IntN(2) == 0 {
				continue
			}
			ended++
			v := map[string]task.Verdict{
				"succeeded": success, "failed": failure, "lost": lost,
				"canceled": {Outcome: task.OutcomeCanceled, Reason: task.ReasonCanceled, Stop: task.StopCancel},
			}[t.finish()]
			do(func(ctx context.Context, s *store.Store) error {
				_, err := s.Finish(ctx, c.Attempt.ID, c.Attempt.Fence, v, store.Ending{})
				if errors.Is(err, store.ErrStale) {
					return nil // cut off after it was done
				}
				return err
			})
			gone.Store(t.id, true)
		}
	})
	gone.Range(func(id, _ any) bool {
		delete(w.open, id.(string))
		return true
	})
}

func (w *worlds) expireAll() {
	w.advance(2000 * time.Hour)
	for {
		n, err := w.ExpireQueued(w.t.Context(), 300)
		if err != nil {
			w.t.Error(err)
			return
		}
		if n == 0 {
			break
		}
	}
	for _, one := range w.all {
		one.expire()
		one.settle()
	}
}

// compare holds the end of every Task against the model's.
func (w *worlds) compare(states map[string]int) {
	ids := make([]string, 0, len(w.tasks))
	for id := range w.tasks {
		ids = append(ids, id)
	}
	all, err := w.TasksByID(w.t.Context(), ids)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(all) != len(w.tasks) {
		w.t.Fatalf("%d tasks are stored, want %d", len(all), len(w.tasks))
	}
	for _, got := range all {
		want := w.tasks[got.ID]
		states[want.state+"/"+want.reason]++
		if string(got.State) != want.state || string(got.Reason) != want.reason {
			w.t.Errorf("task %s is %s/%s, the model says %s/%s (%d children, %d needs)", got.ID, got.State, got.Reason, want.state, want.reason, len(want.children), len(want.needs))
		}
	}
	if n := value[int](w.database, "select count(*) from slipway.lanes where private"); n != 0 {
		w.t.Errorf("%d private lanes are left", n)
	}
}
