package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"slipway.dev/slipway/pkg/task"
)

// Traces lists everything of this Slipway that is not closed, from the cache, by Attempt and fence.
func (c *Client) Traces() []task.Trace {
	type id struct {
		attempt, fence int64
		namespace      string
	}
	all := map[id]task.Trace{}
	note := func(o metav1.Object) {
		attempt, fence, ok := c.attemptOf(o)
		if !ok {
			return
		}
		key, age := id{attempt, fence, o.GetNamespace()}, time.Since(o.GetCreationTimestamp().Time)
		before, known := all[key]
		if known {
			before.Age = min(before.Age, age)
		} else {
			before = task.Trace{Attempt: attempt, Fence: fence, Namespace: key.namespace, Name: o.GetName(), Age: age}
		}
		all[key] = before
	}
	for _, informers := range []map[string]*informer{c.cache.jobs, c.cache.pods} {
		for _, in := range informers {
			if in.shut.Load() {
				continue // what it shows is old
			}
			for _, obj := range in.GetStore().List() {
				if o, ok := obj.(metav1.Object); ok {
					note(o)
				}
			}
		}
	}
	list := make([]task.Trace, 0, len(all))
	for _, o := range all {
		list = append(list, o)
	}
	return list
}

// Shows reports whether the cache has anything open of an Attempt, under whatever fence.
func (c *Client) Shows(attempt int64) bool {
	for _, in := range c.cache.informers() {
		objs, err := in.GetIndexer().ByIndex(byAttempt, decimal(attempt))
		if err == nil && len(objs) > 0 {
			return true
		}
	}
	return false
}

// MaxFence reads the largest fence on any Job or pod of this Slipway, closed ones included: a pod may be all that is left
// of an Attempt. After a restore of the database the sequence has to be moved past it. A namespace that is shut is left
// out until Reopened.
func (c *Client) MaxFence(ctx context.Context) (int64, error) {
	var largest int64
	note := func(o runtime.Object) error {
		object, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		if _, fence, ok := c.attemptOf(object); ok {
			largest = max(largest, fence)
		}
		return nil
	}
	for _, ns := range c.cfg.Namespaces {
		jobs := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.api.BatchV1().Jobs(ns).List(ctx, o)
		}
		pods := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.api.CoreV1().Pods(ns).List(ctx, o)
		}
		for _, list := range []pager.ListPageFunc{jobs, pods} {
			err := c.pages(list).EachListItem(ctx, metav1.ListOptions{LabelSelector: c.ours()}, note)
			if err != nil && !apierrors.IsForbidden(err) {
				return 0, unreached(fmt.Errorf("read the fences in %s: %w", or(ns, "all namespaces"), err))
			}
		}
	}
	return largest, nil
}

// pages lists in pages, each with a bound of its own.
func (c *Client) pages(list pager.ListPageFunc) *pager.ListPager {
	return pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := c.bounded(ctx)
		defer cancel()
		return list(ctx, o)
	})
}
