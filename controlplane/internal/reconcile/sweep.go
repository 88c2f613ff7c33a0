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
	// It refuses to tell while the fences are in doubt.
	Known(ctx context.Context, attempts []int64) (map[int64]Standing, error)
	// Lineage names the database as it is now: a restored one has another.
	Lineage(ctx context.Context) (string, error)
	// RaiseFence makes every later fence larger than above, and gives the last one that was drawn. It refuses where the
	// database has another lineage.
	RaiseFence(ctx context.Context, lineage string, above int64) (was int64, err error)
}

// raiseFence makes sure that no fence is drawn twice. A database that was restored is behind the cluster: then its
// sequence is moved past the largest fence found there. It tries until it succeeds or ctx is done.
func (r *Reconciler) raiseFence(ctx context.Context) {
	for wait := time.Second; ; wait = min(2*wait, defaultResync) {
		err := r.compareFences(ctx)
		if err == nil {
			return
		}
		r.trouble.Warn(ctx, "compare the fences of database and cluster", err)
		select {
		case <-time.After(loop.Jitter(wait, 0.2)):
		case <-ctx.Done():
			return
		}
	}
}

func (r *Reconciler) compareFences(ctx context.Context) error {
	// Asked for first: of what was drawn from a database that is restored meanwhile, the cluster is read too early.
	lineage, err := r.cfg.Ledger.Lineage(ctx)
	if err != nil {
		return err
	}
	inCluster, err := r.cfg.ClusterFence(ctx)
	if err != nil {
		return err
	}
	inDatabase, err := r.cfg.Ledger.RaiseFence(ctx, lineage, inCluster)
	if err != nil || inCluster <= inDatabase {
		return err
	}
	r.cfg.Log.WarnContext(ctx, "the cluster knew later fences than the database, which must have been restored: moved past them",
		"database", inDatabase, "cluster", inCluster)
	return nil
}

// doubt compares the fences again whenever the database was restarted, failed over or restored under us; nothing is
// claimed meanwhile. So does a namespace that can be looked at again. The next sweep only lists, whichever replica moved
// the fences.
func (r *Reconciler) doubt(ctx context.Context) error {
	for {
		select {
		case <-r.cfg.Doubts:
		case <-r.cfg.Reopened:
		case <-ctx.Done():
			return nil
		}
		r.doubts.Add(1)
		r.raiseFence(ctx)
	}
}

// sweep removes what the cluster still has of Attempts that do not exist, and closes again what was closed. The first
// pass after a doubt only lists the former: the database may have been restored.
func (r *Reconciler) sweep(ctx context.Context) {
	var old []task.Trace
	var ids []int64
	for _, trace := range r.cfg.Remains.Traces() {
		if trace.Age >= r.cfg.SweepAge {
			old, ids = append(old, trace), append(ids, trace.Attempt)
		}
	}
	known, err := r.cfg.Ledger.Known(ctx, ids)
	if err != nil {
		r.trouble.Warn(ctx, "compare cluster and database", err)
		return
	}
	// Read after the answer: one that came from a restored database was preceded by a doubt.
	doubts := r.doubts.Load()
	onlyList := doubts != r.listed
	r.listed = doubts
	for _, trace := range old {
		standing, exists := known[trace.Attempt]
		exists = exists && standing.Fence == trace.Fence
		switch {
		case exists && !standing.Closed:
			continue
		case onlyList && !exists:
			r.cfg.Log.WarnContext(ctx, "an orphan, left alone for now", "namespace", trace.Namespace, "name", trace.Name, "attempt", trace.Attempt)
			continue
		}
		r.cfg.Log.InfoContext(ctx, "remove an orphan", "namespace", trace.Namespace, "name", trace.Name, "attempt", trace.Attempt, "closed", exists)
		if err := r.tidy(ctx, trace, exists); err != nil {
			r.trouble.Warn(ctx, fmt.Sprintf("remove the orphan %s/%s", trace.Namespace, trace.Name), err)
		}
	}
}

func (r *Reconciler) tidy(ctx context.Context, trace task.Trace, closed bool) error {
	if closed {
		return r.cfg.Hand.Close(ctx, task.Attempt{ID: trace.Attempt, Fence: trace.Fence, Namespace: trace.Namespace})
	}
	return r.cfg.Remains.Remove(ctx, trace)
}
