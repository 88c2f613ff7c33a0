package app

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/inline"
	"slipway.dev/slipway/controlplane/internal/loop"
	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/task"
)

// recorder is told of all work, wherever it runs, and sees overlaps and broken orders.
type recorder struct {
	mu      sync.Mutex
	inLane  map[string]string
	last    map[string]int
	ran     map[string]int
	by      map[task.Executor]int
	wrong   []string
	refused bool            // no Job can be launched
	made    map[string]bool // Jobs, by name
}

func (r *recorder) work(by task.Executor, params json.RawMessage) error {
	var p struct {
		Lane string
		Seq  int
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return err
	}
	name := fmt.Sprint(p.Lane, " ", p.Seq)
	r.mu.Lock()
	if other := r.inLane[p.Lane]; other != "" {
		r.wrong = append(r.wrong, name+" overlaps "+other)
	}
	if p.Seq != r.last[p.Lane]+1 {
		r.wrong = append(r.wrong, fmt.Sprintf("%s came after %d", name, r.last[p.Lane]))
	}
	r.inLane[p.Lane], r.last[p.Lane] = name, p.Seq
	r.ran[name]++
	r.by[by]++
	r.mu.Unlock()
	time.Sleep(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inLane[p.Lane] = ""
	return nil
}

// shortJobs is a cluster whose Jobs start at once and do the recorder's work.
type shortJobs struct {
	noCluster
	*recorder
	store *store.Store
	mu    sync.Mutex
	ended map[int64]bool
	jobs  sync.WaitGroup
}

func (s *shortJobs) down() error {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	if s.refused {
		return s.refuse()
	}
	return nil
}

func (s *shortJobs) DryRun(context.Context, task.Task, task.Attempt) error   { return s.down() }
func (s *shortJobs) Rehearse(context.Context, task.Task, task.Attempt) error { return s.down() }

func (s *shortJobs) Launch(ctx context.Context, t task.Task, a task.Attempt) (name, uid string, err error) {
	if err := s.down(); err != nil {
		return "", "", err
	}
	name = fmt.Sprint("job-", a.ID)
	s.recorder.mu.Lock()
	there := s.made[name]
	s.made[name] = true
	s.recorder.mu.Unlock()
	if there {
		return name, "uid-" + name, nil // adopted
	}
	s.jobs.Go(func() {
		ctx := context.WithoutCancel(ctx)
		if _, _, err := s.store.Start(ctx, store.StartRequest{Attempt: a.ID, Fence: a.Fence, PodUID: name, PodName: name, Node: "n"}); err != nil {
			return // it has been started inline
		}
		end := task.Report{Outcome: task.OutcomeSucceeded}
		if err := s.work(task.ExecutorJob, t.Params); err != nil {
			end.Outcome = task.OutcomeFailed
		}
		s.mu.Lock()
		s.ended[a.ID] = true
		s.mu.Unlock()
		_ = s.store.Report(ctx, store.ReportRequest{Attempt: a.ID, Fence: a.Fence, PodUID: name, Report: end}) // the pod says the same
	})
	return name, "uid-" + name, nil
}

func (s *shortJobs) Observe(_ context.Context, a task.Attempt, _ bool) (task.Seen, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := task.Seen{Live: true, Job: &task.SeenJob{Name: a.JobName, UID: a.JobUID, Ended: s.ended[a.ID]}}
	if a.PodUID == "" {
		return seen, nil
	}
	pod := task.SeenPod{UID: a.PodUID, Name: a.PodName, Node: "n", Phase: "Running", Containers: []task.SeenContainer{{Main: true, Running: true}}}
	if s.ended[a.ID] {
		pod.Phase, pod.Containers[0].Running = "Succeeded", false
		pod.Containers[0].Terminated = &task.Terminated{Ran: true, Reason: "Completed"}
	}
	seen.Pods = []task.SeenPod{pod}
	return seen, nil
}

// replica runs the loops of a control plane over a played cluster for the length of the test.
func replica(t *testing.T, url, name string, rec *recorder) *store.Store {
	t.Helper()
	db := pgtest.Open(t, store.Config{URL: url, Replica: name, BeatEvery: 10 * time.Millisecond})
	jobs := &shortJobs{recorder: rec, store: db, ended: map[int64]bool{}}
	p := plane{
		config: Config{Replica: name, Launches: 32, Poll: 50 * time.Millisecond, OthersWait: time.Second, InlineAfter: 200 * time.Millisecond},
		log:    quiet, store: db, cluster: jobs, counts: newCounts(),
	}
	p.pool = inline.New(inline.Config{
		Books: inlineBooks{db, silence{}}, Replica: name, Places: 8, Log: quiet,
		Handlers: map[string]handler.Handler{"volume.resize": func(_ context.Context, t handler.Task) (any, error) {
			return nil, rec.work(task.ExecutorInline, t.Params)
		}},
	})
	all := p.loops()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- loop.Together(ctx, db.Run, p.pool.Run, all.reconciler.Run, all.dispatcher.Run, all.settler.Run)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		jobs.jobs.Wait()
	})
	return db
}

// load queues tasks of a strict lane each that may run inline, in order.
func load(t *testing.T, db *store.Store, lanes, each int) {
	t.Helper()
	spec := task.DefaultSpec()
	spec.Idempotent, spec.RunDeadline, spec.Inline, spec.Retry.Attempts = true, 60, true, 4
	for seq := 1; seq <= each; seq++ {
		var items []store.Item
		for l := range lanes {
			lane := fmt.Sprintf("volume:ns/data-%d", l)
			items = append(items, store.Item{Task: task.Task{
				Kind: "volume.resize", Namespace: "ns", Lane: lane, Mode: task.Strict, Queue: "default", Class: task.Normal,
				Params: json.RawMessage(fmt.Sprintf(`{"lane":%q,"seq":%d}`, lane, seq)), Spec: spec,
			}})
		}
		if _, err := db.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: items}); err != nil {
			t.Fatal(err)
		}
	}
}

func newRecorder() *recorder {
	return &recorder{inLane: map[string]string{}, last: map[string]int{}, ran: map[string]int{}, by: map[task.Executor]int{}, made: map[string]bool{}}
}

// emptied waits until nothing is queued or running, and checks that all ran once, in order, and succeeded.
func (r *recorder) emptied(t *testing.T, db *store.Store, tasks int) {
	t.Helper()
	const stuck = 2 * time.Minute
	for since, last := time.Now(), 0; ; time.Sleep(20 * time.Millisecond) {
		queues, err := db.Queues(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		open := 0
		for _, q := range queues {
			open += q.Queued + q.Running
		}
		if open == 0 {
			break
		}
		if open != last {
			since, last = time.Now(), open
		}
		if time.Since(since) > stuck {
			t.Fatalf("%d are open, and none has ended for %v", open, stuck)
		}
	}
	var done []task.Task
	for cursor := ""; ; {
		page, err := db.Tasks(t.Context(), store.ListFilter{State: task.Succeeded, Limit: 200, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, page.Tasks...)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.wrong {
		t.Error(w)
	}
	doubled := 0
	for _, n := range r.ran {
		doubled += n - 1
	}
	retried := 0
	for _, x := range done {
		retried += x.Attempts - 1
	}
	if len(done) != tasks || len(r.ran) != tasks || doubled != 0 || retried != 0 {
		t.Errorf("%d of %d succeeded, %d ran, %d doubled, %d tried again", len(done), tasks, len(r.ran), doubled, retried)
	}
}

// rounds is how often the test below runs; EXECUTOR_ROUNDS makes it more.
func rounds() int {
	n, err := strconv.Atoi(os.Getenv("EXECUTOR_ROUNDS"))
	if err != nil {
		return 1
	}
	return n
}

// switching runs a load on two replicas while its kind is switched to and fro, and tells how much ran where.
func switching(t *testing.T) map[task.Executor]int {
	rec, url := newRecorder(), pgtest.URL(t)
	db := replica(t, url, "a", rec)
	replica(t, url, "b", rec)
	const lanes, each = 40, 15
	load(t, db, lanes, each)
	switches := 0
	for began := time.Now(); time.Since(began) < 2*time.Second; switches++ {
		to := []store.KindSwitch{
			{Executor: "inline", Percent: 25},
			{Executor: "off", Percent: 50},
			{Executor: "job"},
			{Executor: "inline"},
			{},
			{Executor: "off"},
			{Executor: "inline", Percent: 60},
		}[switches%7]
		to.Kind, to.Actor = "volume.resize", "ada"
		if err := db.SwitchKind(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Millisecond)
	}
	if err := db.SwitchKind(t.Context(), store.KindSwitch{Kind: "volume.resize", Executor: "inline", Percent: 25, Actor: "ada"}); err != nil {
		t.Fatal(err)
	}
	rec.emptied(t, db, lanes*each)
	t.Logf("%d switches: %d ran as jobs, %d inline", switches, rec.by[task.ExecutorJob], rec.by[task.ExecutorInline])
	return rec.by
}

func TestSwitchingAKindUnderLoadLosesAndDoublesNothing(t *testing.T) {
	total := map[task.Executor]int{}
	for range rounds() {
		t.Run("round", func(t *testing.T) {
			for by, n := range switching(t) {
				total[by] += n
			}
		})
	}
	if total[task.ExecutorJob] == 0 || total[task.ExecutorInline] == 0 {
		t.Errorf("ran %v: one of the two executors was never met", total)
	}
}

func TestWhileTheClusterTakesNoJobsWorkGoesOnInlineAndComesBack(t *testing.T) {
	rec, url := newRecorder(), pgtest.URL(t)
	db := replica(t, url, "a", rec)
	other := replica(t, url, "b", rec)
	const lanes, each = 30, 6
	load(t, db, lanes, each)
	refuse := func(is bool) {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.refused = is
	}
	refuse(true)
	inlineRuns := func() int {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		return rec.by[task.ExecutorInline]
	}
	for began := time.Now(); inlineRuns() < 20; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("%d ran inline after %v", inlineRuns(), time.Since(began))
		}
	}
	refuse(false)
	rec.emptied(t, other, lanes*each)
	jobs := rec.by[task.ExecutorJob]
	t.Logf("%d ran inline, %d as jobs", inlineRuns(), jobs)
	if jobs == 0 {
		t.Error("nothing ran as a job")
	}
}
