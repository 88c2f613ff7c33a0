package cases

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// The replacement starts while the old pod is still ending. Shrunk: the command takes 6 s to end after SIGTERM, not 45.
func TestCase14(t *testing.T) {
	replay(t, 14, "the next attempt waits until the old pod has ended, and says so", func(t *testing.T) {
		t.Run("on a real kubelet", func(t *testing.T) {
			r := rig.New(t, rig.Options{Profile: local.Node})
			user := r.User(t, r.Namespace())
			seen := watchPods(t, r)
			var all sync.WaitGroup
			all.Go(func() { deletedByHand(t, r, user, "volume:"+r.Namespace()+"/deleted", 0) })
			all.Go(func() { deletedByHand(t, r, user, "volume:"+r.Namespace()+"/own-retries", 6) })
			all.Go(func() { canceledAndFollowed(t, r, user, "volume:"+r.Namespace()+"/canceled") })
			all.Wait()
			nothingLeft(t, r)
			seen.check(t, user, 3)
		})
		t.Run("on a node without a kubelet", staysTerminating)
	})
}

// slowToStop is a Task in a lane whose first Attempt does not mind SIGTERM for a while; the others end at once.
func slowToStop(namespace, lane string) map[string]any {
	seconds, grace := 6, 12
	if full {
		seconds, grace = 45, 60
	}
	line := fmt.Sprintf(`[ "$SLIPWAY_ATTEMPT_NUMBER" = 1 ] || exit 0; trap 'sleep %d; exit 7' TERM; sleep 600 & wait`, seconds)
	submit := shell(namespace, line, map[string]any{"idempotent": true, "grace": grace, "retry": map[string]any{"attempts": 3, "backoff": 0}})
	submit["lane"] = lane
	return submit
}

// saysStopping waits until the view of a Task says that it waits for the first Attempt, and for how long at most.
func saysStopping(t *testing.T, user *rig.User, id, reason string) {
	t.Helper()
	user.Until(t, id, "to say what it waits for", func(now api.Task) bool {
		return now.Waiting != nil && now.Waiting.Reason == reason && strings.HasPrefix(now.Waiting.Note, "waiting for attempt 1 to stop, at most ")
	})
}

func deletedByHand(t *testing.T, r *rig.Rig, user *rig.User, lane string, ownRetries int) {
	id := user.Submit(t, slowToStop(r.Namespace(), lane)).ID
	first := user.Until(t, id, "to be started", started).Attempt
	if ownRetries > 0 {
		patch := fmt.Appendf(nil, `{"spec":{"backoffLimit":%d}}`, ownRetries)
		if _, err := r.Kube.BatchV1().Jobs(r.Namespace()).Patch(t.Context(), first.Job.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Errorf("give a Job its own retries: %v", err)
		}
	}
	r.Kubectl(t, "delete", "pod", "--namespace", r.Namespace(), "--wait=false", first.Pod.Name)
	saysStopping(t, user, id, "stopping")
	if n := len(user.Attempts(t, id)); n != 1 {
		t.Errorf("%s: %d attempts while the first one stops", lane, n)
	}
	ended := user.Await(t, id)
	attempts := user.Attempts(t, id)
	if ended.State != api.StateSucceeded || len(attempts) != 2 || ended.Spent.Lost != 1 {
		t.Errorf("%s: it ended %s after %d attempts, spent %+v", lane, ended.State, len(attempts), ended.Spent)
		return
	}
	if attempts[0].Outcome != api.OutcomeLost || attempts[0].Reason != "deleted" || attempts[0].Job.Name == attempts[1].Job.Name {
		t.Errorf("%s: the first ended %s/%s as Job %s, the second is Job %s", lane, attempts[0].Outcome, attempts[0].Reason, attempts[0].Job.Name, attempts[1].Job.Name)
	}
}

func canceledAndFollowed(t *testing.T, r *rig.Rig, user *rig.User, lane string) {
	id := user.Submit(t, slowToStop(r.Namespace(), lane)).ID
	r.Kubectl(t, "delete", "pod", "--namespace", r.Namespace(), "--wait=false", user.Until(t, id, "to be started", started).Attempt.Pod.Name)
	user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil, http.StatusAccepted)
	if p := decodeProblem(t, user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/retry", nil, http.StatusConflict)); !strings.HasSuffix(p.Type, ":not_ended") {
		t.Errorf("a retry of what still stops: %+v", p)
	}
	next := slowToStop(r.Namespace(), lane)
	next["params"] = map[string]any{"command": []string{"true"}}
	after := user.Submit(t, next).ID
	saysStopping(t, user, id, "stopping")
	saysStopping(t, user, after, "lane")
	if ended := user.Await(t, id); ended.State != api.StateCanceled {
		t.Errorf("%s: it ended %s/%s", lane, ended.State, ended.Reason)
	}
	if ended := user.Await(t, after); ended.State != api.StateSucceeded {
		t.Errorf("%s: what came after it ended %s/%s", lane, ended.State, ended.Reason)
	}
	again := taskOf(t, user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/retry", nil, http.StatusCreated))
	user.Must(t, http.MethodPost, "/v1/tasks/"+again.ID+"/cancel", nil, http.StatusOK, http.StatusAccepted)
	user.Await(t, again.ID)
}

// staysTerminating deletes the pod of a Node that has no kubelet: it stays, and so does its lane.
func staysTerminating(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.API})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	submit := slowToStop(ns, "volume:"+ns+"/x")
	id := user.Submit(t, submit).ID
	pod := r.Pod(t, ns, user.JobOf(t, id))
	r.Bind(t, pod)
	r.Run(t, pod)
	r.StartRunner(t, pod)
	behind := user.Submit(t, submit).ID
	r.Kubectl(t, "delete", "pod", "--namespace", ns, "--wait=false", pod.Name)
	saysStopping(t, user, id, "stopping")
	saysStopping(t, user, behind, "lane")
	if made := r.JobsCreated(t, ns); len(made) != 1 {
		t.Errorf("Jobs were created: %v", made)
	}
	r.Exit(t, pod, 7, "")
	next := user.Until(t, id, "to be tried again", func(now api.Task) bool {
		return now.Attempt != nil && now.Attempt.Number == 2 && now.Attempt.Job != nil && now.Attempt.Job.Name != ""
	})
	if next.Attempt.Job.Name == pod.Labels["batch.kubernetes.io/job-name"] {
		t.Errorf("the second attempt is Job %s too", next.Attempt.Job.Name)
	}
}

// podTimes are when the containers of pods ran, as the kubelet says.
type podTimes struct {
	mu   sync.Mutex
	pods map[types.UID]podTime
}

type podTime struct {
	name, task string
	from, to   time.Time
}

// watchPods notes the times of all pods of the rig's namespace until the test has ended.
func watchPods(t *testing.T, r *rig.Rig) *podTimes {
	t.Helper()
	times := &podTimes{pods: map[types.UID]podTime{}}
	ctx, cancel := context.WithCancel(context.Background())
	events, err := r.Kube.CoreV1().Pods(r.Namespace()).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatalf("watch pods: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok {
				times.note(p)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		events.Stop()
		<-done
	})
	return times
}

func (s *podTimes) note(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := podTime{name: p.Name, task: p.Labels["slipway.dev/task"]}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil {
			seen.from = c.State.Running.StartedAt.Time
		}
		if end := c.State.Terminated; end != nil {
			seen.from, seen.to = end.StartedAt.Time, end.FinishedAt.Time
		}
	}
	if !seen.from.IsZero() {
		s.pods[p.UID] = seen
	}
}

// check wants at least so many lanes, and no two pods of one lane at the same time.
func (s *podTimes) check(t *testing.T, user *rig.User, lanes int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string][]podTime{}
	for _, p := range s.pods {
		if p.to.IsZero() {
			t.Errorf("pod %s was never seen to end", p.name)
		}
		lane := user.Task(t, p.task).Lane
		for _, other := range seen[lane] {
			if p.from.Before(other.to) && other.from.Before(p.to) {
				t.Errorf("pods %s and %s of lane %s ran at the same time", p.name, other.name, lane)
			}
		}
		seen[lane] = append(seen[lane], p)
	}
	if len(seen) < lanes {
		t.Errorf("pods of %d lanes were seen, want %d", len(seen), lanes)
	}
}
