package hollow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Options say what New makes.
type Options struct {
	Kube       kubernetes.Interface // with the rights of the administrator
	Namespaces []string             // whose pods are run
	Nodes      int
	Programs   map[string]string // every image: path inside to file on this machine
	Entrypoint []string          // of every image
	Service    string            // host:port at which pods are told to call the control plane
	Host       string            // an address of this machine to listen on
	Dir        string            // for root folders
	Seed       uint64
}

// Fleet is a number of hollow nodes.
type Fleet struct {
	o     Options
	group sync.WaitGroup

	mu         sync.Mutex
	nodes      []*Node // that are there
	made       int
	lives      map[types.UID]*life
	binding    map[types.UID]bool
	random     *rand.Rand
	hindrances []Hindrance
}

// New makes a Fleet; Run runs it.
func New(o Options) *Fleet {
	return &Fleet{
		o: o, lives: map[types.UID]*life{}, binding: map[types.UID]bool{},
		random: rand.New(rand.NewPCG(o.Seed, 1)),
	}
}

// Run plays until ctx ends, and returns once every process of a container is gone.
func (f *Fleet) Run(ctx context.Context) error {
	if err := f.unpack(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer f.group.Wait()
	defer cancel()
	for range f.o.Nodes {
		if err := f.join(ctx); err != nil {
			return err
		}
	}
	var stops []func()
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	for _, namespace := range f.o.Namespaces {
		factory := informers.NewSharedInformerFactoryWithOptions(f.o.Kube, 0, informers.WithNamespace(namespace))
		if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { f.see(ctx, o) },
			UpdateFunc: func(_, o any) { f.see(ctx, o) },
			DeleteFunc: f.vanished,
		}); err != nil {
			return fmt.Errorf("watch pods: %w", err)
		}
		factory.Start(ctx.Done())
		stops = append(stops, factory.Shutdown)
	}
	<-ctx.Done()
	return nil
}

// unpack lays the image down once; roots are made of links to it.
func (f *Fleet) unpack() error {
	if err := os.MkdirAll(filepath.Join(f.o.Dir, "logs"), 0o700); err != nil {
		return fmt.Errorf("make a folder for logs: %w", err)
	}
	for inside, file := range f.o.Programs {
		if err := copyFile(file, filepath.Join(f.o.Dir, "image", inside)); err != nil {
			return fmt.Errorf("lay down the image: %w", err)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// see takes what the watch shows of a pod.
func (f *Fleet) see(ctx context.Context, o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.lives[pod.UID]; l != nil {
		l.show(pod)
		return
	}
	if pod.Spec.NodeName == "" {
		if pod.DeletionTimestamp == nil && !f.binding[pod.UID] {
			f.binding[pod.UID] = true
			f.group.Go(func() { f.bind(ctx, pod) })
		}
		return
	}
	if over(pod) {
		return
	}
	for _, n := range f.nodes {
		if n.Name == pod.Spec.NodeName {
			l := newLife(n, pod)
			f.lives[pod.UID] = l
			f.group.Go(func() { l.run(n.ctx) })
			return
		}
	}
	if f.ours(pod.Spec.NodeName) && pod.DeletionTimestamp == nil {
		f.group.Go(func() { f.collect(ctx, pod) }) // it was bound to a node that has just gone
	}
}

// ours tells the names of nodes that are or were of this fleet.
func (f *Fleet) ours(node string) bool { return strings.HasPrefix(node, f.prefix()) }

func (f *Fleet) prefix() string { return "hollow-" + f.o.Namespaces[0] + "-" }

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (f *Fleet) vanished(o any) {
	if tomb, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tomb.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.binding, pod.UID)
	if l := f.lives[pod.UID]; l != nil {
		l.show(nil)
	}
}

func (f *Fleet) forget(l *life) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.lives, l.uid)
}

// bind puts a pod on a node, as the scheduler does. The scheduler is not on a node: it never loses the API server for
// good.
func (f *Fleet) bind(ctx context.Context, pod *corev1.Pod) {
	for ctx.Err() == nil {
		node := f.anyNode()
		if node == "" {
			nap(ctx, 100*time.Millisecond)
			continue
		}
		err := f.o.Kube.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		nap(ctx, 200*time.Millisecond)
	}
}

func (f *Fleet) anyNode() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ready []string
	for _, n := range f.nodes {
		if !n.isCut() {
			ready = append(ready, n.Name)
		}
	}
	if len(ready) == 0 {
		return ""
	}
	return ready[f.random.IntN(len(ready))]
}

// nap waits, or until ctx ends.
func nap(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
