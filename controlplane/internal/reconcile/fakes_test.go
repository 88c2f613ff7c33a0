package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the database and the cluster of a test, in memory. Its clock is the bubble's.
type world struct {
	mu     sync.Mutex
	wakes  chan int64
	doubts chan struct{}

	tasks    map[int64]task.Task
	attempts map[int64]*task.Attempt
	verdicts map[int64]task.Verdict
	evidence map[int64]json.RawMessage
	reads    map[int64]int
	waits    map[int64]task.WaitReason
	dbDown   bool
	stale    int // so many of the next finishes come too late

	seen     map[int64]task.Seen // what the server has
	behind   map[int64]task.Seen // what the cache still shows instead, where set
	lives    int
	apiDown  bool
	refusal  *task.Refusal
	dryRuns  int
	halts    map[int64][]time.Duration
	closes   map[int64]int
	closeErr error
	onHalt   func(id int64)
	onDryRun func()

	logs    map[int64]string // what the kubelet has
	logEnds chan struct{}    // closed when a followed log ends
	tailed  []bool           // the reads of logs, and which of them followed
	kept    map[int64]string

	traces                []task.Trace
	removed               []task.Trace
	fenceHere, fenceThere int64
	lineage               string
	slow                  time.Duration // what a halt takes
	meanwhile             func()        // happens once, while the fences of the cluster are read
	asked                 func()        // happens once, while the database tells what it knows
}

func newWorld() *world {
	return &world{
		wakes: make(chan int64), doubts: make(chan struct{}), tasks: map[int64]task.Task{}, attempts: map[int64]*task.Attempt{}, verdicts: map[int64]task.Verdict{},
		evidence: map[int64]json.RawMessage{}, reads: map[int64]int{}, waits: map[int64]task.WaitReason{}, seen: map[int64]task.Seen{},
		behind: map[int64]task.Seen{}, halts: map[int64][]time.Duration{}, closes: map[int64]int{}, fenceHere: 1000,
		logs: map[int64]string{}, kept: map[int64]string{},
	}
}

// add makes an Attempt with a Job that has no pod yet.
func (w *world) add(id int64, state task.AttemptState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks[id] = task.Task{ID: fmt.Sprint("task-", id), Spec: task.DefaultSpec()}
	a := &task.Attempt{ID: id, Fence: 100 + id, Number: 1, State: state, Namespace: "shop", ClaimedAt: time.Now()}
	if state != task.Leased {
		a.LaunchedAt, a.JobName = time.Now(), "job"
	}
	if state == task.Started {
		a.StartedAt, a.PodUID = time.Now(), "pod"
	}
	w.attempts[id] = a
	w.seen[id] = task.Seen{Job: &task.SeenJob{Name: "job", UID: "uid"}}
}

func (w *world) OpenAttempt(_ context.Context, id int64) (task.Task, task.Attempt, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads[id]++
	if w.dbDown {
		return task.Task{}, task.Attempt{}, time.Time{}, task.ErrUnavailable
	}
	a := w.attempts[id]
	if a == nil {
		return task.Task{}, task.Attempt{}, time.Time{}, fmt.Errorf("attempt %d: %w", id, task.ErrNotFound)
	}
	return w.tasks[id], *a, time.Now(), nil
}

func (w *world) OpenAttempts(context.Context) ([]int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dbDown {
		return nil, task.ErrUnavailable
	}
	var open []int64
	for id, a := range w.attempts {
		if a.ClosedAt.IsZero() {
			open = append(open, id)
		}
	}
	return open, nil
}

func (w *world) Stop(_ context.Context, id, _ int64, why task.StopReason, note string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.attempts[id]; a.Stop == task.StopNone {
		a.Stop, a.StopNote, a.StopAt = why, note, time.Now()
	}
	return nil
}

func (w *world) Finish(_ context.Context, id, _ int64, v task.Verdict, evidence json.RawMessage) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.attempts[id]
	if w.stale > 0 || a.State == task.Finished {
		w.stale--
		return task.ErrStale
	}
	a.State, a.FinishedAt = task.Finished, time.Now()
	w.verdicts[id], w.evidence[id] = v, evidence
	return nil
}

func (w *world) MarkClosed(_ context.Context, id int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts[id].ClosedAt = time.Now()
	return nil
}

func (w *world) SeePod(_ context.Context, id int64, p task.KnownPod) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.attempts[id]
	for i := range a.Pods {
		if a.Pods[i].UID == p.UID {
			a.Pods[i].Ended = a.Pods[i].Ended || p.Ended
			return nil
		}
	}
	a.Pods = append(a.Pods[:len(a.Pods):len(a.Pods)], p)
	return nil
}

func (w *world) MarkWaiting(_ context.Context, id, _ int64, why task.WaitReason, note string, _ time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits[id] = why
	w.attempts[id].Wait, w.attempts[id].WaitNote = why, note
	return nil
}

func (w *world) Observe(_ context.Context, a task.Attempt, live bool) (task.Seen, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if live && w.apiDown {
		return task.Seen{}, task.ErrUnavailable
	}
	s := w.seen[a.ID]
	if old, lags := w.behind[a.ID]; !live && lags {
		s = old
	}
	if live {
		w.lives++
	}
	s.Live = live
	return s, nil
}

func (w *world) DryRun(context.Context, task.Task, task.Attempt) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dryRuns++
	if w.onDryRun != nil {
		w.onDryRun()
	}
	if w.refusal != nil {
		return w.refusal
	}
	return nil
}

func (w *world) Halt(_ context.Context, _ task.Task, a task.Attempt, since time.Duration) error {
	time.Sleep(w.slow)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.halts[a.ID] = append(w.halts[a.ID], since)
	if w.onHalt != nil {
		w.onHalt(a.ID)
	}
	return nil
}

func (w *world) Close(_ context.Context, a task.Attempt) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closes[a.ID]++
	if w.closeErr != nil {
		return w.closeErr
	}
	w.seen[a.ID] = task.Seen{}
	return nil
}

func (w *world) Tail(ctx context.Context, a task.Attempt, follow bool) ([]byte, error) {
	w.mu.Lock()
	w.tailed = append(w.tailed, follow)
	log, ends := w.logs[a.ID], w.logEnds
	w.mu.Unlock()
	if follow && ends != nil {
		select {
		case <-ends:
		case <-ctx.Done():
		}
	}
	return []byte(log), nil
}

func (w *world) KeepLog(_ context.Context, attempt int64, tail []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept[attempt] = string(tail)
	return nil
}

func (w *world) Shows(id int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.seen[id]
	return s.Job != nil || len(s.Pods) > 0
}

func (w *world) Traces() []task.Trace {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.traces
}

func (w *world) Remove(_ context.Context, t task.Trace) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removed = append(w.removed, t)
	return nil
}

func (w *world) Known(_ context.Context, ids []int64) (map[int64]Standing, error) {
	w.mu.Lock()
	asked := w.asked
	w.asked = nil
	w.mu.Unlock()
	if asked != nil {
		asked()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := map[int64]Standing{}
	for _, id := range ids {
		if a := w.attempts[id]; a != nil {
			known[id] = Standing{Fence: a.Fence, Closed: !a.ClosedAt.IsZero()}
		}
	}
	return known, nil
}

func (w *world) Lineage(context.Context) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dbDown {
		return "", task.ErrUnavailable
	}
	return w.lineage, nil
}

func (w *world) RaiseFence(_ context.Context, lineage string, above int64) (was int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dbDown || lineage != w.lineage {
		return 0, task.ErrUnavailable
	}
	was = w.fenceHere
	w.fenceHere = max(was, above)
	return was, nil
}

func (w *world) clusterFence(context.Context) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fence := w.fenceThere
	if w.meanwhile != nil {
		w.meanwhile()
		w.meanwhile = nil
	}
	return fence, nil
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// see lets everything come to rest and reads something of the world.
func (w *world) see(read func()) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	read()
}

// reconciling runs a Reconciler over w in a bubble of time.
func reconciling(t *testing.T, prepare func(w *world), f func(t *testing.T, w *world, r *Reconciler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		if prepare != nil {
			prepare(w)
		}
		r := New(Config{
			Reader: w, Ender: w, Noter: w, Ledger: w, Sight: w, Hand: w, Remains: w, Tails: w, ClusterFence: w.clusterFence,
			Wakes: w.wakes, Doubts: w.doubts, Synced: func(context.Context) error { return nil }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		f(t, w, r)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func podIn(phase string, c task.SeenContainer) task.SeenPod {
	c.Name, c.Main = "main", true
	return task.SeenPod{UID: "pod", Name: "p", Node: "node", Created: time.Now(), Phase: phase, Containers: []task.SeenContainer{c}}
}

func ended(code int) task.SeenPod {
	phase := "Succeeded"
	if code != 0 {
		phase = "Failed"
	}
	return podIn(phase, task.SeenContainer{Terminated: &task.Terminated{ExitCode: code}})
}

func running() task.SeenPod { return podIn("Running", task.SeenContainer{Running: true}) }
