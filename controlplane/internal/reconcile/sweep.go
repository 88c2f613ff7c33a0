package reconcile

import (
	"context"
	"fmt"
	"time"

	"slipway.dev/slipway/controlplane/internal/loop"
	"slipway.dev/slipway/pkg/task"
)

// Remains are the open objects of this Slipway in the cluster, whoever they belong to.
type Remains interface {
	// Shows reports whether the cache has anything open of an Attempt.
	Shows(attempt int64) bool
	Traces() []task.Trace
	// Remove deletes what left a trace and belongs to no Attempt.
	Remove(ctx context.Context, t task.Trace) error
}

// Standing is what the database knows of an Attempt that left a trace.
type Standing struct {
	Fence  int64
	Closed bool
}

// Ledger is the database's side of a sweep.
type Ledger interface {
	// Known tells what is known of the given Attempts; what is missing in the answer does not exist.
	Known(ctx context.Context, attempts []int64) (map[int64]Standing, error)
	MaxFence(ctx context.Context) (int64, error)
	RaiseFence(ctx context.Context, above int64) error
}

// raiseFence makes sure that no fence is drawn twice. A database that was restored is behind the cluster: then its
// sequence is moved past the largest fence found there. It tries until it succeeds or ctx is done.
func (r *Reconciler) raiseFence(ctx context.Context) (restored bool) {
	for wait := time.Second; ; wait = min(2*wait, defaultResync) {
		behind, err := r.compareFences(ctx)
		if restored = restored || behind; err == nil {
			return restored
		}
		r.complain(ctx, "compare the fences of database and cluster", err)
		select {
		case <-time.After(loop.Jitter(wait, 0.2)):
		case <-ctx.Done():
			return restored
		}
	}
}

func (r *Reconciler) compareFences(ctx context.Context) (behind bool, err error) {
	inCluster, err := r.cfg.ClusterFence(ctx)
	if err != nil {
		return false, err
	}
	inDatabase, err := r.cfg.Ledger.MaxFence(ctx)
	if err != nil || inCluster <= inDatabase {
		return false, err
	}
	r.cfg.Log.WarnContext(ctx, "the cluster knows later fences than the database, which must have been restored: moving past them",
		"database", inDatabase, "cluster", inCluster)
	return true, r.cfg.Ledger.RaiseFence(ctx, inCluster)
}

// sweep removes what the cluster still has of Attempts that do not exist, and closes again what was closed. After a
// restore the first pass only lists.
func (r *Reconciler) sweep(ctx context.Context, onlyList bool) {
	var old []task.Trace
	var ids []int64
	for _, trace := range r.cfg.Remains.Traces() {
		if trace.Age >= r.cfg.SweepAge {
			old, ids = append(old, trace), append(ids, trace.Attempt)
		}
	}
	if len(old) == 0 {
		return
	}
	known, err := r.cfg.Ledger.Known(ctx, ids)
	if err != nil {
		r.complain(ctx, "compare cluster and database", err)
		return
	}
	for _, trace := range old {
		standing, exists := known[trace.Attempt]
		switch {
		case exists && standing.Fence == trace.Fence && !standing.Closed:
			continue
		case onlyList:
			r.cfg.Log.WarnContext(ctx, "an orphan, left alone for now", "namespace", trace.Namespace, "name", trace.Name, "attempt", trace.Attempt)
			continue
		}
		r.cfg.Log.InfoContext(ctx, "remove an orphan", "namespace", trace.Namespace, "name", trace.Name, "attempt", trace.Attempt, "closed", standing.Closed)
		if err := r.tidy(ctx, trace, exists && standing.Fence == trace.Fence); err != nil {
			r.complain(ctx, fmt.Sprintf("remove the orphan %s/%s", trace.Namespace, trace.Name), err)
		}
	}
}

func (r *Reconciler) tidy(ctx context.Context, trace task.Trace, closed bool) error {
	if closed {
		return r.cfg.Hand.Close(ctx, task.Attempt{ID: trace.Attempt, Fence: trace.Fence, Namespace: trace.Namespace})
	}
	return r.cfg.Remains.Remove(ctx, trace)
}
