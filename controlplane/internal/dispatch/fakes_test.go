package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the database and the cluster of a test, in memory.
type world struct {
	mu      sync.Mutex
	wakes   chan string
	queued  map[string][]Claim
	overdue []Claim
	claims  int // calls of Claim
	next    int64

	launchErr func(c task.Attempt) error // nil: every launch passes
	dryErr    func(c task.Attempt) error
	recordErr func() error
	takes     time.Duration // how long a launch takes
	left      string        // the Job whose pod is there

	launches map[int64]int
	dryRuns  int

	rehearsals int
	atOnce     int
	mostOnce   int
	recorded   map[int64]string
	waits      map[int64][]wait
	finished   map[int64]task.Verdict
	followed   map[int64]int
	inline     map[int64]int
	closed     map[string]int // Jobs that only stand there, by namespace
	log        strings.Builder
}

// Write takes the log.
func (w *world) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(line)
}

// logged counts the lines that hold text.
func (w *world) logged(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.log.String(), text)
}

type wait struct {
	why   task.WaitReason
	note  string
	again time.Duration
}

func newWorld() *world {
	return &world{
		wakes: make(chan string), queued: map[string][]Claim{}, launches: map[int64]int{}, recorded: map[int64]string{},
		waits: map[int64][]wait{}, finished: map[int64]task.Verdict{}, followed: map[int64]int{}, closed: map[string]int{}, inline: map[int64]int{},
	}
}

// add queues n Tasks of a namespace.
func (w *world) add(queue, namespace string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range n {
		w.next++
		w.queued[queue] = append(w.queued[queue], claimOf(w.next, namespace))
	}
}

func claimOf(id int64, namespace string) Claim {
	return Claim{
		Task:    task.Task{ID: fmt.Sprint("task-", id), Kind: "command.run", Namespace: namespace, Spec: task.DefaultSpec()},
		Attempt: task.Attempt{ID: id, Fence: 100 + id, Namespace: namespace, Kind: "command.run", Replica: "us"},
	}
}

func (w *world) Queues(context.Context) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for name := range w.queued {
		names = append(names, name)
	}
	return names, nil
}

// Claim gives what runs inline with inline claims, as the store does, and the rest with the others.
func (w *world) Claim(_ context.Context, queue string, limit int, here Here) (Batch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims++
	waiting, known := w.queued[queue]
	if !known {
		return Batch{}, fmt.Errorf("queue %s: %w", queue, task.ErrNotFound)
	}
	if here.Only {
		return w.claimInline(queue, min(limit, here.Room)), nil
	}
	n := min(limit, len(waiting))
	w.queued[queue] = waiting[n:]
	return Batch{Claims: waiting[:n], More: len(waiting) > n}, nil
}

// claimInline takes what may run inline, which its name says here.
func (w *world) claimInline(queue string, n int) (b Batch) {
	w.queued[queue] = slices.DeleteFunc(slices.Clone(w.queued[queue]), func(c Claim) bool {
		if c.Task.Name != "inline" || len(b.Claims) >= n {
			return false
		}
		c.Attempt.Executor = task.ExecutorInline
		b.Claims = append(b.Claims, c)
		return true
	})
	return b
}

// places are the inline places of a test: what is taken has ended at once.
type places struct {
	*world
	room int
}

func (p places) Kinds() []string { return []string{"command.run"} }

func (p places) Room() int { return p.room }

func (p places) Take(a task.Attempt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.room == 0 {
		return false
	}
	p.inline[a.ID]++
	return true
}

func (w *world) Overdue(context.Context, time.Duration, int) ([]Claim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.overdue, nil
}

func (w *world) MarkLaunched(_ context.Context, attempt, _ int64, name, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.recordErr != nil {
		if err := w.recordErr(); err != nil {
			return err
		}
	}
	w.recorded[attempt] = name
	return nil
}

func (w *world) MarkWaiting(_ context.Context, attempt, _ int64, why task.WaitReason, note string, again time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits[attempt] = append(w.waits[attempt], wait{why, note, again})
	return nil
}

func (w *world) Finish(_ context.Context, attempt, _ int64, v task.Verdict) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished[attempt] = v
	return nil
}

func (w *world) Launch(ctx context.Context, _ task.Task, a task.Attempt) (name, uid string, err error) {
	w.mu.Lock()
	w.launches[a.ID]++
	w.atOnce++
	w.mostOnce = max(w.mostOnce, w.atOnce)
	fail, takes := w.launchErr, w.takes
	w.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.atOnce--
	if fail != nil {
		if err := fail(a); err != nil {
			return "", "", err
		}
	}
	return fmt.Sprint("job-", a.ID), "uid", nil
}

func (w *world) Left(context.Context, task.Attempt) (name, uid string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left, "uid", nil
}

func (w *world) DryRun(_ context.Context, _ task.Task, a task.Attempt) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dryRuns++
	if w.dryErr != nil {
		return w.dryErr(a)
	}
	return nil
}

func (w *world) Rehearse(_ context.Context, _ task.Task, a task.Attempt) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rehearsals++
	if w.launchErr != nil {
		return w.launchErr(a)
	}
	return nil
}

func (w *world) MakeRoom(_ context.Context, namespace string, n int) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	made := min(n, w.closed[namespace])
	w.closed[namespace] -= made
	return made, nil
}

func (w *world) follow(attempt int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.followed[attempt]++
}

// get reads something of the world when everything has come to rest.
func get[T any](w *world, read func() T) T {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return read()
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// dispatching runs a Dispatcher over w in a bubble of time.
func dispatching(t *testing.T, w func() *world, f func(t *testing.T, w *world)) {
	t.Helper()
	dispatchingInline(t, w, 4, func(t *testing.T, w *world, _ *Dispatcher) { f(t, w) })
}

// dispatchingInline is dispatching with the Dispatcher in hand and so many inline places; below 0, no handler at all.
func dispatchingInline(t *testing.T, w func() *world, room int, f func(t *testing.T, w *world, d *Dispatcher)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := w()
		var inline Inline
		if room >= 0 {
			inline = places{w, room}
		}
		d := New(Config{
			Inline: inline,
			Queues: w, Records: w, Cluster: w, Shelf: w, Replica: "us", Wakes: w.wakes, Follow: w.follow, Concurrent: 8,
			Log: slog.New(slog.NewTextHandler(w, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		f(t, w, d)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
