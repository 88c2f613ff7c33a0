package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/e2e/bench/plain"
	"slipway.dev/slipway/e2e/bench/report"
	"slipway.dev/slipway/pkg/task"
)

// size measures what the database has grown by for each Task that has ended, with all that its life left behind but its log.
func size(ctx context.Context, b *rig) error {
	const tasks = 2000
	before, err := b.stored(ctx)
	if err != nil {
		return err
	}
	if err := b.live(ctx, tasks); err != nil {
		return err
	}
	if err := plain.Exec(ctx, b.url, "VACUUM ANALYZE"); err != nil { // what has died is used again, as by a server that runs on
		return err
	}
	after, err := b.stored(ctx)
	if err != nil {
		return err
	}
	return b.report.One((after-before)/tasks/1024, report.Figure{Name: "database per finished task, logs apart", Unit: "KiB", Rig: r0, Budget: 6})
}

// stored is how many bytes the tables have, with their indexes.
func (b *rig) stored(ctx context.Context) (float64, error) {
	text, err := plain.Text(ctx, b.url, `SELECT sum(pg_total_relation_size(oid))::text FROM pg_class
		WHERE relnamespace = 'slipway'::regnamespace AND relkind = 'r' AND relname NOT LIKE 'logs%'`)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

// live has so many Tasks go through their whole lives, as Jobs have them: launched, started, one heartbeat, a report. One in
// a hundred fails. Each has an object's name, two labels and half a KiB of parameters.
func (b *rig) live(ctx context.Context, tasks int) error {
	const at = 100
	for n := 0; n < tasks; n += at {
		items := make([]store.Item, at)
		for i := range items {
			items[i] = lived(n + i)
		}
		if _, err := b.Enqueue(ctx, store.Batch{Caller: "bench", Items: items}); err != nil {
			return err
		}
		var all errgroup.Group // heartbeats are stored together, once a second
		for left := at; left > 0; {
			got, err := b.Claim(ctx, queue, 20)
			if err != nil {
				return errors.Join(err, all.Wait())
			}
			for _, c := range got.Claims {
				all.Go(func() error { return b.lifeOf(ctx, c) })
			}
			left -= len(got.Claims)
		}
		if err := all.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// lived is the n-th Task of those with a history: of 20 namespaces, 500 volumes, 10 teams.
func lived(n int) store.Item {
	namespace, volume := fmt.Sprint("ns-", n%20), fmt.Sprint("data-", n%500)
	it := item("volume:"+namespace+"/"+volume, namespace)
	it.Task.Name = volume
	it.Task.Labels = map[string]string{"team": fmt.Sprint("team-", n%10), "ticket": fmt.Sprint("T-", n)}
	return it
}

func (b *rig) lifeOf(ctx context.Context, c store.Claimed) error {
	a, pod := c.Attempt, uuid.NewString()
	job := fmt.Sprintf("volume-resize-%d-1", c.Task.Key)
	if err := b.MarkLaunched(ctx, a.ID, a.Fence, job, uuid.NewString()); err != nil {
		return err
	}
	_, _, err := b.Start(ctx, store.StartRequest{Attempt: a.ID, Fence: a.Fence, PodUID: pod, PodName: job + "-abcde", Node: "node-1"})
	if err != nil {
		return err
	}
	if _, err := b.Beat(ctx, store.BeatRequest{Attempt: a.ID, Fence: a.Fence, PodUID: pod, Progress: []byte(`{"done":1,"total":2,"text":"half"}`)}); err != nil {
		return err
	}
	verdict := success
	said := task.Report{Outcome: task.OutcomeSucceeded, Result: []byte(`{"state":"grown","actual":"10Gi"}`)}
	if c.Task.Key%100 == 0 {
		said = task.Report{Outcome: task.OutcomeRejected, Reason: "refused", Message: "the driver cannot"}
		verdict = task.Verdict{Outcome: said.Outcome, Reason: said.Reason, Message: said.Message, Spends: task.SpendsRetry, Started: true, Rule: "1 report"}
	}
	if err := b.Report(ctx, store.ReportRequest{Attempt: a.ID, Fence: a.Fence, PodUID: pod, Report: said}); err != nil {
		return err
	}
	if _, err := b.Finish(ctx, a.ID, a.Fence, verdict, store.Ending{Evidence: []byte(`{"job":"Complete","pods":[{"phase":"Succeeded","exit_code":0}]}`)}); err != nil {
		return err
	}
	return b.MarkClosed(ctx, a.ID)
}

// history measures lists, filters and details over a million finished Tasks of a week, while 25 a second come, run and end.
// The million is made once; what is asked of it, three times.
func history(ctx context.Context, b *rig) error {
	const lives, times = 2000, 500
	if b.round > 0 {
		return nil
	}
	if err := b.live(ctx, lives); err != nil {
		return err
	}
	if err := b.multiply(ctx, times); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.trickle(ctx, 25) }()
	err := b.askHistory(ctx, lives)
	cancel()
	return errors.Join(err, <-done)
}

// multiply copies all Tasks, with what belongs to them, to so many times as many, spread over a week before.
func (b *rig) multiply(ctx context.Context, times int) error {
	const step = 10_000_000 // between the keys of one copy and the next
	for _, sql := range []string{
		`INSERT INTO slipway.tasks (key, id, seq, lane, queue, namespace, kind, name, mode, class, executor, params, spec, labels, state, outcome, reason,
				message, result, run_at, eligible_at, rank, attempts, spent_retry, created_by, created_at, started_at, ended_at) OVERRIDING SYSTEM VALUE
			SELECT key + n * %[1]d::bigint, gen_random_uuid(), seq, lane, queue, namespace, kind, name, mode, class, executor, params, spec, labels, state,
				outcome, reason, message, result, run_at, eligible_at, rank, attempts, spent_retry, created_by, created_at - n * %[3]s,
				started_at - n * %[3]s, ended_at - n * %[3]s
			FROM slipway.tasks, generate_series(1, %[2]d) n`,
		`INSERT INTO slipway.task_labels (kv, created_at, task) SELECT CASE WHEN kv LIKE 'ticket%%' THEN kv || '-' || n ELSE kv END, created_at - n * %[3]s,
				task + n * %[1]d::bigint FROM slipway.task_labels, generate_series(1, %[2]d) n`,
		`INSERT INTO slipway.attempts (id, task, number, fence, lane, queue, namespace, kind, executor, replica, state, job_name, job_uid, pod_uid, pod_name,
				node, report, outcome, reason, message, rule, exit_code, evidence, beat_at, progress, claimed_at, launched_at, started_at, finished_at, closed_at)
				OVERRIDING SYSTEM VALUE
			SELECT id + n * %[1]d::bigint, task + n * %[1]d::bigint, number, fence, lane, queue, namespace, kind, executor, replica, state, job_name, job_uid,
				pod_uid, pod_name, node, report, outcome, reason, message, rule, exit_code, evidence, beat_at, progress, claimed_at - n * %[3]s,
				launched_at - n * %[3]s, started_at - n * %[3]s, finished_at - n * %[3]s, closed_at - n * %[3]s
			FROM slipway.attempts, generate_series(1, %[2]d) n`,
		`INSERT INTO slipway.events (task, attempt, type, actor, at, data) SELECT task + n * %[1]d::bigint, attempt, type, actor, at, data
			FROM slipway.events, generate_series(1, %[2]d) n`,
	} {
		if err := plain.Exec(ctx, b.url, "SELECT set_config('slipway.binary', '9999', false); "+fmt.Sprintf(sql, step, times-1, "interval '20 minutes'")); err != nil {
			return err
		}
	}
	return plain.Exec(ctx, b.url, "VACUUM ANALYZE")
}

// trickle has so many Tasks a second come and end, until ctx is done.
func (b *rig) trickle(ctx context.Context, rate int) (err error) {
	var all errgroup.Group
	defer func() { err = errors.Join(err, all.Wait()) }()
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		whole := context.WithoutCancel(ctx)
		if _, err := b.Enqueue(whole, store.Batch{Caller: "bench", Items: []store.Item{lived(n)}}); err != nil {
			return err
		}
		got, err := b.Claim(whole, queue, 20)
		if err != nil {
			return err
		}
		for _, c := range got.Claims {
			all.Go(func() error { return b.lifeOf(whole, c) })
		}
	}
}

// question is one kind of look into the history.
type question struct {
	name string
	ask  func(ctx context.Context, n int) error
}

// questions are asked in turn.
func (b *rig) questions(lives int) []question {
	list := func(name string, filter func(n int) store.ListFilter) question {
		return question{name, func(ctx context.Context, n int) error {
			_, err := b.Tasks(ctx, filter(n))
			return err
		}}
	}
	namespace := func(n int) []string { return []string{fmt.Sprint("ns-", n%20)} }
	var next string
	return []question{
		list("the newest", func(int) store.ListFilter { return store.ListFilter{} }),
		list("500 of the newest", func(int) store.ListFilter { return store.ListFilter{Limit: 500} }),
		list("a namespace", func(n int) store.ListFilter { return store.ListFilter{Namespaces: namespace(n)} }),
		list("what failed", func(int) store.ListFilter { return store.ListFilter{State: task.Failed} }),
		list("what failed in a namespace", func(n int) store.ListFilter { return store.ListFilter{State: task.Failed, Namespaces: namespace(n)} }),
		list("by a reason", func(int) store.ListFilter { return store.ListFilter{Reason: "refused"} }),
		list("by a reason that nobody had", func(int) store.ListFilter { return store.ListFilter{Reason: "oom_killed"} }),
		list("a kind that never ran there", func(n int) store.ListFilter {
			return store.ListFilter{Kind: "volume.modify", Namespaces: namespace(n)}
		}),
		list("a lane", func(n int) store.ListFilter {
			return store.ListFilter{Lane: fmt.Sprintf("volume:ns-%d/data-%d", n%20, n%500)}
		}),
		list("a common label", func(n int) store.ListFilter {
			return store.ListFilter{Labels: map[string]string{"team": fmt.Sprint("team-", n%10)}}
		}),
		list("a label of one", func(n int) store.ListFilter {
			return store.ListFilter{Labels: map[string]string{"ticket": fmt.Sprintf("T-%d-%d", n%lives, 1+n%400)}}
		}),
		list("a day, half a week ago", func(int) store.ListFilter {
			return store.ListFilter{CreatedAfter: time.Now().Add(-96 * time.Hour), CreatedBefore: time.Now().Add(-72 * time.Hour)}
		}),
		{"one page after the other", func(ctx context.Context, _ int) error {
			page, err := b.Tasks(ctx, store.ListFilter{Cursor: next})
			next = page.Next
			return err
		}},
		{"a task, its attempts and its events", func(ctx context.Context, _ int) error {
			at := time.Now().Add(-time.Duration(rand.Int64N(int64(160 * time.Hour)))) //nolint:gosec // which one does not matter
			page, err := b.Tasks(ctx, store.ListFilter{CreatedBefore: at, Limit: 1})
			if err != nil || len(page.Tasks) == 0 {
				return errors.Join(err, fmt.Errorf("%d tasks before %v", len(page.Tasks), at))
			}
			id := page.Tasks[0].ID
			_, _, one := b.Task(ctx, id)
			_, attempts := b.Attempts(ctx, id)
			_, events := b.Events(ctx, id, "", 100)
			return errors.Join(one, attempts, events)
		}},
	}
}

// askHistory asks each question so many times in each of three rounds.
func (b *rig) askHistory(ctx context.Context, lives int) error {
	const rounds, times = 3, 40
	all := b.questions(lives)
	for range rounds {
		var samples []time.Duration
		each := make([][]time.Duration, len(all))
		for n := range times {
			for i, q := range all {
				began := time.Now()
				if err := q.ask(ctx, n); err != nil {
					return fmt.Errorf("%s: %w", q.name, err)
				}
				each[i] = append(each[i], time.Since(began))
			}
		}
		for i, q := range all {
			samples = append(samples, each[i]...)
			if err := b.durations("of these: "+q.name, each[i], p99); err != nil {
				return err
			}
		}
		if err := b.durations("list, filter, detail over a million finished tasks, 25/s beside", samples, p50, within(p99, 100)); err != nil {
			return err
		}
	}
	return nil
}
