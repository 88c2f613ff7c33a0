package r1

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/bench/report"
)

// throughput measures how fast n Tasks submitted at once come to their end, beside a bare loop that creates as many Jobs
// with the same pod and watches them, and what CPU a Task costs of all that takes part. They take turns in who is first.
func throughput(t testing.TB, b *bench, tuned bool, n int) {
	if err := b.Cluster.Tune(t.Context(), tuned); err != nil {
		t.Fatalf("tune the cluster: %v", err)
	}
	which, least := "tuned", 0.75
	if !tuned {
		which, least = "stock", 0.95
	}
	b.submitAt(t, 10, 1, nil)
	b.settled(t)
	template := b.template(t)
	for round := range rounds() {
		turns := []func(){
			func() {
				done, used := b.slipway(t, n)
				b.keep(t, "done at, "+which, done,
					b.figure("throughput to completion, "+which, "tasks/s", report.Figure{Of: report.Rate}),
					b.figure("the same as a ratio to the bare loop, "+which, "x", report.Figure{Of: report.Rate, Over: name + " done at, bare, " + which, Budget: least, AtLeast: true}))
				b.keep(t, "CPU per task, "+which, []float64{ms(used) / float64(n)},
					b.figure("CPU per task, cluster and all, "+which, "ms", report.Figure{}),
					b.figure("CPU per task as a ratio to the bare loop, "+which, "x", report.Figure{Over: name + " CPU per task, bare, " + which, Budget: limit(tuned)}))
			},
			func() {
				done, used := b.bare(t, template, n)
				b.keep(t, "done at, bare, "+which, done,
					b.figure("for comparison: bare create-and-watch loop, "+which, "tasks/s", report.Figure{Of: report.Rate}))
				b.keep(t, "CPU per task, bare, "+which, []float64{ms(used) / float64(n)},
					b.figure("for comparison: CPU per task of the bare loop, "+which, "ms", report.Figure{}))
			},
		}
		if round%2 == 1 {
			turns[0], turns[1] = turns[1], turns[0]
		}
		for _, turn := range turns {
			turn()
		}
	}
	if err := b.Cluster.Tune(t.Context(), true); err != nil {
		t.Fatalf("tune the cluster: %v", err)
	}
}

// limit is the budget of CPU, which there is for the tuned controller-manager alone.
func limit(tuned bool) float64 {
	if tuned {
		return 1.3
	}
	return report.NoBudget
}

// slipway gives the seconds from the first submit to each end, and the CPU until everything is closed.
func (b *bench) slipway(t testing.TB, n int) ([]float64, time.Duration) {
	t.Helper()
	before, began := b.cpu(t), time.Now()
	ids := b.submitMany(t, endsAtOnce, n)
	b.settled(t)
	used := b.cpu(t).since(before, "loop")
	conn := b.connect(t)
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(t.Context(), "SELECT ended_at FROM slipway.tasks WHERE id = ANY ($1::uuid[]) AND state = 'succeeded'", ids)
	if err != nil {
		t.Fatalf("read the ends: %v", err)
	}
	ends, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil || len(ends) != n {
		t.Fatalf("of %d tasks %d have succeeded, error %v", n, len(ends), err)
	}
	done := make([]float64, n)
	for i, at := range ends {
		done[i] = at.Sub(began).Seconds()
	}
	return done, used
}

// submitMany submits in batches and gives the ids.
func (b *bench) submitMany(t testing.TB, image string, n int) (ids []string) {
	t.Helper()
	const batch = 200
	for len(ids) < n {
		tasks := make([]map[string]any, min(batch, n-len(ids)))
		for i := range tasks {
			tasks[i] = b.task(image)
		}
		a := b.user.Must(t, http.MethodPost, "/v1/tasks:batch", map[string]any{"tasks": tasks}, http.StatusCreated)
		ids = append(ids, idsOf(t, a.Body)...)
	}
	return ids
}

// template is the Job that Slipway makes, without anything that is Slipway's.
func (b *bench) template(t testing.TB) *batchv1.Job {
	t.Helper()
	list, err := b.Kube.BatchV1().Jobs(b.Namespace()).List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("find a job to copy: %d, %v", len(list.Items), err)
	}
	made := list.Items[0]
	spec := batchv1.JobSpec{
		Parallelism: made.Spec.Parallelism, Completions: made.Spec.Completions, BackoffLimit: made.Spec.BackoffLimit,
		PodReplacementPolicy: made.Spec.PodReplacementPolicy, ActiveDeadlineSeconds: made.Spec.ActiveDeadlineSeconds,
	}
	spec.Template.Spec = *made.Spec.Template.Spec.DeepCopy()
	return &batchv1.Job{Spec: spec}
}

// bare creates n Jobs as fast as it can, 32 at a time as Slipway does, and watches them to their condition.
func (b *bench) bare(t testing.TB, template *batchv1.Job, n int) ([]float64, time.Duration) {
	t.Helper()
	const workers = 32
	before, began := b.cpu(t), time.Now()
	watch := b.watchJobs(t, b.Namespace())
	defer watch.stop()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("bare-%d-%d", began.UnixNano(), i)
	}
	next := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range next {
				job := template.DeepCopy()
				job.Name = names[i]
				if _, err := b.Kube.BatchV1().Jobs(b.Namespace()).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
					t.Errorf("create a job: %v", err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	watch.wait(t, names)
	used := b.cpu(t).since(before, "slipway", "postgres")
	done := make([]float64, n)
	for i := range names {
		at, _ := watch.completed(names[i])
		done[i] = at.Sub(began).Seconds()
	}
	return done, used
}
