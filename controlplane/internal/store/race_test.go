package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// race is a mixed run: replicas claim, finish, settle and expire while clients submit singles, batches, graphs,
// replacing, rejecting, absorbed and delayed Tasks, others cancel, and connections are cut under all of them.
type race struct {
	t        *testing.T
	url      string
	seed     uint64
	replicas []*store.Store
	streams  atomic.Uint64

	claims    atomic.Int64
	submitted atomic.Int64
	cut       atomic.Int64

	mu     sync.Mutex
	recent []string // ids worth a cancel, or to wait for
}

// raceCaps are those of the two queues: cap and namespace cap.
var raceCaps = map[string][2]int{"default": {12, 5}, "volume": {8, 8}}

func TestRaceOfEverythingAgainstEverythingKeepsThePromises(t *testing.T) {
	r := &race{t: t, url: pgtest.URL(t), seed: number("RACE_SEED", uint64(time.Now().UnixNano()))}
	for n := range 3 {
		r.replicas = append(r.replicas, pgtest.Open(t, store.Config{URL: r.url, Replica: fmt.Sprint(n), MaxConns: 20, BeatEvery: 50 * time.Millisecond}))
	}
	for name, caps := range raceCaps {
		q := store.Queue{Name: name, Cap: caps[0], NamespaceCap: caps[1], MaxQueued: 150}
		if err := r.replicas[0].SetQueue(t.Context(), q, "race"); err != nil {
			t.Fatal(err)
		}
	}
	r.run(time.Duration(number("RACE_SECONDS", 10)) * time.Second)
	f := r.findings()
	fmt.Printf("race: attempts=%d deadlocks=%d overlaps=%d order_breaks=%d sleeping_lanes=%d cap_overshoots=%d seed=%d\n",
		f.attempts, f.deadlocks, f.overlaps, f.orderBreaks, f.sleepingLanes, f.capOvershoots, r.seed)
	t.Logf("%d tasks submitted, %d connections cut", r.submitted.Load(), r.cut.Load())
	if f.attempts == 0 || f.deadlocks+int64(f.overlaps+f.orderBreaks+f.sleepingLanes+f.capOvershoots) != 0 {
		t.Fail()
	}
}

func number(variable string, usual uint64) uint64 {
	n, err := strconv.ParseUint(os.Getenv(variable), 10, 64)
	if err != nil {
		return usual
	}
	return n
}

func (r *race) rand() *rand.Rand { return rand.New(rand.NewPCG(r.seed, r.streams.Add(1))) }

// run lets everybody work for d, then lets the replicas finish what is left.
func (r *race) run(d time.Duration) {
	ctx, stop := context.WithCancel(r.t.Context())
	var replicas, clients sync.WaitGroup
	work := make(chan claimedBy)
	for _, s := range r.replicas {
		replicas.Go(func() {
			if err := s.Run(ctx); err != nil {
				r.t.Error(err)
			}
		})
		for queue := range raceCaps {
			replicas.Go(func() { r.claimLoop(ctx, s, queue, work) })
		}
		replicas.Go(func() { r.settleLoop(ctx, s) })
		replicas.Go(func() { r.compareLoop(ctx, s) })
		replicas.Go(func() { r.overdueLoop(ctx, s, work) })
		for range 8 {
			replicas.Go(func() { r.workLoop(ctx, work) })
		}
	}
	busy, rest := context.WithTimeout(ctx, d)
	for n := range 8 {
		clients.Go(func() { r.submitLoop(busy, r.replicas[n%len(r.replicas)]) })
	}
	for n := range 2 {
		clients.Go(func() { r.cancelLoop(busy, r.replicas[n]) })
	}
	clients.Go(func() { r.cutLoop(busy) })
	clients.Wait()
	rest()
	r.drain(ctx)
	stop()
	replicas.Wait()
}

type claimedBy struct {
	store *store.Store
	store.Claimed
}

// fine reports whether err is one that a client expects in such a run.
func (r *race) fine(ctx context.Context, err error) bool {
	var conflict *store.ConflictError
	var full *store.FullError
	var ended *store.EndedError
	switch {
	case err == nil:
		return true
	case ctx.Err() != nil, errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrStale), errors.As(err, &conflict),
		errors.As(err, &full), errors.As(err, &ended):
	default:
		r.t.Errorf("unexpected: %v", err)
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// compareLoop holds what lanes show against their Tasks, while everything moves.
func (r *race) compareLoop(ctx context.Context, s *store.Store) {
	for after := ""; ctx.Err() == nil; pause(ctx, 20*time.Millisecond) {
		found, err := s.CheckLanes(ctx, after, 100)
		if !r.fine(ctx, err) {
			continue
		}
		if after = found.Next; len(found.Differences) > 0 {
			r.t.Errorf("lanes differ from what their tasks say: %+v", found.Differences)
			return
		}
	}
}

func (r *race) claimLoop(ctx context.Context, s *store.Store, queue string, work chan<- claimedBy) {
	for ctx.Err() == nil {
		got, err := s.Claim(ctx, queue, 20)
		if !r.fine(ctx, err) {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		r.claims.Add(int64(len(got.Claims)))
		for _, c := range got.Claims {
			select {
			case work <- claimedBy{s, c}:
			case <-ctx.Done():
			}
		}
		if !got.More && len(got.Claims) == 0 {
			pause(ctx, 5*time.Millisecond)
		}
	}
}

// overdueLoop takes over Attempts whose claimer never learned of its claim.
func (r *race) overdueLoop(ctx context.Context, s *store.Store, work chan<- claimedBy) {
	for ctx.Err() == nil {
		pause(ctx, 200*time.Millisecond)
		left, err := s.LeasedOverdue(ctx, time.Second, 50)
		if !r.fine(ctx, err) {
			continue
		}
		for _, c := range left {
			select {
			case work <- claimedBy{s, c}:
			case <-ctx.Done():
			}
		}
	}
}

func (r *race) settleLoop(ctx context.Context, s *store.Store) {
	for ctx.Err() == nil {
		more, err := s.Settle(ctx, 50)
		r.fine(ctx, err)
		_, err = s.EnterDue(ctx, 50)
		r.fine(ctx, err)
		_, err = s.ExpireQueued(ctx, 50)
		r.fine(ctx, err)
		if !more {
			pause(ctx, 10*time.Millisecond)
		}
	}
}

// workLoop plays runner and reconcile for what was claimed.
func (r *race) workLoop(ctx context.Context, work <-chan claimedBy) {
	rnd := r.rand()
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-work:
			r.attempt(ctx, rnd, c)
		}
	}
}

func (r *race) attempt(ctx context.Context, rnd *rand.Rand, c claimedBy) {
	id, fence := c.Attempt.ID, c.Attempt.Fence
	if rnd.IntN(2) == 0 {
		pod := fmt.Sprint("pod-", id)
		_, _, err := c.store.Start(ctx, store.StartRequest{Attempt: id, Fence: fence, PodUID: pod})
		if r.fine(ctx, err) && rnd.IntN(3) == 0 {
			_, err = c.store.Beat(ctx, store.BeatRequest{Attempt: id, Fence: fence, PodUID: pod})
			r.fine(ctx, err)
		}
	}
	if rnd.IntN(4) == 0 {
		pause(ctx, time.Duration(rnd.IntN(20))*time.Millisecond)
	}
	for ctx.Err() == nil {
		var v task.Verdict
		switch n := rnd.IntN(100); {
		case n < 10:
			v = failure
		case n < 11 && rnd.IntN(5) == 0:
			v = lost
		default:
			v = success
		}
		if _, a, _, err := c.store.OpenAttempt(ctx, id); err == nil && a.Stop != task.StopNone {
			v = task.Verdict{Outcome: task.OutcomeCanceled, Reason: task.ReasonCanceled, Stop: a.Stop}
		}
		if rnd.IntN(10) == 0 { // another replica ends it as well
			go func() { _, _ = r.replicas[0].Finish(ctx, id, fence, v, store.Ending{}) }()
		}
		_, err := c.store.Finish(ctx, id, fence, v, store.Ending{})
		if r.fine(ctx, err) || errors.Is(err, store.ErrStale) && !errors.Is(err, store.ErrChanged) {
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func (r *race) submitLoop(ctx context.Context, s *store.Store) {
	rnd := r.rand()
	for n := 0; ctx.Err() == nil; n++ {
		b := store.Batch{Caller: "race", Items: r.items(rnd)}
		if rnd.IntN(2) == 0 {
			b.Key, b.Hash = fmt.Sprint(rnd.IntN(5000)), []byte{0}
			if rnd.IntN(20) == 0 {
				b.Hash = []byte{1}
			}
		}
		out, err := s.Enqueue(ctx, b)
		if !r.fine(ctx, err) {
			pause(ctx, 5*time.Millisecond)
			continue
		}
		r.submitted.Add(int64(len(out)))
		r.mu.Lock()
		for _, e := range out {
			r.recent = append(r.recent, e.Task.ID)
		}
		const window = 200
		r.recent = r.recent[max(0, len(r.recent)-window):]
		r.mu.Unlock()
		pause(ctx, time.Duration(rnd.IntN(10))*time.Millisecond)
	}
}

func (r *race) pick(rnd *rand.Rand) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.recent) == 0 {
		return "", false
	}
	return r.recent[rnd.IntN(len(r.recent))], true
}

// items makes one submit of a random shape.
func (r *race) items(rnd *rand.Rand) []store.Item {
	ns := func() string { return fmt.Sprint("ns-", rnd.IntN(4)) }
	strict := func() store.Item {
		space := ns()
		it := item(fmt.Sprintf("volume:%s/%d", space, rnd.IntN(12)))
		it.Task.Namespace, it.Task.Queue = space, "volume"
		it.Task.Class = task.Class(rnd.IntN(4))
		it.Task.Spec.Idempotent = true
		it.Task.Spec.Retry = task.Retry{Attempts: 3, Backoff: 0.1, Cap: 0.2, Lost: 2}
		return it
	}
	branch := func(kind string) store.Item {
		it := strict()
		it.Task.Lane, it.Task.Kind, it.Task.Queue = fmt.Sprintf("branch:%s/%d", it.Task.Namespace, rnd.IntN(3)), kind, "default"
		return it
	}
	switch rnd.IntN(10) {
	case 0, 1: // a batch over many lanes, in any order
		items := make([]store.Item, 1+rnd.IntN(40))
		for i := range items {
			items[i] = strict()
		}
		return items
	case 2:
		it := strict()
		it.Task.Mode, it.Task.Lane, it.Task.Queue = task.Latest, fmt.Sprint("pool:x/", rnd.IntN(3)), "default"
		return []store.Item{it}
	case 3:
		it := branch("branch.delete")
		it.OnConflict, it.Supersedes = task.ConflictReplace, []string{"branch.start", "branch.resize"}
		return []store.Item{it}
	case 4:
		it := branch("branch.start")
		it.OnConflict = task.ConflictReject
		return []store.Item{it}
	case 5:
		return []store.Item{family(rnd, branch("branch.resize"), strict)}
	case 6:
		it := strict()
		if id, ok := r.pick(rnd); ok {
			it.After, it.RunIf = []string{id}, store.AllFinished
		}
		return []store.Item{it}
	case 7:
		it := strict()
		it.Delay = time.Duration(1+rnd.IntN(300)) * time.Millisecond
		return []store.Item{it}
	case 8:
		it := item("")
		it.Task.Namespace = ns()
		return []store.Item{it, it, it}
	}
	return []store.Item{strict()}
}

// family makes a composite Task: children, and a last one that runs after all of them.
func family(rnd *rand.Rand, parent store.Item, child func() store.Item) store.Item {
	last := item("")
	last.Task.Kind, last.RunIf = "branch.observe", store.AllFinished
	for range 1 + rnd.IntN(4) {
		c := child()
		c.Task.ID = uuid.NewString()
		last.After = append(last.After, c.Task.ID)
		parent.Children = append(parent.Children, c)
	}
	parent.Children = append(parent.Children, last)
	return parent
}

func (r *race) cancelLoop(ctx context.Context, s *store.Store) {
	rnd := r.rand()
	for ctx.Err() == nil {
		pause(ctx, time.Duration(rnd.IntN(30))*time.Millisecond)
		if id, ok := r.pick(rnd); ok {
			_, err := s.Cancel(ctx, id, "race", "")
			r.fine(ctx, err)
		}
	}
}

// cutLoop ends connections of the replicas from the server's side.
func (r *race) cutLoop(ctx context.Context) {
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for ctx.Err() == nil {
		pause(ctx, 150*time.Millisecond)
		var n int64
		err := conn.QueryRow(ctx, `select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity
			where datname = current_database() and application_name like 'slipway/%' order by random() limit 2) x`).Scan(&n)
		if err != nil && ctx.Err() == nil {
			r.t.Error(err)
		}
		r.cut.Add(n)
	}
}

// drain waits until nothing is open any more; what stays open is found below.
func (r *race) drain(ctx context.Context) {
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); pause(ctx, 100*time.Millisecond) {
		var open int
		if err := conn.QueryRow(ctx, `select (select count(*) from slipway.tasks where state in ('queued', 'running')) + (select count(*) from slipway.nudges)`).Scan(&open); err != nil {
			r.t.Fatal(err)
		}
		if open == 0 {
			return
		}
	}
}
