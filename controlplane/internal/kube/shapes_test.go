package kube

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"slipway.dev/slipway/pkg/task"
)

// shape is what the cluster holds of one Attempt, as Kubernetes' own objects.
type shape struct {
	name string
	job  *batchv1.Job
	pods []*corev1.Pod
	node *corev1.Node // of its pods; nil: deleted
}

// The clock of the shapes.
var shapeTime = time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)

func shapeAt(d time.Duration) metav1.Time { return metav1.NewTime(shapeTime.Add(d)) }

// TestShapesAreSeenAsTheGoldenFileShows holds the way from Kubernetes' objects to a task.Seen; pkg/task judges the same
// file, so that together they hold the whole way from a kubelet's word to a verdict.
func TestShapesAreSeenAsTheGoldenFileShows(t *testing.T) {
	var got bytes.Buffer
	for _, sh := range shapes() {
		s := task.Seen{Live: true}
		if sh.job != nil {
			seen := seenJob(sh.job)
			s.Job = &seen
			if bare := seenJob(stripped(t, sh.job)); bare != seen {
				t.Errorf("%s: the cache shows the Job as %+v, the server as %+v", sh.name, bare, seen)
			}
		}
		for _, p := range sh.pods {
			seen := seenPod(p)
			s.Pods = append(s.Pods, seen)
			if diff := cmp.Diff(seen, seenPod(stripped(t, p))); diff != "" {
				t.Errorf("%s: cache and server show the pod differently (-server +cache):\n%s", sh.name, diff)
			}
		}
		a := task.Attempt{ID: 7, PodUID: "pod-1", Node: "node"}
		noteNodes(a, &s, func(string) nodeState {
			if sh.node == nil {
				return nodeState{gone: true}
			}
			return stateOf(sh.node)
		})
		got.Write(rendered(t, sh.name, s))
	}
	compareGolden(t, filepath.Join("..", "..", "..", "pkg", "task", "testdata", "shapes.jsonl"), got.String())
}

func stripped[T interface{ DeepCopy() T }](t *testing.T, obj T) T {
	t.Helper()
	bare, err := strip(obj.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	return bare.(T) //nolint:forcetypeassert // strip gives back what it got
}

// rendered is a shape in one line, without what is zero.
func rendered(t *testing.T, name string, s task.Seen) []byte {
	t.Helper()
	raw, err := json.Marshal(struct {
		Name string
		Seen task.Seen
	}{name, s})
	var value any
	if err == nil {
		err = json.Unmarshal(raw, &value)
	}
	if err == nil {
		raw, err = json.Marshal(without(value))
	}
	if err != nil {
		t.Fatal(err)
	}
	return append(raw, '\n')
}

// without drops zero values; an empty object stays, since a pointer to one says something.
func without(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			switch inner = without(inner); inner {
			case nil, "", 0.0, false, "0001-01-01T00:00:00Z":
				delete(v, key)
			default:
				v[key] = inner
			}
		}
		return v
	case []any:
		for i := range v {
			v[i] = without(v[i])
		}
		return &v
	}
	return value
}

// A relist that finds an object gone tells its last known state; the key is in it.
func TestATombstoneTellsItsAttempt(t *testing.T) {
	c := paperClient(t)
	var told []int64
	look := func(attempt int64) { told = append(told, attempt) }
	c.cache.look.Store(&look)
	a := task.Attempt{ID: 77, TaskID: "x", Fence: 4711, Kind: "command.run"}
	for _, obj := range []any{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop", Labels: c.labels(a)}},
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "shop", Labels: c.labels(a)}},
	} {
		c.cache.handler().OnDelete(cache.DeletedFinalStateUnknown{Key: "shop/x", Obj: obj})
	}
	c.cache.handler().OnDelete(cache.DeletedFinalStateUnknown{Key: "shop/y"})
	if len(told) != 2 || told[0] != 77 || told[1] != 77 {
		t.Errorf("told %v, want attempt 77 twice", told)
	}
}

// Jobs.
func jobOf(change ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job-1", CreationTimestamp: shapeAt(0)},
		Status:     batchv1.JobStatus{StartTime: new(shapeAt(0))},
	}
	for _, f := range change {
		f(j)
	}
	return j
}

func jobDone(kind batchv1.JobConditionType) *batchv1.Job {
	return jobOf(func(j *batchv1.Job) {
		j.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue}}
	})
}

func jobGoing(held ...string) *batchv1.Job {
	return jobOf(func(j *batchv1.Job) { j.DeletionTimestamp, j.Finalizers = new(shapeAt(time.Minute)), held })
}

// Pods. The one of a shape is bound and has no status yet.
func podOf(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p1", UID: "pod-1", CreationTimestamp: shapeAt(0), Finalizers: []string{Finalizer}},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: MainContainer}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: shapeAt(time.Second)},
		}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func another(p *corev1.Pod) {
	p.Name, p.UID, p.CreationTimestamp = "p2", types.UID("pod-2"), shapeAt(time.Second)
}

func unbound(p *corev1.Pod) { p.Spec.NodeName, p.Status.Conditions = "", nil }

func unschedulable(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message}}
	}
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = new(shapeAt(time.Minute)) }

func foreign(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "example.com/hold") }

func says(phase corev1.PodPhase, reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason, p.Status.Message = phase, reason, message }
}

func disrupted(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason})
	}
}

// is gives a container a state; the main one where name is empty.
func is(state corev1.ContainerState, name ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		status := corev1.ContainerStatus{Name: MainContainer, State: state}
		if len(name) > 0 {
			status.Name = name[0]
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
	}
}

// before gives an init container a state.
func before(name string, state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: name, State: state})
	}
}

// beside gives a restartable init container a state.
func beside(name string, state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: name, State: state})
	}
}

func runs() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: shapeAt(2 * time.Second)}}
}

func waits(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func ends(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: shapeAt(2 * time.Second), FinishedAt: shapeAt(3 * time.Second),
	}}
}

// unfound is what the kubelet says of a container that it cannot find: it never started, or its state is lost.
func unfound() corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated",
	}}
}

// healthy is the Node of most shapes.
func healthy(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	for _, f := range change {
		f(n)
	}
	return n
}

func silentNode(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }

func outOfService(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
}
