package kube

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"slipway.dev/slipway/pkg/task"
)

// rig is one namespace of the real API server with a Client that has the control plane's rights in it and no others.
type rig struct {
	t         *testing.T
	namespace string
	client    *Client
	looks     chan int64
}

// controlPlane is the account that the manifests give rights to.
const controlPlane = "system:serviceaccount:slipway-system:slipway"

var numbers atomic.Int64

func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	server.start(t)
	r := &rig{t: t, namespace: "test-" + string(uuid.NewUUID())[:13]}
	r.makeNamespace(r.namespace, nil)
	r.client = r.newClient(change...)
	r.looks = r.run(r.client)
	return r
}

func (r *rig) makeNamespace(name string, labels map[string]string) {
	r.t.Helper()
	ctx, api := r.t.Context(), server.api
	have(api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}))(r.t)
	r.t.Cleanup(func() { r.dropNamespace(name) })
	have(api.CoreV1().ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "slipway-runner"}}, metav1.CreateOptions{}))(r.t)
	have(api.RbacV1().RoleBindings(name).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "slipway-launcher"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "slipway-launcher"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "slipway-system", Name: "slipway"}},
	}, metav1.CreateOptions{}))(r.t)
	r.eventually("the default service account", func(ctx context.Context) bool {
		_, err := api.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
}

// dropNamespace deletes a namespace and takes our finalizer off what is left in it.
func (r *rig) dropNamespace(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	api := server.api
	_ = api.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}) // best effort: the cluster goes too
	pods, err := api.CoreV1().Pods(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, p := range pods.Items {
		p.Finalizers = nil
		_, _ = api.CoreV1().Pods(name).Update(ctx, &p, metav1.UpdateOptions{})
		_ = api.CoreV1().Pods(name).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	}
}

func (r *rig) newClient(change ...func(*Config)) *Client {
	r.t.Helper()
	access := rest.CopyConfig(server.admin)
	access.Impersonate = rest.ImpersonationConfig{
		UserName: controlPlane, Groups: []string{"system:serviceaccounts", "system:authenticated"},
	}
	cfg := Config{
		REST: access, Instance: string(uuid.NewUUID()), Namespaces: []string{r.namespace},
		RunnerImage: "registry.example/runner:1", RunnerURL: "http://slipway.slipway-system:8080",
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// run starts the watches of c, and hands out the keys that they tell.
func (r *rig) run(c *Client) chan int64 {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	looks, done := make(chan int64, 1000), make(chan error, 1)
	go func() { done <- c.Run(ctx, func(attempt int64) { looks <- attempt }) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	wait, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	if err := c.WaitSynced(wait); err != nil {
		r.t.Fatal(err)
	}
	return looks
}

// attempt makes a Task and an Attempt that nobody else has.
func (r *rig) attempt(change ...func(*task.Task)) (task.Task, task.Attempt) {
	n := numbers.Add(1)
	spec := task.DefaultSpec()
	t := task.Task{
		ID: string(uuid.NewUUID()), Seq: n, Kind: "command.run", Namespace: r.namespace, Class: task.Normal,
		Params: []byte(`{"command":["echo","a secret word"]}`), Spec: spec,
	}
	for _, f := range change {
		f(&t)
	}
	return t, task.Attempt{
		ID: n, TaskID: t.ID, Number: 1, Fence: 1000 + n, Lane: "lane:" + t.ID, Namespace: r.namespace, Kind: t.Kind, State: task.Leased,
	}
}

// launch creates the Job of a new Attempt and waits for its pod.
func (r *rig) launch(change ...func(*task.Task)) (task.Task, task.Attempt, *corev1.Pod) {
	r.t.Helper()
	t, a := r.attempt(change...)
	name, uid, err := r.client.Launch(r.t.Context(), t, a)
	if err != nil {
		r.t.Fatal(err)
	}
	a.JobName, a.JobUID, a.State = name, uid, task.Launched
	return t, a, r.pod(a)
}

// pod waits until the cache has a pod of a.
func (r *rig) pod(a task.Attempt) *corev1.Pod {
	r.t.Helper()
	var name string
	r.eventually("a pod of attempt "+fmt.Sprint(a.ID), func(ctx context.Context) bool {
		s, err := r.client.Observe(ctx, a, false)
		if err != nil || len(s.Pods) == 0 {
			return false
		}
		name = s.Pods[0].Name
		return true
	})
	return have(server.api.CoreV1().Pods(r.namespace).Get(r.t.Context(), name, metav1.GetOptions{}))(r.t)
}

// bind plays the scheduler.
func (r *rig) bind(p *corev1.Pod) {
	r.t.Helper()
	r.bindTo(p, "paper")
}

func (r *rig) bindTo(p *corev1.Pod, node string) {
	r.t.Helper()
	err := server.api.CoreV1().Pods(p.Namespace).Bind(r.t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.sees(p, func(s task.SeenPod) bool { return s.Node == node })
}

// running plays the kubelet of a bound pod.
func (r *rig) running(p *corev1.Pod) {
	r.t.Helper()
	r.status(p, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
}

// ends plays the kubelet of a pod whose container has terminated.
func (r *rig) ends(p *corev1.Pod, end corev1.ContainerStateTerminated) {
	r.t.Helper()
	phase := corev1.PodSucceeded
	if end.ExitCode != 0 {
		phase = corev1.PodFailed
	}
	r.status(p, phase, corev1.ContainerState{Terminated: &end})
}

func (r *rig) status(p *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) {
	r.t.Helper()
	r.tell(p, phase, state)
	r.sees(p, func(s task.SeenPod) bool { return s.Phase == string(phase) })
}

// tell writes a pod's status as its kubelet would.
func (r *rig) tell(p *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) {
	r.t.Helper()
	pods := server.api.CoreV1().Pods(p.Namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := pods.Get(r.t.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Status.Phase = phase
		now.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: MainContainer, Image: "x", ImageID: "x", State: state}}
		_, err = pods.UpdateStatus(r.t.Context(), now, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// sees waits until the cache shows a pod as wished.
func (r *rig) sees(p *corev1.Pod, wish func(task.SeenPod) bool) {
	r.t.Helper()
	r.eventually("a change of pod "+p.Name, func(context.Context) bool {
		cached := r.client.cache.pod(p.Namespace, p.Name)
		return cached != nil && wish(seenPod(cached))
	})
}

func (r *rig) job(a task.Attempt) *batchv1.Job {
	r.t.Helper()
	return have(server.api.BatchV1().Jobs(a.Namespace).Get(r.t.Context(), a.JobName, metav1.GetOptions{}))(r.t)
}

func (r *rig) observe(a task.Attempt, live bool) task.Seen {
	r.t.Helper()
	s, err := r.client.Observe(r.t.Context(), a, live)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// eventually asks again and again, for at most 20 s.
func (r *rig) eventually(what string, ask func(context.Context) bool) {
	r.t.Helper()
	within(r.t, 20*time.Second, what, ask)
}

func within(t *testing.T, bound time.Duration, what string, ask func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ask(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("no %s within %v", what, bound)
		}
	}
}

// have turns an error into the end of the test: have(call())(t).
func have[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func closeIdle(rt http.RoundTripper) { utilnet.CloseIdleConnectionsFor(rt) }
