package r1

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/e2e/bench/report"
)

// line measures the straight line of a Task at 25 submits a second: to its Job, from its pod's end to the end that the API
// shows, and what the API server was asked on the way.
func line(t testing.TB, b *bench) {
	const seconds = 12
	rate := part(25)
	b.submitAt(t, rate, 2, nil) // connections, caches and the dry run of the template
	for range rounds() {
		b.settled(t)
		b.audit.read(t)
		watch := b.watchJobs(t, b.Namespace())
		p := b.pollEnds(t)
		ids := b.submitAt(t, rate, seconds, nil)
		b.settled(t)
		watch.linger(b.jobs(t, ids), 10*time.Second)
		p.stop()
		watch.stop()
		b.lineFound(t, ids, p, watch, b.audit.read(t))
	}
}

// lineFound turns what was seen of one round into samples.
func (b *bench) lineFound(t testing.TB, ids []string, p *ends, watch *jobWatch, events []event) {
	t.Helper()
	created, over := map[string]time.Time{}, map[string]time.Time{} // by Job, by pod
	var answers []float64                                           // of the API server to the creates
	straight, other := 0, map[string]int{}
	calls := map[string]int{}
	for _, e := range events {
		if e.ObjectRef.Namespace == b.Namespace() {
			switch {
			case e.did("create", "jobs", ""):
				created[e.ObjectRef.Name] = e.Answered
				answers = append(answers, ms(e.Answered.Sub(e.Asked)))
			case e.did("patch", "pods", "status"):
				over[e.ObjectRef.Name] = e.Asked // the last one is that of its end
			}
		}
		if e.ours() {
			call, onLine := e.call()
			if calls[call]++; onLine {
				straight++
			} else {
				other[call]++
			}
		}
	}
	ends := map[string]time.Time{} // by Job
	for pod, at := range over {
		ends[pod[:max(len(pod)-len("-xxxxx"), 0)]] = at
	}
	var toJob, toAPI, toCondition []float64
	for _, task := range b.committed(t, ids) {
		if at, ok := created[task.job]; ok {
			toJob = append(toJob, ms(at.Sub(task.committed)))
		}
		end, ok := ends[task.job]
		if shown, polled := p.shown[task.id]; ok && polled {
			toAPI = append(toAPI, ms(shown.Sub(end)))
		}
		if said, seen := watch.completed(task.job); ok && seen {
			toCondition = append(toCondition, ms(said.Sub(end)))
		}
	}
	if len(toJob) != len(ids) || len(toCondition) == 0 || len(toAPI) == 0 {
		t.Errorf("of %d tasks %d jobs and %d ends were found: %d creates, %d pod statuses, %d conditions", len(ids), len(toJob), len(toCondition), len(created), len(over), len(watch.seen))
	}
	b.keep(t, "commit to Job", toJob,
		b.figure("commit → Job exists, 25/s, p50", "ms", report.Figure{Of: report.P50, Budget: 20}),
		b.figure("commit → Job exists, 25/s, p99", "ms", report.Figure{Of: report.P99, Budget: 120}))
	b.keep(t, "create Job at the API server", answers,
		b.figure("of that, the API server's own answer, p50", "ms", report.Figure{Of: report.P50}),
		b.figure("of that, the API server's own answer, p99", "ms", report.Figure{Of: report.P99}))
	b.keep(t, "pod end to condition", toCondition,
		b.figure("pod end → watcher sees the Job's condition, p50", "ms", report.Figure{Of: report.P50}),
		b.figure("times sooner than that watcher, p50", "x", report.Figure{Of: report.P50, Over: name + " pod end to API", Budget: 5, AtLeast: true}))
	b.keep(t, "pod end to API", toAPI,
		b.figure("pod end → API shows the end, 25/s, p50", "ms", report.Figure{Of: report.P50, Budget: 60}),
		b.figure("pod end → API shows the end, 25/s, p99", "ms", report.Figure{Of: report.P99, Budget: 250}))
	n := float64(len(ids))
	b.one(t, float64(straight)/n, "calls of ours to the API server per task, straight line", "calls", 4)
	for _, call := range slices.Sorted(maps.Keys(calls)) {
		label := "of these "
		if other[call] > 0 {
			label = "apart from them "
		}
		b.one(t, float64(calls[call])/n, label+call, "calls", report.NoBudget)
	}
}

// submitAt submits at a steady rate and gives the ids; done hears of each.
func (b *bench) submitAt(t testing.TB, rate, seconds int, done func(n int, id string)) []string {
	t.Helper()
	var all sync.WaitGroup
	ids := make([]string, rate*seconds)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := range ids {
		<-tick.C
		all.Go(func() {
			id, err := b.user.TrySubmit(t.Context(), b.task(endsAtOnce), rand.Text())
			if err != nil {
				t.Errorf("submit: %v", err)
				return
			}
			if ids[n] = id; done != nil {
				done(n, id)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.Fatalf("not every submit was taken")
	}
	return ids
}

// committedTask is a Task with the moment of its commit and the Job of its Attempt.
type committedTask struct {
	id, job   string
	committed time.Time
}

func (b *bench) committed(t testing.TB, ids []string) (all []committedTask) {
	t.Helper()
	conn := b.connect(t)
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(t.Context(), `
		SELECT t.id::text, a.job_name, pg_xact_commit_timestamp(e.xid::xid)
		FROM slipway.tasks t JOIN slipway.attempts a ON a.task = t.key AND a.number = 1 JOIN slipway.events e ON e.task = t.key AND e.type = 'submitted'
		WHERE t.id = ANY ($1::uuid[])`, ids)
	if err != nil {
		t.Fatalf("read the commits: %v", err)
	}
	if all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c committedTask, err error) {
		err = row.Scan(&c.id, &c.job, &c.committed)
		return c, err
	}); err != nil {
		t.Fatalf("read the commits: %v", err)
	}
	return all
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
