package kube

import (
	"context"
	"errors"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

// heard drains the keys told so far and reports whether attempt is among them, waiting for it.
func (r *rig) heard(attempt int64, bound time.Duration) {
	r.t.Helper()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for {
		select {
		case got := <-r.looks:
			if got == attempt {
				return
			}
		case <-timer.C:
			r.t.Fatalf("nobody told of attempt %d within %v", attempt, bound)
		}
	}
}

func (r *rig) quiet(bound time.Duration) {
	r.t.Helper()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case got := <-r.looks:
		r.t.Fatalf("told of attempt %d for nothing", got)
	case <-timer.C:
	}
}

func (r *rig) drain() {
	for {
		select {
		case <-r.looks:
		default:
			return
		}
	}
}

func TestTheWatchTellsOfEachChangeThatMatters(t *testing.T) {
	r := newRig(t)
	_, a, pod := r.launch()
	r.heard(a.ID, 10*time.Second)
	r.bind(pod)
	r.drain()
	r.running(pod)
	r.heard(a.ID, 10*time.Second)
	r.drain()

	// What a task.Seen does not show is not told.
	is := r.fresh(pod)
	is.Annotations = map[string]string{"x": "y"}
	have(server.api.CoreV1().Pods(r.namespace).Update(t.Context(), is, metav1.UpdateOptions{}))(t)
	r.eventually("the change in the cache", func(context.Context) bool {
		p := r.client.cache.pod(pod.Namespace, pod.Name)
		return p.ResourceVersion != pod.ResourceVersion
	})
	r.quiet(500 * time.Millisecond)

	r.ends(pod, corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"})
	r.heard(a.ID, 10*time.Second)
	if age, ok := r.client.SyncAge(); !ok || age > 40*time.Second {
		t.Errorf("sync age %v, %v", age, ok)
	}
}

func TestTheCacheShowsWhatTheServerShows(t *testing.T) {
	r := newRig(t)
	_, a, pod := r.launch()
	r.bind(pod)
	r.ends(pod, corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: "v1 1 2 started -"})
	r.eventually("the end of the job", func(context.Context) bool { s := r.observe(a, false); return s.Job != nil && s.Job.Ended })
	cached, live := r.observe(a, false), r.observe(a, true)
	cached.Live = true
	if !sameSeen(cached, live) {
		t.Errorf("cache %+v\nserver %+v", cached, live)
	}
	if c := live.Pods[0].Containers; len(c) != 1 || !c[0].Main || c[0].Terminated == nil || c[0].Terminated.Reason != "OOMKilled" {
		t.Errorf("containers %+v", c)
	}
	if live.Pods[0].Waited < 0 || live.Pods[0].Waited > time.Minute {
		t.Errorf("waited %v", live.Pods[0].Waited)
	}
}

func sameSeen(a, b task.Seen) bool {
	if len(a.Pods) != len(b.Pods) || (a.Job == nil) != (b.Job == nil) || a.Job != nil && *a.Job != *b.Job {
		return false
	}
	for i := range a.Pods {
		if a.Pods[i].UID != b.Pods[i].UID || a.Pods[i].Phase != b.Pods[i].Phase || len(a.Pods[i].Containers) != len(b.Pods[i].Containers) ||
			*a.Pods[i].Containers[0].Terminated != *b.Pods[i].Containers[0].Terminated {
			return false
		}
	}
	return true
}

func TestAnotherFenceIsAnotherAttempt(t *testing.T) {
	r := newRig(t)
	_, a, _ := r.launch()
	a.Fence++
	for _, live := range []bool{false, true} {
		if s := r.observe(a, live); s.Job != nil || len(s.Pods) != 0 {
			t.Errorf("live %v: shows another fence's objects", live)
		}
	}
}

func TestTwoSlipwaysInOneNamespaceDoNotTouchEachOther(t *testing.T) {
	r := newRig(t)
	other := r.newClient()
	looks := r.run(other)
	tk, a := r.attempt()
	name, _, err := r.client.Launch(t.Context(), tk, a)
	if err != nil {
		t.Fatal(err)
	}
	a.JobName = name
	r.pod(a)
	otherName, _, err := other.Launch(t.Context(), tk, a) // the same Task in both databases
	if err != nil || otherName == name {
		t.Fatalf("%q beside %q: %v", otherName, name, err)
	}
	r.eventually("the other's pod", func(ctx context.Context) bool {
		s, err := other.Observe(ctx, a, false)
		return err == nil && len(s.Pods) == 1
	})
	if got := len(r.observe(a, true).Pods); got != 1 {
		t.Fatalf("one sees %d pods", got)
	}
	if err := other.Remove(t.Context(), task.Trace{Attempt: a.ID, Fence: a.Fence, Namespace: a.Namespace}); err != nil {
		t.Fatal(err)
	}
	if err := other.Halt(t.Context(), tk, a, time.Hour); err != nil {
		t.Fatal(err)
	}
	if s := r.observe(a, true); s.Job == nil || s.Job.Deleting || len(s.Pods) != 1 || s.Pods[0].Deleting {
		t.Errorf("the other's removal was felt: %+v", s)
	}
	if traces := r.client.Traces(); len(traces) != 1 {
		t.Errorf("one knows %d traces", len(traces))
	}
	if len(looks) == 0 {
		t.Error("the other heard nothing of its own")
	}
}

func TestTracesNameWhatIsOpenAndTheLargestFence(t *testing.T) {
	r := newRig(t)
	_, a, _ := r.launch()
	_, b, pod := r.launch()
	r.bind(pod)
	r.ends(pod, corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed"})
	if err := r.client.Close(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	r.eventually("one trace", func(context.Context) bool { return len(r.client.Traces()) == 1 })
	if trace := r.client.Traces()[0]; trace.Attempt != a.ID || trace.Fence != a.Fence || trace.Namespace != r.namespace || trace.Name != a.JobName || trace.Age < 0 {
		t.Errorf("got %+v", trace)
	}
	// A closed Job's fence counts too: it must not be drawn again.
	if fence, err := r.client.MaxFence(t.Context()); err != nil || fence != b.Fence {
		t.Errorf("got %d, %v; want %d", fence, err, b.Fence)
	}
	if err := r.client.Remove(t.Context(), r.client.Traces()[0]); err != nil {
		t.Fatal(err)
	}
	r.eventually("no trace", func(context.Context) bool { return len(r.client.Traces()) == 0 })
	if made, err := r.client.MakeRoom(t.Context(), r.namespace, 5); err != nil || made != 1 || !r.jobGone(b) {
		t.Errorf("deleting closed jobs: %d, %v", made, err)
	}
	_, c, _ := r.launch()
	if err := server.api.BatchV1().Jobs(r.namespace).Delete(t.Context(), c.JobName, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationOrphan),
	}); err != nil {
		t.Fatal(err)
	}
	r.eventually("a pod without its Job", func(context.Context) bool { return r.jobGone(c) })
	if fence, err := r.client.MaxFence(t.Context()); err != nil || fence != c.Fence {
		t.Errorf("of a pod: got %d, %v; want %d", fence, err, c.Fence)
	}
}

func TestATokenNamesItsPodAndIsGoodForItsAudienceAlone(t *testing.T) {
	r := newRig(t)
	_, a, pod := r.launch()
	ctx := t.Context()
	token := func(account, audience string, bound *authenticationv1.BoundObjectReference) string {
		return have(server.api.CoreV1().ServiceAccounts(r.namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: new(int64(600)), BoundObjectRef: bound},
		}, metav1.CreateOptions{}))(t).Status.Token
	}
	bound := token("slipway-runner", "slipway-runner", &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID})
	id, ok, err := r.client.ReviewToken(ctx, bound, "slipway-runner")
	if err != nil || !ok || id.PodName != pod.Name || id.PodUID != string(pod.UID) || id.Namespace != r.namespace {
		t.Fatalf("got %+v, %v, %v", id, ok, err)
	}
	if _, ok, err := r.client.ReviewToken(ctx, bound, "slipway"); ok || err != nil {
		t.Errorf("another audience: %v, %v", ok, err)
	}
	if _, ok, err := r.client.ReviewToken(ctx, "nonsense", "slipway"); ok || err != nil {
		t.Errorf("nonsense: %v, %v", ok, err)
	}
	labels, err := r.client.PodOf(ctx, id.Namespace, id.PodName, id.PodUID)
	if err != nil || labels.Attempt != a.ID || labels.Fence != a.Fence || labels.TaskID != a.TaskID {
		t.Errorf("got %+v, %v", labels, err)
	}
	for what, err := range map[string]error{
		"another uid": second(r.client.PodOf(ctx, id.Namespace, id.PodName, "x")),
		"no such pod": second(r.client.PodOf(ctx, id.Namespace, "x", "x")),
	} {
		if !errors.Is(err, task.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[A any](_ A, err error) error { return err }

func TestAccessIsKubernetesOwn(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	have(server.api.RbacV1().Roles(r.namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "submitter"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"slipway.dev"}, Resources: []string{"tasks", "tasks/cancel"}, Verbs: []string{"create"}}},
	}, metav1.CreateOptions{}))(t)
	have(server.api.RbacV1().RoleBindings(r.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "submitter"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "submitter"},
		Subjects:   []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "shop-team"}},
	}, metav1.CreateOptions{}))(t)
	id := Identity{User: "anna", Groups: []string{"shop-team"}, Extra: map[string][]string{"k": {"v"}}}
	create := Access{Verb: "create", Group: "slipway.dev", Resource: "tasks", Namespace: r.namespace}
	allowed := func(id Identity, a Access) bool {
		ok, _, err := r.client.Allowed(ctx, id, a)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	r.eventually("the right to create", func(context.Context) bool { return allowed(id, create) })
	sub, elsewhere, everywhere, read := create, create, create, create
	sub.Subresource, elsewhere.Namespace, everywhere.Namespace, read.Verb = "cancel", "default", "", "get"
	if !allowed(id, sub) {
		t.Error("the subresource is not allowed")
	}
	for what, a := range map[string]Access{"another namespace": elsewhere, "all namespaces": everywhere, "another verb": read} {
		if allowed(id, a) {
			t.Errorf("%s is allowed", what)
		}
	}
	if allowed(Identity{User: "bert"}, create) {
		t.Error("somebody else is allowed")
	}
}
