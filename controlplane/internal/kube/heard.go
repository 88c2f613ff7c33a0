package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"slipway.dev/slipway/controlplane/internal/loop"
)

// informer is a shared informer that knows when it was last heard.
type informer struct {
	cache.SharedIndexInformer
	namespace string // empty: all of them
	gap       *gap
	renew     time.Duration
	heard     atomic.Int64 // Unix nanoseconds by the local clock; 0: never
	shut      atomic.Bool  // the server forbids it
}

// errSilent is a watch that the server did not end when it was told to.
var errSilent = errors.New("the watch is silent")

// tell notes how a call of a list or a watch went.
func (in *informer) tell(ctx context.Context, err error) {
	switch {
	case err == nil:
		in.heard.Store(time.Now().UnixNano())
		in.gap.end(in)
		in.gap.reopen(in)
	case apierrors.IsForbidden(err):
		in.gap.end(in)
		in.gap.shut(in, err)
	case !errors.Is(ctx.Err(), context.Canceled): // not on the way out
		in.gap.begin(in, err)
	}
}

// watch begins a watch that the server is told to end after a while, so that the next one proves that it is heard: an
// ended watch goes on from where it was. One that is not ended in time is given up.
func (in *informer) watch(ctx context.Context, o metav1.ListOptions, begin func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	life := loop.Jitter(in.renew, 0.25)
	o.TimeoutSeconds = new(max(seconds(life), 1))
	bounded, cancel := context.WithTimeout(ctx, life+in.renew/3+time.Second)
	source, err := begin(bounded, o)
	in.tell(ctx, err)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &heard{Interface: source, in: in, ctx: bounded, cancel: cancel, out: make(chan watch.Event), stopped: make(chan struct{})}
	if o.SendInitialEvents == nil || !*o.SendInitialEvents {
		w.newest = o.ResourceVersion
	}
	go w.run()
	return w, nil
}

// heard is a watch whose events are noted and whose silence is found. An event that is older than one before it is left
// out: a server sends them in order, and what stands in between may not.
type heard struct {
	watch.Interface
	in      *informer
	ctx     context.Context // of the whole watch
	cancel  context.CancelFunc
	out     chan watch.Event
	once    sync.Once
	stopped chan struct{}
	newest  string // resource version; empty while the initial events come, in any order
}

// ResultChan implements watch.Interface.
func (w *heard) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *heard) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.Interface.Stop()
	w.cancel()
}

func (w *heard) run() {
	defer close(w.out)
	for e := range w.Interface.ResultChan() {
		if e.Type == watch.Error {
			w.in.tell(w.ctx, apierrors.FromObject(e.Object))
		} else {
			w.in.tell(w.ctx, nil)
		}
		if w.older(e) {
			continue
		}
		select {
		case w.out <- e:
		case <-w.stopped:
			return
		}
	}
	if errors.Is(w.ctx.Err(), context.DeadlineExceeded) {
		w.in.tell(w.ctx, errSilent)
	}
}

// older reports whether e comes too late, and remembers how far the watch is.
func (w *heard) older(e watch.Event) bool {
	object, err := meta.Accessor(e.Object)
	if err != nil || e.Type == watch.Error {
		return false
	}
	version := object.GetResourceVersion()
	if w.newest == "" {
		if e.Type == watch.Bookmark && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			w.newest = version
		}
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, w.newest)
	if err != nil {
		return false // a server that counts in its own way
	}
	if order > 0 {
		w.newest = version
	}
	return order < 0
}

// SyncAge tells how long the quietest of the watches has not been heard; ok is false until each was filled once. A
// healthy one is renewed every 40 s at the latest. Those of a namespace that is shut do not count.
func (c *Client) SyncAge() (age time.Duration, ok bool) {
	for _, in := range c.cache.informers() {
		if in.shut.Load() {
			continue
		}
		heard := in.heard.Load()
		if heard == 0 || !in.HasSynced() {
			return 0, false
		}
		age = max(age, time.Since(time.Unix(0, heard)))
	}
	return age, true
}

// Gap tells for how long some watch is known to be broken; 0: none is.
func (c *Client) Gap() time.Duration { return c.cache.gap.age() }

// Shut names the namespaces in which the server forbids to look: deleted, or not enabled any more. One tenant's
// namespace is no reason to hold up the others. Nothing is decided there meanwhile: that takes a live read.
func (c *Client) Shut() []string {
	var names []string
	for _, in := range c.cache.informers() {
		if in.shut.Load() {
			names = append(names, or(in.namespace, "all namespaces"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Reopened says that a namespace which was shut is heard again: fences may stand there that nobody compared.
func (c *Client) Reopened() <-chan struct{} { return c.cache.gap.reopened }

// gap is a time in which some watch is broken. It is told in one line when it begins and in one when it is over.
type gap struct {
	log *slog.Logger

	mu     sync.Mutex
	since  time.Time // zero: there is none
	broken map[*informer]bool

	reopened chan struct{} // holds one
}

func newGap(log *slog.Logger) *gap {
	return &gap{log: log, broken: map[*informer]bool{}, reopened: make(chan struct{}, 1)}
}

func (g *gap) shut(in *informer, why error) {
	if in.shut.CompareAndSwap(false, true) {
		g.log.Warn("a namespace is shut: nothing is seen or launched there", "namespace", in.namespace, "error", why)
	}
}

func (g *gap) reopen(in *informer) {
	if !in.shut.CompareAndSwap(true, false) {
		return
	}
	g.log.Info("a namespace is open again", "namespace", in.namespace)
	select {
	case g.reopened <- struct{}{}:
	default:
	}
}

func (g *gap) begin(in *informer, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken[in] = true
	if g.since.IsZero() {
		g.since = time.Now()
		g.log.Warn("the cluster is not heard", "error", why)
	}
}

func (g *gap) end(in *informer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.broken[in] {
		return
	}
	delete(g.broken, in)
	if len(g.broken) == 0 {
		g.log.Info("the cluster is heard again", "after", fmt.Sprint(time.Since(g.since).Round(time.Millisecond)))
		g.since = time.Time{}
	}
}

func (g *gap) age() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.since.IsZero() {
		return 0
	}
	return time.Since(g.since)
}
