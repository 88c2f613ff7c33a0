package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/pkg/handler"
)

// What the handlers read and write.
var (
	claims          = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	pods            = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	events          = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	configMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	snapshots       = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	contents        = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
	snapshotClasses = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"}
)

// Bounds.
const (
	callTimeout = 10 * time.Second // of one call
	rereadEvery = 20 * time.Second // of a watch, before what it shows is read anew
	// settleWithin is what is spent on leaving nothing behind once a handler has to stop: less than the default grace
	// period of 30 s.
	settleWithin = 20 * time.Second
	pageSize     = 500
)

// Handlers are the handlers of the kinds of this package, on the cluster that the pod runs in.
func Handlers() map[string]handler.Handler {
	return On(sync.OnceValues(inCluster))
}

// On is the same on another cluster.
func On(connect func() (dynamic.Interface, error)) map[string]handler.Handler {
	all := map[string]handler.Handler{}
	for kind, work := range map[string]func(*world, context.Context) (any, error){
		"volume.resize": (*world).resize, "volume.modify": (*world).modify, "volume.snapshot": (*world).snapshot,
		"volume.snapshot.delete": (*world).deleteSnapshot, "volume.snapshot.cleanup": (*world).cleanup,
	} {
		all[kind] = func(ctx context.Context, t handler.Task) (any, error) {
			api, err := connect()
			if err != nil {
				return nil, fmt.Errorf("connect to the cluster: %w", err)
			}
			w := &world{api: api, task: t, now: time.Now}
			return work(w, ctx)
		}
	}
	return all
}

// inCluster uses the pod's own service account.
func inCluster() (dynamic.Interface, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	return Connect(config)
}

// Connect makes a client as the handlers want it: without a limiter of its own, and with pings that find a dead connection
// within 15 s.
func Connect(config *rest.Config) (dynamic.Interface, error) {
	for name, seconds := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10", "HTTP2_PING_TIMEOUT_SECONDS": "5"} {
		if err := os.Setenv(name, seconds); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "slipway-runner"
	return dynamic.NewForConfig(config)
}

// world is one Attempt and its cluster.
type world struct {
	api  dynamic.Interface
	task handler.Task
	now  func() time.Time

	said string
}

func (w *world) in(what schema.GroupVersionResource) dynamic.ResourceInterface {
	return w.api.Resource(what).Namespace(w.task.Namespace)
}

// say tells how far it is, as progress, and in the log where the words have changed.
func (w *world) say(done, total int64, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.task.Progress(done, total, text)
	if text != w.said {
		w.said = text
		w.log("%s", text)
	}
}

func (w *world) log(format string, args ...any) {
	if w.task.Stdout != nil {
		_, _ = fmt.Fprintf(w.task.Stdout, format+"\n", args...) // a broken log cannot be reported anywhere
	}
}

// get reads one object; nil where there is none.
func (w *world) get(ctx context.Context, from dynamic.ResourceInterface, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := from.Get(ctx, name, metav1.GetOptions{})
	if missing(err) {
		return nil, nil
	}
	return found, err
}

// patch merges change into an object; with a version, only as it was read.
func (w *world) patch(ctx context.Context, in dynamic.ResourceInterface, name, version string, change map[string]any) error {
	_, err := w.patched(ctx, in, name, version, change)
	return err
}

// patched is the same, and gives the object as it is then.
func (w *world) patched(ctx context.Context, in dynamic.ResourceInterface, name, version string, change map[string]any) (*unstructured.Unstructured, error) {
	if version != "" {
		metadata, is := change["metadata"].(map[string]any)
		if !is {
			metadata = map[string]any{}
			change["metadata"] = metadata
		}
		metadata["resourceVersion"] = version
	}
	raw, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("write a patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return in.Patch(ctx, name, types.MergePatchType, raw, metav1.PatchOptions{})
}

func (w *world) create(ctx context.Context, in dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := in.Create(ctx, object, metav1.CreateOptions{})
	return err
}

// remove deletes the object that was read and no other of its name; with a version, only as it was read.
func (w *world) remove(ctx context.Context, from dynamic.ResourceInterface, read *unstructured.Unstructured, exactly bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	uid, version := read.GetUID(), read.GetResourceVersion()
	conditions := &metav1.Preconditions{UID: &uid}
	if exactly {
		conditions.ResourceVersion = &version
	}
	err := from.Delete(ctx, read.GetName(), metav1.DeleteOptions{Preconditions: conditions})
	if missing(err) {
		return nil
	}
	return err
}

// list reads all pages, or fails: what was read of a list that broke off is never given.
func (w *world) list(ctx context.Context, from dynamic.ResourceInterface, o metav1.ListOptions) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	o.Limit = pageSize
	for {
		page, err := w.page(ctx, from, o)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return all, nil
		}
	}
}

func (w *world) page(ctx context.Context, from dynamic.ResourceInterface, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return from.List(ctx, o)
}

// read turns an object into the fields that are looked at.
func read(from *unstructured.Unstructured, into any) error {
	raw, err := from.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", from.GetKind(), from.GetName(), err)
	}
	return nil
}

// settling gives a handler that has to stop the time to leave nothing behind. ok is false where it may not touch anything
// any more. A pod that is stopped does not know why: SIGTERM may come for a cancel before the heartbeat tells of it, so it
// leaves nothing behind either, and the next Attempt, if there is one, begins anew.
func settling(ctx context.Context) (settle context.Context, cancel context.CancelFunc, ok bool) {
	cause := context.Cause(ctx)
	for _, leave := range []error{handler.ErrFenced, handler.ErrStale} {
		if errors.Is(cause, leave) {
			return ctx, func() {}, false
		}
	}
	settle, cancel = context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	return settle, cancel, true
}
