package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// MaxFence reads the largest fence on any Job of this Slipway, closed ones included. After a restore of the database the
// sequence has to be moved past it. A namespace that is shut is left out until Reopened.
func (c *Client) MaxFence(ctx context.Context) (int64, error) {
	var largest int64
	for _, ns := range c.cfg.Namespaces {
		page := metav1.ListOptions{LabelSelector: c.ours(), Limit: 500}
		for {
			jobs, err := c.jobs(ctx, ns, page)
			if apierrors.IsForbidden(err) {
				break
			}
			if err != nil {
				return 0, err
			}
			for _, fence := range jobs.fences {
				largest = max(largest, fence)
			}
			if page.Continue = jobs.more; page.Continue == "" {
				break
			}
		}
	}
	return largest, nil
}

type page struct {
	fences []int64
	more   string
}

func (c *Client) jobs(ctx context.Context, ns string, o metav1.ListOptions) (page, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	list, err := c.api.BatchV1().Jobs(ns).List(ctx, o)
	if err != nil {
		return page{}, unreached(fmt.Errorf("list jobs: %w", err))
	}
	p := page{more: list.Continue}
	for i := range list.Items {
		if _, fence, ok := c.attemptOf(&list.Items[i]); ok {
			p.fences = append(p.fences, fence)
		}
	}
	return p, nil
}
