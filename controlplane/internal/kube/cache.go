package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"slipway.dev/slipway/controlplane/internal/loop"
	"slipway.dev/slipway/pkg/task"
)

const byAttempt = "attempt"

// cached holds the open Jobs and pods of this Slipway, stripped, and says which Attempt an event is about.
type cached struct {
	client *Client
	jobs   map[string]*informer // by namespace; one under "" for all of them
	pods   map[string]*informer
	gap    *gap
	look   atomic.Pointer[func(attempt int64)]
}

func newCached(c *Client) (*cached, error) {
	all := &cached{client: c, jobs: map[string]*informer{}, pods: map[string]*informer{}, gap: newGap(c.cfg.Log)}
	for _, ns := range c.cfg.Namespaces {
		jobs, err := all.informer(ns, &batchv1.Job{}, listWatch{
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return c.api.BatchV1().Jobs(ns).List(ctx, o)
			},
			watch: c.api.BatchV1().Jobs(ns).Watch,
		})
		if err != nil {
			return nil, err
		}
		pods, err := all.informer(ns, &corev1.Pod{}, listWatch{
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return c.api.CoreV1().Pods(ns).List(ctx, o)
			},
			watch: c.api.CoreV1().Pods(ns).Watch,
		})
		if err != nil {
			return nil, err
		}
		all.jobs[ns], all.pods[ns] = jobs, pods
	}
	return all, nil
}

type listWatch struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (all *cached) informer(ns string, example runtime.Object, lw listWatch) (*informer, error) {
	selector, in := all.client.open(), &informer{namespace: ns, gap: all.gap, renew: all.client.cfg.Renew}
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			list, err := lw.list(ctx, o)
			in.tell(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return in.watch(ctx, o, lw.watch)
		},
	}, all.client.api)
	in.SharedIndexInformer = cache.NewSharedIndexInformerWithOptions(source, example, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{byAttempt: attemptIndex},
	})
	if err := in.SetTransform(strip); err != nil {
		return nil, fmt.Errorf("set up a watch: %w", err)
	}
	// Each list and watch has told the gap of its error already.
	quiet := func(context.Context, *cache.Reflector, error) {}
	if err := in.SetWatchErrorHandlerWithContext(quiet); err != nil {
		return nil, fmt.Errorf("set up a watch: %w", err)
	}
	if _, err := in.AddEventHandler(all.handler()); err != nil {
		return nil, fmt.Errorf("set up a watch: %w", err)
	}
	return in, nil
}

func attemptIndex(obj any) ([]string, error) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return nil, nil
	}
	return []string{o.GetLabels()[LabelAttempt]}, nil
}

// handler turns events into keys. Updates that change nothing of what a task.Seen shows are left out.
func (all *cached) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: all.tell,
		UpdateFunc: func(before, after any) {
			if !sameSight(before, after) {
				all.tell(after)
			}
		},
		DeleteFunc: func(obj any) {
			if last, missed := obj.(cache.DeletedFinalStateUnknown); missed {
				obj = last.Obj
			}
			// An object that we closed leaves the watch without being deleted.
			if j, ok := obj.(*batchv1.Job); ok && j.DeletionTimestamp == nil {
				all.client.kept.add(time.Now())
			}
			all.tell(obj)
		},
	}
}

func (all *cached) tell(obj any) {
	look := all.look.Load()
	o, ok := obj.(metav1.Object)
	if look == nil || !ok {
		return
	}
	if attempt, _, ok := all.client.attemptOf(o); ok {
		(*look)(attempt)
	}
}

func sameSight(before, after any) bool {
	switch was := before.(type) {
	case *corev1.Pod:
		is, ok := after.(*corev1.Pod)
		return ok && reflect.DeepEqual(seenPod(was), seenPod(is))
	case *batchv1.Job:
		is, ok := after.(*batchv1.Job)
		return ok && seenJob(was) == seenJob(is)
	}
	return false
}

// Run keeps the cache up to date and calls look with the id of each Attempt of which something changed, until ctx is
// done. It never calls with a fact: what changed is for Observe to say.
func (c *Client) Run(ctx context.Context, look func(attempt int64)) error {
	c.cache.look.Store(&look)
	var runs []func(context.Context) error
	for _, in := range c.cache.informers() {
		runs = append(runs, func(ctx context.Context) error {
			in.RunWithContext(ctx)
			return nil
		})
	}
	if err := loop.Together(ctx, runs...); err != nil {
		return fmt.Errorf("watch the cluster: %w", err)
	}
	return nil
}

// WaitSynced returns when the cache has everything that was there when Run began, namespaces that are shut left out.
func (c *Client) WaitSynced(ctx context.Context) error {
	for _, in := range c.cache.informers() {
		if !cache.WaitForCacheSync(ctx.Done(), func() bool { return in.HasSynced() || in.shut.Load() }) {
			return errors.Join(errors.New("the cache of the cluster is not filled yet"), ctx.Err())
		}
	}
	return nil
}

func (all *cached) informers() []*informer {
	return slices.AppendSeq(slices.Collect(maps.Values(all.jobs)), maps.Values(all.pods))
}

// find reads what the cache has of an Attempt under its fence.
func (all *cached) find(a task.Attempt) found {
	var f found
	key, fence := decimal(a.ID), decimal(a.Fence)
	for _, obj := range indexed(all.jobs, a.Namespace, key) {
		if j, ok := obj.(*batchv1.Job); ok && j.Labels[LabelFence] == fence {
			f.jobs = append(f.jobs, j)
		}
	}
	for _, obj := range indexed(all.pods, a.Namespace, key) {
		if p, ok := obj.(*corev1.Pod); ok && p.Labels[LabelFence] == fence {
			f.pods = append(f.pods, p)
		}
	}
	return f
}

func indexed(informers map[string]*informer, namespace, key string) []any {
	in := or(informers[namespace], informers[""])
	if in == nil {
		return nil
	}
	objs, err := in.GetIndexer().ByIndex(byAttempt, key)
	if err != nil {
		return nil // only for an index that does not exist
	}
	return objs
}

// strip keeps what a task.Seen needs, and what Close does: of 10,000 active Tasks there are 10,000 Jobs and as many pods.
func strip(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		o.ObjectMeta = bareMeta(o.ObjectMeta)
		o.Spec = corev1.PodSpec{
			NodeName: shared(o.Spec.NodeName), ActiveDeadlineSeconds: o.Spec.ActiveDeadlineSeconds, InitContainers: bareSidecars(o.Spec.InitContainers),
		}
		o.Status = corev1.PodStatus{
			Phase: o.Status.Phase, Reason: o.Status.Reason, Message: o.Status.Message,
			Conditions: only(o.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.DisruptionTarget || c.Type == corev1.PodScheduled
			}),
			InitContainerStatuses: bareStatuses(o.Status.InitContainerStatuses),
			ContainerStatuses:     bareStatuses(o.Status.ContainerStatuses),
		}
	case *batchv1.Job:
		o.ObjectMeta = bareMeta(o.ObjectMeta)
		o.Spec = batchv1.JobSpec{Suspend: o.Spec.Suspend, BackoffLimit: o.Spec.BackoffLimit}
		o.Status = batchv1.JobStatus{Conditions: o.Status.Conditions, StartTime: o.Status.StartTime}
	}
	return obj, nil
}

func bareMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: shared(m.Namespace), UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: bareLabels(m.Labels),
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Finalizers: only(m.Finalizers, func(f string) bool { return f == Finalizer }),
	}
}

// bareLabels keeps the labels that tell whose an object is, and its state.
func bareLabels(all map[string]string) map[string]string {
	bare := map[string]string{LabelTask: all[LabelTask], LabelAttempt: all[LabelAttempt], LabelFence: all[LabelFence]}
	for _, key := range []string{LabelManagedBy, LabelInstance, LabelState} {
		bare[key] = shared(all[key])
	}
	return bare
}

// shared is text that many objects have, held once.
func shared(text string) string { return unique.Make(text).Value() }

func only[T any](all []T, keep func(T) bool) []T {
	var kept []T
	for _, one := range all {
		if keep(one) {
			kept = append(kept, one)
		}
	}
	return kept
}

// bareSidecars keeps which init containers run beside the others.
func bareSidecars(all []corev1.Container) []corev1.Container {
	var bare []corev1.Container
	for _, c := range all {
		if c.RestartPolicy != nil {
			bare = append(bare, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy})
		}
	}
	return bare
}

func bareStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	bare := make([]corev1.ContainerStatus, len(all))
	for i, s := range all {
		bare[i] = corev1.ContainerStatus{Name: s.Name, State: s.State}
	}
	return bare
}
