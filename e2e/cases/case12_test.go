package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// A late finish overwrites the cancel. Shrunk unless FULL=1: 40 tasks of 200. An end travels longer than a cancel, by how
// much depends on the machine: the moment of the cancels follows who won, until both have been first.
func TestCase12(t *testing.T) {
	replay(t, 12, "each ends once: who is first, the end or the cancel, decides for good", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API, Replicas: 2, Env: map[string]string{"SLIPWAY_CALLER_RATE": "0"}})
		r.Exec(t, "UPDATE slipway.queues SET cap = 1000, ns_cap = 1000")
		user := r.User(t, r.Namespace())
		waves := 2
		if full {
			waves = 10
		}
		seed := uint64(time.Now().UnixNano())
		rnd := rand.New(rand.NewPCG(seed, 12))
		around, tried := aroundTheExit, score{}
		for wave := 0; wave < waves || !tried.both() && wave < waves+moreWaves; wave++ {
			all := make([]*contested, 20)
			for i := range all {
				all[i] = &contested{code: int32(i % 2), form: i / 2 % 4, after: around.draw(rnd)}
			}
			raceWave(t, r, user, all)
			won := score{}
			for i, c := range all {
				canceled := c.check(t, user)
				if t.Failed() {
					t.Fatalf("task %d of wave %d of seed %d: exit %d, form %d, cancel %v after its end; answers %v", i, wave, seed, c.code, c.form, c.after, c.answers)
				}
				if c.code == 0 { // the others have tries left: none of their exits is an end
					won.count(canceled)
				}
			}
			fmt.Fprintf(rig.Progress, "case 12: cancels %v to %v after the exits: %d ended first, %d were canceled first\n", around.from, around.to, won.ends, won.cancels)
			tried.ends, tried.cancels = tried.ends+won.ends, tried.cancels+won.cancels
			around = around.next(won)
		}
		if !tried.both() {
			t.Errorf("%d ended first, %d were canceled first: the race was not tried", tried.ends, tried.cancels)
		}
		nothingLeft(t, r)
	})
}

// moreWaves is how many waves more the race may take until both have been first.
const moreWaves = 12

// score counts who was first.
type score struct{ ends, cancels int }

func (s *score) count(canceled bool) {
	if canceled {
		s.cancels++
	} else {
		s.ends++
	}
}

// few is how often each has to be first for a race that was tried.
const few = 3

func (s score) both() bool { return s.ends >= few && s.cancels >= few }

// window is the time from which the moments of cancels are drawn, counted from the exits of their pods.
type window struct{ from, to time.Duration }

var aroundTheExit = window{-200 * time.Millisecond, 200 * time.Millisecond}

func (w window) draw(rnd *rand.Rand) time.Duration {
	return w.from + time.Duration(rnd.Int64N(int64(w.to-w.from)))
}

// next moves towards those who were rarely first. Where they never were, it goes on from where it was, twice as wide: the
// middle of the race can be nowhere else, and is reached soon wherever it is.
func (w window) next(won score) window {
	wide := w.to - w.from
	switch {
	case won.ends == 0:
		return window{w.to, w.to + 2*wide}
	case won.cancels == 0:
		return window{w.from - 2*wide, w.from}
	case won.ends < few:
		return window{w.from + wide/2, w.to + wide/2}
	case won.cancels < few:
		return window{w.from - wide/2, w.to - wide/2}
	}
	return w
}

func TestTheRaceOfCase12IsTriedOnFastAndSlowMachines(t *testing.T) {
	for middle := -5 * time.Second; middle <= 20*time.Second; middle += 130 * time.Millisecond {
		for seed := range uint64(20) {
			rnd := rand.New(rand.NewPCG(seed, 12))
			around, tried := aroundTheExit, score{}
			for wave := 0; wave < moreWaves && !tried.both(); wave++ {
				won := score{}
				for range 10 {
					// No two ends travel for quite as long.
					won.count(around.draw(rnd) < middle+time.Duration(rnd.Int64N(int64(100*time.Millisecond))))
				}
				tried.ends, tried.cancels = tried.ends+won.ends, tried.cancels+won.cancels
				around = around.next(won)
			}
			if !tried.both() {
				t.Errorf("ends travel %v longer, seed %d: %d ended first, %d were canceled first", middle, seed, tried.ends, tried.cancels)
			}
		}
	}
}

// contested is a Task that is canceled around the end of its pod.
type contested struct {
	code  int32
	form  int           // 0: two clients at once; 1: twice, one after the other; else once
	after time.Duration // from the exit of its pod to the cancel; less than none: before it

	id      string
	pod     *corev1.Pod
	mu      sync.Mutex
	answers []string // "status state"
}

// raceWave brings Tasks to work, and then ends and cancels them.
func raceWave(t *testing.T, r *rig.Rig, user *rig.User, wave []*contested) {
	t.Helper()
	var ready, done sync.WaitGroup
	for _, c := range wave {
		submit := rig.Command(r.Namespace(), "x")
		submit["spec"] = map[string]any{"idempotent": true, "retry": map[string]any{"attempts": 6, "backoff": 1}}
		c.id = user.Submit(t, submit).ID
		ready.Go(func() {
			c.pod = r.Pod(t, r.Namespace(), user.JobOf(t, c.id))
			r.Bind(t, c.pod)
			r.Run(t, c.pod)
			r.StartRunner(t, c.pod)
		})
	}
	ready.Wait()
	if t.Failed() {
		t.FailNow()
	}
	// The moments are what is tested: nothing is waited for here.
	for _, c := range wave {
		done.Go(func() {
			time.Sleep(-c.after)
			r.Exit(t, c.pod, c.code, "")
		})
		done.Go(func() {
			time.Sleep(c.after)
			c.cancel(t, user)
			if c.form == 1 {
				c.cancel(t, user)
			}
		})
		if c.form == 0 {
			done.Go(func() {
				time.Sleep(c.after)
				c.cancel(t, user)
			})
		}
	}
	done.Wait()
}

func (c *contested) cancel(t *testing.T, user *rig.User) {
	a, err := user.Do(t.Context(), http.MethodPost, "/v1/tasks/"+c.id+"/cancel", nil)
	if err != nil {
		t.Error(err)
		return
	}
	var said struct{ State string }
	_ = json.Unmarshal(a.Body, &said) // what cannot be read has no state
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, fmt.Sprint(a.Status, " ", said.State))
}

// check tells whether the cancel was first, and that everything else agrees.
func (c *contested) check(t *testing.T, user *rig.User) (canceled bool) {
	t.Helper()
	ended := user.Await(t, c.id)
	taken, refused := 0, 0
	for _, answer := range c.answers {
		switch {
		case strings.HasPrefix(answer, "200 "), strings.HasPrefix(answer, "202 "):
			taken++
		case answer == "409 "+string(ended.State):
			refused++
		default:
			t.Errorf("a cancel was answered %s", answer)
		}
	}
	switch ended.State {
	case api.StateCanceled:
		if taken == 0 || refused > 0 || ended.CancelBy == "" {
			t.Errorf("it is canceled by %q", ended.CancelBy)
		}
	case api.StateSucceeded:
		if taken > 0 || c.code != 0 {
			t.Error("it succeeded")
		}
	default:
		t.Errorf("it is %s/%s: there were tries left, and a cancel", ended.State, ended.Reason)
	}
	for _, a := range user.Attempts(t, c.id) {
		if !ended.CancelAt.IsZero() && a.ClaimedAt.After(ended.CancelAt) {
			t.Errorf("attempt %d was claimed after the cancel", a.Number)
		}
	}
	if n := endings(t, user, c.id); n != 1 {
		t.Errorf("its history tells of %d ends", n)
	}
	return ended.State == api.StateCanceled
}

// endings counts how often the history of an ended Task says that it ended.
func endings(t *testing.T, user *rig.User, id string) int {
	t.Helper()
	n := 0
	rig.Eventually(t, "the history of task "+id, func(ctx context.Context) (bool, error) {
		a, err := user.Do(ctx, http.MethodGet, "/v1/tasks/"+id+"/events", nil)
		if err != nil {
			return false, err
		}
		var page api.EventPage
		if err := json.Unmarshal(a.Body, &page); err != nil {
			return false, err
		}
		n = 0
		for _, e := range page.Items {
			if e.Type == "succeeded" || e.Type == "failed" || e.Type == "canceled" {
				n++
			}
		}
		return n > 0, nil
	})
	return n
}

// nothingLeft waits until nothing in the rig's namespaces, whose Tasks have all ended, can run any more: no Job that
// could bring a pod, and no pod that has not ended.
func nothingLeft(t *testing.T, r *rig.Rig) {
	t.Helper()
	for _, ns := range r.Namespaces {
		rig.Eventually(t, "nothing to be left in "+ns, func(ctx context.Context) (bool, error) {
			jobs, err := r.Kube.BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for _, j := range jobs.Items {
				if j.DeletionTimestamp == nil && !jobEnded(j) {
					return false, fmt.Errorf("job %s is alive", j.Name)
				}
			}
			pods, err := r.Kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for _, p := range pods.Items {
				if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
					return false, fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
				}
			}
			return true, nil
		})
	}
}

func jobEnded(j batchv1.Job) bool {
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return true
		}
	}
	return false
}
