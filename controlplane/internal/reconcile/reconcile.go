// Package reconcile lets open Attempts meet the cluster's truth: it reads an Attempt, observes its Job and pods, asks
// task.Decide, and does what that says. Lost leases, deadlines, cancels, refused pods and ends are this one function.
//
// Between loops travels a key, never a fact: an informer event, a report, a cancel and a resync all only say "look at
// attempt X". Every replica hears every event; the one that claimed an Attempt looks at once, the others 3 s later if it
// is still open. Nothing depends on who is first: every write is guarded by the fence.
//
// No database connection is held while the cluster is called, and no silence of a watch is ever an outcome: what rests
// on an absence is read from the API server itself, and when that does not answer nothing is decided.
//
// Allowed imports: pkg/task, controlplane/internal/loop, controlplane/internal/failpoint.
package reconcile

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"slipway.dev/slipway/controlplane/internal/loop"
	"slipway.dev/slipway/pkg/task"
)

// Reader reads Attempts. Errors wrap task.ErrNotFound.
type Reader interface {
	// OpenAttempt reads an Attempt, whatever its state, its Task, and the database's time.
	OpenAttempt(ctx context.Context, attempt int64) (task.Task, task.Attempt, time.Time, error)
	// OpenAttempts lists what is not finished, or finished and not closed.
	OpenAttempts(ctx context.Context) ([]int64, error)
}

// Ender stores the way to an end. Errors wrap task.ErrStale when the Attempt has ended already.
type Ender interface {
	Stop(ctx context.Context, attempt, fence int64, why task.StopReason, note string) error
	Finish(ctx context.Context, attempt, fence int64, v task.Verdict, evidence json.RawMessage) error
	MarkClosed(ctx context.Context, attempt int64) error
}

// Noter stores what is seen on the way.
type Noter interface {
	SeePod(ctx context.Context, attempt int64, p task.KnownPod) error
	MarkWaiting(ctx context.Context, attempt, fence int64, why task.WaitReason, note string, again time.Duration) error
}

// Sight shows what the cluster has of an Attempt.
type Sight interface {
	Observe(ctx context.Context, a task.Attempt, live bool) (task.Seen, error)
	DryRun(ctx context.Context, t task.Task, a task.Attempt) error
}

// Hand changes what the cluster has of an Attempt.
type Hand interface {
	Halt(ctx context.Context, t task.Task, a task.Attempt, since time.Duration) error
	Close(ctx context.Context, a task.Attempt) error
}

// Config is what a Reconciler needs.
type Config struct {
	Reader  Reader
	Ender   Ender
	Noter   Noter
	Ledger  Ledger
	Sight   Sight
	Hand    Hand
	Remains Remains
	Tails   Tails
	// ClusterFence reads the largest fence in the cluster.
	ClusterFence func(context.Context) (int64, error)
	// Wakes names Attempts that were stopped, reported or ended.
	Wakes <-chan int64
	// Doubts says that the database may have been restored: the fences are to be compared again.
	Doubts <-chan struct{}
	// Reopened says that a part of the cluster is seen again in which nobody could look: the same.
	Reopened <-chan struct{}
	// Synced returns when the cache of the cluster is filled.
	Synced func(context.Context) error
	Log    *slog.Logger

	Workers    int           // Attempts looked at side by side; default 64
	Resync     time.Duration // how often every open Attempt is looked at; default 15 s
	OthersWait time.Duration // how much longer than its claimer we wait with an Attempt; default 3 s
	SweepEvery time.Duration // default 60 s
	SweepAge   time.Duration // how old a trace must be; default 60 s
}

// Bounds of a Reconciler.
const (
	defaultWorkers    = 64 // a look mostly waits for the cluster: 40 cancels at once are told to it at once
	defaultResync     = 15 * time.Second
	defaultOthersWait = 3 * time.Second
	defaultSweepEvery = time.Minute
	defaultSweepAge   = time.Minute

	firstLook     = 2500 * time.Millisecond // after a claim: a Job without a pod is asked why
	troubleAgain  = 2 * time.Second         // after a call that was not answered
	staleAgain    = 100 * time.Millisecond  // after a write that came too late
	looksASecond  = 200                     // the pace of a resync of very many Attempts
	leavesWithin  = 5 * time.Second         // how long what was closed may take to leave the cache
	storeTime     = 10 * time.Second
	evidenceLimit = 1024 // of each text in it
)

// Reconciler looks at open Attempts. Make it with New.
type Reconciler struct {
	cfg     Config
	keys    *loop.Keyed[int64]
	ready   chan struct{}
	trouble loop.Complaints
	taken   *taken
	doubts  atomic.Int64 // how often the database may have been restored, the start included
	listed  int64        // of those, after how many a sweep has listed; the sweep's own

	mu   sync.Mutex
	mine map[int64]bool      // claimed here and not closed yet
	told map[int64]bool      // to be read from the database even if the cache shows nothing
	done map[int64]time.Time // closed here just now: their objects are still leaving the cache

	tails     map[int64]*following
	followers sync.WaitGroup
}

// New makes a Reconciler. It starts nothing: see Run.
func New(cfg Config) *Reconciler {
	defaults(&cfg)
	r := &Reconciler{
		cfg: cfg, ready: make(chan struct{}), taken: newTaken(), trouble: loop.Complaints{Log: cfg.Log, Shared: task.ErrUnavailable},
		mine: map[int64]bool{}, told: map[int64]bool{}, done: map[int64]time.Time{}, tails: map[int64]*following{},
	}
	r.keys = loop.NewKeyed(cfg.Workers, r.look)
	return r
}

func defaults(cfg *Config) {
	if cfg.Workers <= 0 {
		cfg.Workers = defaultWorkers
	}
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{
		{&cfg.Resync, defaultResync},
		{&cfg.OthersWait, defaultOthersWait},
		{&cfg.SweepEvery, defaultSweepEvery},
		{&cfg.SweepAge, defaultSweepAge},
	} {
		if *d.value <= 0 {
			*d.value = d.otherwise
		}
	}
}

// Ready is closed when the fences of the database are known to lie past those in the cluster: claims may be made.
func (r *Reconciler) Ready() <-chan struct{} { return r.ready }

// Run looks at Attempts until ctx is done and the last look has ended.
func (r *Reconciler) Run(ctx context.Context) error {
	err := r.cfg.Synced(ctx)
	if ctx.Err() != nil {
		return nil // told to end before anything began
	}
	if err != nil {
		return err
	}
	r.doubts.Add(1) // another replica may have been the one that found the database restored
	r.raiseFence(ctx)
	if ctx.Err() != nil {
		return nil // the same
	}
	close(r.ready)
	defer r.followers.Wait()
	return loop.Together(ctx, r.keys.Run, r.listen, r.doubt,
		func(ctx context.Context) error {
			loop.Every(ctx, r.cfg.Resync, nil, r.resync)
			return nil
		},
		func(ctx context.Context) error {
			loop.Every(ctx, r.cfg.SweepEvery, nil, r.sweep)
			return nil
		})
}

// Look is told by the cluster's watch that something of an Attempt changed.
func (r *Reconciler) Look(attempt int64) {
	if r.isMine(attempt) {
		r.keys.Add(attempt)
		return
	}
	r.keys.AddAfter(attempt, loop.Jitter(r.cfg.OthersWait, 0.1))
}

// Follow is told by dispatch that an Attempt was claimed here, or that one turned out to have ended.
func (r *Reconciler) Follow(attempt int64) {
	r.mu.Lock()
	r.mine[attempt] = true
	delete(r.done, attempt)
	r.mu.Unlock()
	r.keys.AddAfter(attempt, firstLook)
}

// listen takes the store's wakes.
func (r *Reconciler) listen(ctx context.Context) error {
	for {
		select {
		case attempt := <-r.cfg.Wakes:
			r.Look(attempt)
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Reconciler) isMine(attempt int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mine[attempt]
}

// tell makes the next look at an Attempt read the database, whatever the cache shows.
func (r *Reconciler) tell(attempt int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told[attempt] = true
}

// wanted reports whether the database has to be asked about an Attempt: it is ours, we were told to, or the cluster still
// shows something of it. An Attempt that was closed a moment ago, here or by another replica, costs nothing.
func (r *Reconciler) wanted(attempt int64) bool {
	r.mu.Lock()
	known := r.mine[attempt] || r.told[attempt]
	leaving := time.Since(r.done[attempt]) < leavesWithin
	delete(r.told, attempt)
	r.mu.Unlock()
	return known || !leaving && r.cfg.Remains.Shows(attempt)
}

// forget ends our interest in an Attempt.
func (r *Reconciler) forget(attempt int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mine, attempt)
	delete(r.told, attempt)
	if f := r.tails[attempt]; f != nil { // another replica has closed it
		f.stop()
		delete(r.tails, attempt)
	}
	r.done[attempt] = time.Now()
}

// tidyUp forgets what was closed long enough ago.
func (r *Reconciler) tidyUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.done, func(_ int64, at time.Time) bool { return time.Since(at) >= leavesWithin })
}

// resync looks at every open Attempt: what no event told is found here.
func (r *Reconciler) resync(ctx context.Context) {
	r.tidyUp()
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	open, err := r.cfg.Reader.OpenAttempts(ctx)
	if err != nil {
		r.trouble.Warn(ctx, "list open attempts", err)
		return
	}
	// Spread over some time, so that very many are not looked at in the same instant.
	over := max(time.Duration(len(open))*time.Second/looksASecond, time.Second)
	for _, attempt := range open {
		r.tell(attempt)
		wait := rand.N(over) //nolint:gosec // nothing depends on it being unguessable
		if !r.isMine(attempt) {
			wait += r.cfg.OthersWait
		}
		r.keys.AddAfter(attempt, wait)
	}
}
