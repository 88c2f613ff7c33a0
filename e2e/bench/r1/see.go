package r1

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

func (b *bench) connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.Postgres.URL("slipway"))
	if err != nil {
		t.Fatalf("connect to the database: %v", err)
	}
	return conn
}

// settled waits until no Attempt is open and no Task queued.
func (b *bench) settled(t testing.TB) {
	t.Helper()
	conn := b.connect(t)
	defer func() { _ = conn.Close(context.Background()) }()
	until(t, "every task to end", func() (open int, err error) {
		err = conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM slipway.attempts WHERE closed_at IS NULL)
			+ (SELECT count(*) FROM slipway.tasks WHERE state = 'queued')`).Scan(&open)
		return open, err
	})
}

// until waits until nothing is left. Its patience is for machines that are busy with something else.
func until(t testing.TB, what string, left func() (int, error)) {
	t.Helper()
	const patience, every = 5 * time.Minute, 100 * time.Millisecond
	for began := time.Now(); ; time.Sleep(every) {
		n, err := left()
		if err == nil && n == 0 {
			return
		}
		if time.Since(began) > patience || t.Context().Err() != nil {
			t.Fatalf("wait for %s: %d are left after %v, error %v", what, n, time.Since(began).Round(time.Second), err)
		}
	}
}

// jobWatch notes when each Job of a namespace was first seen as complete.
type jobWatch struct {
	stop func()

	mu   sync.Mutex
	seen map[string]time.Time
}

func (b *bench) watchJobs(t testing.TB, namespace string) *jobWatch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	list, err := b.Kube.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatalf("list jobs: %v", err)
	}
	stream, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: b.Kube.BatchV1().Jobs(namespace).Watch,
	})
	if err != nil {
		t.Fatalf("watch jobs: %v", err)
	}
	w := &jobWatch{seen: map[string]time.Time{}}
	done := make(chan struct{})
	w.stop = func() {
		cancel()
		stream.Stop()
		<-done
	}
	go func() {
		defer close(done)
		for e := range stream.ResultChan() {
			w.see(e)
		}
	}()
	return w
}

func (w *jobWatch) see(e watch.Event) {
	job, ok := e.Object.(*batchv1.Job)
	if !ok {
		return
	}
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
			w.mu.Lock()
			if _, known := w.seen[job.Name]; !known {
				w.seen[job.Name] = time.Now()
			}
			w.mu.Unlock()
		}
	}
}

func (w *jobWatch) completed(job string) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.seen[job]
	return at, ok
}

// linger gives Jobs so long to be seen complete. The Job controller may take minutes where a write of it met another.
func (w *jobWatch) linger(jobs []string, most time.Duration) {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if !slices.ContainsFunc(jobs, func(job string) bool { _, ok := w.completed(job); return !ok }) {
			return
		}
	}
}

// wait returns when each of these Jobs was seen complete.
func (w *jobWatch) wait(t testing.TB, jobs []string) {
	t.Helper()
	until(t, "every job to be complete", func() (left int, err error) {
		for _, job := range jobs {
			if _, ok := w.completed(job); !ok {
				left++
			}
		}
		return left, nil
	})
}

// jobs names the Jobs of Tasks that have been launched all.
func (b *bench) jobs(t testing.TB, ids []string) (names []string) {
	t.Helper()
	until(t, "every task to be launched", func() (int, error) {
		names = nil
		for _, task := range b.committed(t, ids) {
			if task.job != "" {
				names = append(names, task.job)
			}
		}
		return len(ids) - len(names), nil
	})
	return names
}
