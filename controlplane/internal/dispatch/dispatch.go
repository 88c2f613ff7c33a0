// Package dispatch turns queued Tasks into Jobs: it claims what may run, creates the Job of each claim, and records what
// came of it. What runs inline goes to the places of this process instead. Intent comes first: an Attempt is committed
// before its Job is created, so whatever is lost on the way is
// launched again by any replica, under the same name, number and fence.
//
// A create that was refused for a passing reason, or not answered, ends nothing: the Attempt stays leased, says what it
// waits for and is tried again. Many refusals in one namespace pause that namespace's launches, many unanswered calls
// pause all of them, until one launch passes. Where that lasts, what may run inline does so, until a dry run passes.
//
// No database connection is held while the cluster is called.
//
// Allowed imports: pkg/task, controlplane/internal/loop, controlplane/internal/failpoint.
package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"slipway.dev/slipway/controlplane/internal/loop"
	"slipway.dev/slipway/pkg/task"
)

// Claim is a Task with the Attempt that was just made, or that still waits for its Job.
type Claim struct {
	Task    task.Task
	Attempt task.Attempt

	again bool // an earlier launch of it did not come to its end, or to its record
}

// Batch is what one claim brought.
type Batch struct {
	Claims []Claim
	More   bool          // another claim would bring more now
	NextIn time.Duration // when the next one may bring something, where known
}

// Queues is what dispatch takes from. Errors wrap task.ErrNotFound for a queue that does not exist.
type Queues interface {
	Queues(ctx context.Context) ([]string, error)
	Claim(ctx context.Context, queue string, limit int, here Here) (Batch, error)
	// Overdue lists Attempts that were claimed so long ago, have no recorded Job, and whose wait is over.
	Overdue(ctx context.Context, age time.Duration, limit int) ([]Claim, error)
}

// Records keeps what came of a claim. Errors wrap task.ErrStale when the Attempt has ended.
type Records interface {
	MarkLaunched(ctx context.Context, attempt, fence int64, jobName, jobUID string) error
	MarkWaiting(ctx context.Context, attempt, fence int64, why task.WaitReason, note string, again time.Duration) error
	Finish(ctx context.Context, attempt, fence int64, v task.Verdict) error
}

// Cluster creates Jobs. Refusals are *task.Refusal; another's Job of that name is task.ErrTaken.
type Cluster interface {
	Launch(ctx context.Context, t task.Task, a task.Attempt) (jobName, jobUID string, err error)
	// Left finds the Job that an earlier launch of a has created, by the pods that it has left; no name, if none.
	Left(ctx context.Context, a task.Attempt) (jobName, jobUID string, err error)
	DryRun(ctx context.Context, t task.Task, a task.Attempt) error
	// Rehearse asks by dry run about the whole of a launch.
	Rehearse(ctx context.Context, t task.Task, a task.Attempt) error
}

// Shelf is where closed Jobs stand, for people to look at, until a quota needs their room.
type Shelf interface {
	// MakeRoom deletes up to n of them, the oldest first, and tells how many.
	MakeRoom(ctx context.Context, namespace string, n int) (int, error)
}

// Config is what a Dispatcher needs.
type Config struct {
	Queues  Queues
	Records Records
	Cluster Cluster
	Shelf   Shelf
	Inline  Inline // nil: nothing runs in this process
	Replica string // who we are: our own claims are relaunched first
	// Wakes names queues in which something may be claimable now.
	Wakes <-chan string
	// After is closed when claims may be made; nil: at once.
	After <-chan struct{}
	// Follow hears of each Attempt claimed here, before its Job exists, and again when one turns out to have ended.
	Follow func(attempt int64)
	Log    *slog.Logger

	Poll       time.Duration // how often a queue is claimed from without a wake; default 1 s
	Concurrent int           // launches at the same time; default 32
	// InlineAfter is how long no Job could be launched before what may run inline does; default 30 s.
	InlineAfter time.Duration
	// NoFallback says that nothing which runs in this process could be a Job: then that no Job can be launched changes nothing.
	NoFallback bool
}

// Bounds of a Dispatcher.
const (
	defaultPoll       = time.Second
	defaultConcurrent = 32
	defaultAfter      = 30 * time.Second
	claimWorkers      = 4
	batchSize         = 20
	overdueAge        = 2 * time.Second  // how long a claim is left to the call that is under way
	othersAge         = 3 * time.Second  // how much longer a claim is left to the replica that made it
	queuesEvery       = 30 * time.Second // how often new queues are looked for
	overdueEvery      = time.Second
	breakerEvery      = time.Second
	overdueBatch      = 100
)

// Dispatcher claims and launches. Make it with New.
type Dispatcher struct {
	cfg     Config
	queues  *loop.Keyed[string]
	slots   chan struct{} // one for each launch that may be under way
	gate    *gate
	checks  *checks
	trouble loop.Complaints
	mu      sync.Mutex
	busy    map[int64]bool      // launches under way here
	others  map[int64]time.Time // overdue Attempts of other replicas, since when they are known here
	refused map[int64]int       // how often an Attempt was refused in a row
	working sync.WaitGroup
	told    atomic.Bool // that the breaker is open
}

// New makes a Dispatcher. It starts nothing: see Run.
func New(cfg Config) *Dispatcher {
	if cfg.Poll <= 0 {
		cfg.Poll = defaultPoll
	}
	if cfg.Concurrent <= 0 {
		cfg.Concurrent = defaultConcurrent
	}
	if cfg.InlineAfter <= 0 {
		cfg.InlineAfter = defaultAfter
	}
	if cfg.Follow == nil {
		cfg.Follow = func(int64) {}
	}
	d := &Dispatcher{
		cfg: cfg, slots: make(chan struct{}, cfg.Concurrent), gate: newGate(cfg.Log), checks: newChecks(),
		trouble: loop.Complaints{Log: cfg.Log, Shared: task.ErrUnavailable},
		busy:    map[int64]bool{}, others: map[int64]time.Time{}, refused: map[int64]int{},
	}
	d.queues = loop.NewKeyed(claimWorkers, d.claim)
	return d
}

// Run claims and launches until ctx is done and the last launch under way has been recorded.
func (d *Dispatcher) Run(ctx context.Context) error {
	if d.cfg.After != nil {
		select {
		case <-d.cfg.After:
		case <-ctx.Done():
			return nil
		}
	}
	defer d.working.Wait()
	return loop.Together(ctx, d.queues.Run, d.listen,
		func(ctx context.Context) error {
			loop.Every(ctx, queuesEvery, nil, d.findQueues)
			return nil
		},
		func(ctx context.Context) error {
			loop.Every(ctx, overdueEvery, nil, d.relaunch)
			return nil
		},
		func(ctx context.Context) error {
			loop.Every(ctx, breakerEvery, nil, d.breaker)
			return nil
		})
}

func (d *Dispatcher) listen(ctx context.Context) error {
	for {
		select {
		case queue := <-d.cfg.Wakes:
			d.queues.Add(queue)
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *Dispatcher) findQueues(ctx context.Context) {
	names, err := d.cfg.Queues.Queues(ctx)
	if err != nil {
		d.trouble.Warn(ctx, "list the queues", err)
		return
	}
	for _, name := range names {
		d.queues.Add(name)
	}
}

// claim takes a batch from a queue and launches it; the answer is when to claim again without a wake.
func (d *Dispatcher) claim(ctx context.Context, queue string) time.Duration {
	here := d.here(d.Breaker())
	limit, wait := d.gate.room(time.Now())
	if here.Only {
		limit, wait = here.Room, 0
	}
	if wait > 0 {
		return min(wait, d.cfg.Poll)
	}
	n := d.reserve(ctx, min(limit, batchSize))
	if n == 0 {
		return d.cfg.Poll
	}
	batch, err := d.cfg.Queues.Claim(ctx, queue, n, here)
	if err != nil {
		d.release(n)
		if errors.Is(err, task.ErrNotFound) {
			return 0
		}
		d.trouble.Warn(ctx, "claim from queue "+queue, err)
		return d.cfg.Poll
	}
	d.release(max(n-len(batch.Claims), 0))
	for _, c := range batch.Claims {
		d.start(ctx, c)
	}
	switch {
	case batch.More:
		d.queues.Add(queue) // at work now, so it runs once more
		return 0
	case batch.NextIn > 0:
		return min(batch.NextIn, d.cfg.Poll)
	}
	return d.cfg.Poll
}

// reserve takes up to n slots, waiting for the first; 0 means that ctx is done.
func (d *Dispatcher) reserve(ctx context.Context, n int) int {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for taken := 1; taken < n; taken++ {
		select {
		case d.slots <- struct{}{}:
		default:
			return taken
		}
	}
	return n
}

func (d *Dispatcher) release(n int) {
	for range n {
		<-d.slots
	}
}

// start launches c in a slot that the caller has reserved.
func (d *Dispatcher) start(ctx context.Context, c Claim) {
	d.mu.Lock()
	twice := d.busy[c.Attempt.ID]
	d.busy[c.Attempt.ID] = true
	d.mu.Unlock()
	if twice || c.Attempt.ID == 0 { // a composite Task is claimed without an Attempt
		d.release(1)
		return
	}
	d.cfg.Follow(c.Attempt.ID)
	d.working.Go(func() {
		defer d.release(1)
		defer func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.busy, c.Attempt.ID)
		}()
		d.launch(ctx, c)
	})
}

// relaunch looks for claims whose launch did not come to its end.
func (d *Dispatcher) relaunch(ctx context.Context) {
	overdue, err := d.cfg.Queues.Overdue(ctx, overdueAge, overdueBatch)
	if err != nil {
		d.trouble.Warn(ctx, "list overdue attempts", err)
		return
	}
	for _, c := range d.due(overdue, time.Now()) {
		if d.reserve(ctx, 1) == 0 {
			return
		}
		c.again = true
		d.start(ctx, c)
	}
}

// due leaves out what is under way here, and what another replica has just begun to be late with.
func (d *Dispatcher) due(overdue []Claim, now time.Time) []Claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	var due []Claim
	known := make(map[int64]time.Time, len(overdue))
	for _, c := range overdue {
		id := c.Attempt.ID
		if d.busy[id] {
			continue
		}
		if c.Attempt.Replica != d.cfg.Replica {
			since, seen := d.others[id]
			if !seen {
				since = now
			}
			known[id] = since
			if now.Sub(since) < othersAge {
				continue
			}
		}
		due = append(due, c)
	}
	d.others = known
	return due
}
