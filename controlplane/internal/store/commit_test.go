package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/e2e/proxy"
	"slipway.dev/slipway/pkg/task"
)

// proxied is a database with a Store that reaches it through a fault proxy.
type proxied struct {
	database
	proxy *proxy.Postgres
}

func newProxied(t *testing.T, cfg store.Config) proxied {
	t.Helper()
	return proxiedTo(t, pgtest.URL(t), cfg)
}

func proxiedTo(t *testing.T, url string, cfg store.Config) proxied {
	t.Helper()
	p, err := proxy.NewPostgres(t.Context(), proxy.PostgresOptions{Upstream: pgtest.Server(t).Address(), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	cfg.Replica = "a"
	if cfg.URL, err = p.URL(pgtest.TCP(t, url)); err != nil {
		t.Fatal(err)
	}
	return proxied{database{pgtest.Open(t, cfg), t, url}, p}
}

// again calls as the operation's own caller does: once more where the database was not to be had.
func again(call func() error) error {
	err := call()
	if errors.Is(err, store.ErrUnavailable) {
		err = call()
	}
	return err
}

// A cut of the connection before or after COMMIT loses nothing and doubles nothing. What has nobody who would ask again
// gets its answer at the first call.
func TestACutAroundCommitLosesNothingAndDoublesNothing(t *testing.T) {
	for name, op := range map[string]func(d proxied, cut func()){
		"enqueue": cutEnqueue, "enqueue of mode latest": cutEnqueueLatest, "enqueue under a key": cutEnqueueWithKey, "claim": cutClaim,
		"launch record": cutLaunched, "start": cutStart, "beat": cutBeat, "report": cutReport,
		"stop": cutStop, "finish": cutFinish, "cancel of a queued task": cutCancelQueued, "cancel of a running task": cutCancelRunning,
	} {
		for _, fault := range []proxy.PostgresFault{
			{Kind: proxy.PostgresCutBeforeCommit, Times: 1},
			{Kind: proxy.PostgresCutAfterCommit, Times: 1},
			{Kind: proxy.PostgresLateCommit, Times: 1, For: time.Second},
		} {
			t.Run(fmt.Sprintf("%s, %s", name, fault.Kind), func(t *testing.T) {
				t.Parallel()
				d := newProxied(t, store.Config{BeatEvery: 10 * time.Millisecond})
				op(d, func() { d.proxy.Set(fault) })
				if n := d.proxy.Counts()[string(fault.Kind)]; n != 1 {
					t.Fatalf("the connection was cut %d times, want once", n)
				}
			})
		}
	}
}

func (d proxied) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d proxied) want(n int, sql string) {
	d.t.Helper()
	if got := value[int](d.database, sql); got != n {
		d.t.Fatalf("%s: %d, want %d", sql, got, n)
	}
}

func cutEnqueue(d proxied, cut func()) {
	cut()
	made := d.enqueue(item("volume:ns/a"))
	if made[0].Result != store.Created || made[0].Task.State != task.Queued || made[0].Task.CreatedAt.IsZero() {
		d.t.Fatalf("answered %+v", made[0])
	}
	d.want(1, "SELECT count(*) FROM slipway.tasks")
	d.want(1, "SELECT count(*) FROM slipway.events")
}

func cutEnqueueLatest(d proxied, cut func()) {
	cut()
	latest := itemWith(func(i *store.Item) { i.Task.Mode = task.Latest }).of("volume:ns/a")
	if made := d.enqueue(latest); made[0].Result != store.Created {
		d.t.Fatalf("answered %s", made[0].Result)
	}
	d.want(1, "SELECT count(*) FROM slipway.tasks")
}

func cutEnqueueWithKey(d proxied, cut func()) {
	send := func() store.Enqueued {
		out, err := d.Enqueue(d.t.Context(), store.Batch{Caller: "alice", Key: "k", Hash: []byte{1}, Items: []store.Item{item("")}})
		d.must(err)
		return out[0]
	}
	cut()
	first := send()
	second := send()
	if first.Result != store.Created || second.Result != store.Repeated || first.Task.ID != second.Task.ID {
		d.t.Fatalf("answered %s %s and then %s %s", first.Result, first.Task.ID, second.Result, second.Task.ID)
	}
	d.want(1, "SELECT count(*) FROM slipway.tasks")
}

func cutClaim(d proxied, cut func()) {
	d.one(item("volume:ns/a"))
	cut()
	var got []store.Claimed
	d.must(again(func() error {
		r, err := d.Claim(d.t.Context(), "default", 5)
		got = r.Claims
		return err
	}))
	overdue, err := d.LeasedOverdue(d.t.Context(), 0, 5)
	d.must(err)
	if len(overdue) != 1 || len(got) == 1 && got[0].Attempt.ID != overdue[0].Attempt.ID {
		d.t.Fatalf("claimed %d, to be launched %d, want one", len(got), len(overdue))
	}
	d.want(1, "SELECT count(*) FROM slipway.attempts")
}

// started gives a Task whose Attempt a pod has started.
func (d proxied) started() store.Claimed {
	d.t.Helper()
	d.one(item("volume:ns/a"))
	c := d.claimOne()
	_, _, err := d.Start(d.t.Context(), start(c, "pod"))
	d.must(err)
	return c
}

func start(c store.Claimed, pod string) store.StartRequest {
	return store.StartRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: pod, PodName: pod, Node: "n"}
}

func cutLaunched(d proxied, cut func()) {
	d.one(item("volume:ns/a"))
	c := d.claimOne()
	cut()
	d.must(again(func() error { return d.MarkLaunched(d.t.Context(), c.Attempt.ID, c.Attempt.Fence, "job", "uid") }))
	d.want(1, "SELECT count(*) FROM slipway.attempts WHERE state = 'launched' AND job_name = 'job'")
}

func cutStart(d proxied, cut func()) {
	d.one(item("volume:ns/a"))
	c := d.claimOne()
	cut()
	d.must(again(func() error { _, _, err := d.Start(d.t.Context(), start(c, "pod")); return err }))
	if _, _, err := d.Start(d.t.Context(), start(c, "other")); !errors.Is(err, store.ErrOtherPod) {
		d.t.Fatalf("another pod's start: %v", err)
	}
	d.want(1, "SELECT count(*) FROM slipway.events WHERE type = 'started'")
}

func cutBeat(d proxied, cut func()) {
	d.running()
	c := d.started()
	cut()
	d.must(again(func() error {
		_, err := d.Beat(d.t.Context(), store.BeatRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "pod", Progress: []byte(`{"done":7}`)})
		return err
	}))
	d.want(1, `SELECT count(*) FROM slipway.leases WHERE progress = '{"done":7}'`)
}

func cutReport(d proxied, cut func()) {
	c := d.started()
	report := store.ReportRequest{
		Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "pod", Report: task.Report{Outcome: task.OutcomeSucceeded}, Tail: []byte("end"),
	}
	cut()
	d.must(again(func() error { return d.Report(d.t.Context(), report) }))
	d.want(1, "SELECT count(*) FROM slipway.attempts WHERE report ->> 'outcome' = 'succeeded' OR report ->> 'Outcome' = 'succeeded'")
	d.want(1, "SELECT count(*) FROM slipway.logs")
}

func cutStop(d proxied, cut func()) {
	c := d.started()
	cut()
	d.must(again(func() error { return d.Stop(d.t.Context(), c.Attempt.ID, c.Attempt.Fence, task.StopRunDeadline, "") }))
	d.want(1, "SELECT count(*) FROM slipway.events WHERE type = 'stop'")
}

func cutFinish(d proxied, cut func()) {
	c := d.started()
	behind := d.one(item("volume:ns/a"))
	cut()
	r := d.finish(c, success)
	if r.Task.State != task.Succeeded {
		d.t.Fatalf("the task is %s", r.Task.State)
	}
	d.wantState(c.Task.ID, task.Succeeded, "")
	d.want(1, "SELECT count(*) FROM slipway.events WHERE type = 'succeeded' OR type = 'finished'")
	if next := d.claimOne(); next.Task.ID != behind.ID {
		d.t.Fatal("the lane was handed to another task")
	}
}

func cutCancelQueued(d proxied, cut func()) {
	made := d.one(item("volume:ns/a"))
	cut()
	got, err := d.Cancel(d.t.Context(), made.ID, "bob", "")
	d.must(err)
	if got.State != task.Canceled {
		d.t.Fatalf("answered %s", got.State)
	}
	d.want(1, "SELECT count(*) FROM slipway.audit WHERE verb = 'cancel'")
}

func cutCancelRunning(d proxied, cut func()) {
	c := d.started()
	cut()
	got, err := d.Cancel(d.t.Context(), c.Task.ID, "bob", "")
	d.must(err)
	if got.State != task.Running || got.CancelAt.IsZero() {
		d.t.Fatalf("answered %s, asked at %v", got.State, got.CancelAt)
	}
	d.want(1, "SELECT count(*) FROM slipway.audit WHERE verb = 'cancel'")
	d.want(1, "SELECT count(*) FROM slipway.events WHERE type LIKE 'cancel%'")
}
