package cases

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// Backoff grows until it wraps to zero. Shrunk: not every one of the 200 tries is made; the counter of those that are left
// out is set. Instead of a clock that is moved, each wait is cut short once it was read. The policy always doubles: a
// constant delay is a cap that equals the base, and a factor is refused.
func TestCase13(t *testing.T) {
	replay(t, 13, "delays never fall, never pass the cap, are never zero; a bad policy is refused by field", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API})
		user := r.User(t, r.Namespace())
		for retry, field := range map[string]string{
			`{"factor":1}`: "/spec/retry/factor", `{"factor":10}`: "/spec/retry/factor", `{"backoff":60,"cap":1}`: "/spec/retry/cap",
			`{"backoff":-1}`: "/spec/retry/backoff", `{"cap":-1}`: "/spec/retry/cap", `{"backoff":1e300}`: "/spec/retry/backoff",
			`{"cap":86401}`: "/spec/retry/cap", `{"attempts":0}`: "/spec/retry/attempts", `{"attempts":1001}`: "/spec/retry/attempts",
			`{"attempts":1.5}`: "/spec/retry/attempts", `{"lost":-1}`: "/spec/retry/lost", `{"backoff":"1s"}`: "/spec/retry/backoff",
		} {
			body := fmt.Sprintf(`{"kind":"command.run","namespace":%q,"params":{"command":["x"]},"spec":{"retry":%s}}`, r.Namespace(), retry)
			a := user.Must(t, http.MethodPost, "/v1/tasks", body, http.StatusBadRequest, http.StatusUnprocessableEntity)
			if p := decodeProblem(t, a); len(p.Errors) == 0 || p.Errors[0].Pointer != field {
				t.Errorf("%s: %s", retry, a.Body)
			}
		}
		var all sync.WaitGroup
		for _, policy := range []task.Retry{
			{Attempts: 1000, Backoff: 1, Cap: 60}, {Attempts: 1000, Backoff: 0, Cap: 60}, {Attempts: 1000, Backoff: 5, Cap: 5},
		} {
			all.Go(func() { failsAlways(t, r, user, policy) })
		}
		all.Wait()
	})
}

// failsAlways runs one Task into its failures and reads the wait after each.
func failsAlways(t *testing.T, r *rig.Rig, user *rig.User, policy task.Retry) {
	failures := []int{1, 2, 6, 62, 64, 200}
	if full {
		failures = failures[:0]
		for n := range 200 {
			failures = append(failures, n+1)
		}
	}
	submit := rig.Command(r.Namespace(), "x")
	submit["spec"] = map[string]any{"idempotent": true, "retry": policy}
	id := user.Submit(t, submit).ID
	last := 0.
	for try, n := range failures {
		seen := user.Until(t, id, fmt.Sprintf("to make try %d", try+1), func(now api.Task) bool {
			return now.Attempt != nil && int(now.Attempt.Number) == try+1 && now.Attempt.Job != nil && now.Attempt.Job.Name != ""
		})
		pod := r.Pod(t, r.Namespace(), seen.Attempt.Job.Name)
		r.Exec(t, fmt.Sprintf("UPDATE slipway.tasks SET spent_retry = %d WHERE id = '%s'", n-1, id))
		r.Bind(t, pod)
		r.Exit(t, pod, 1, "")
		seen = user.Until(t, id, "to be tried again", func(now api.Task) bool { return int(now.Spent.Attempts) == n })
		wait := planned(t, r, id, try+1)
		if want := float64(policy.Delay(id, n)); wait < want-0.001 || wait > want+0.001 {
			t.Errorf("%+v: it waits %.3f s after failure %d, want %.3f", policy, wait, n, want)
		}
		if limit := float64(max(policy.Cap, policy.Backoff)) * 1.2; wait <= 0 || wait < last-0.001 || wait > limit {
			t.Errorf("%+v: it waits %.3f s after failure %d and %.3f before, the cap and its jitter are %.3f", policy, wait, n, last, limit)
		}
		if seen.Spent.Lost != 0 {
			t.Errorf("%+v: after failure %d it has spent %+v", policy, n, seen.Spent)
		}
		last = wait
		user.Must(t, http.MethodPatch, "/v1/tasks/"+id, `{"run_at":null}`, http.StatusOK, http.StatusConflict) // it may have begun
	}
	user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil, http.StatusOK, http.StatusAccepted)
	if ended := user.Await(t, id); ended.State != api.StateCanceled {
		t.Errorf("it ended %s", ended.State)
	}
}

// planned is how many seconds lie between the end of an Attempt and the next try. A short wait may be over by now.
func planned(t *testing.T, r *rig.Rig, id string, number int) float64 {
	t.Helper()
	text := r.Value(t, fmt.Sprintf(`SELECT extract(epoch FROM t.run_at - a.finished_at)::text FROM slipway.tasks t
		JOIN slipway.attempts a ON a.task = t.key WHERE t.id = '%s' AND a.number = %d`, id, number))
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Errorf("read the planned wait: %v", err)
	}
	return seconds
}

// A handler may wish for its own delay, within bounds, or say that no further try helps.
func TestARetryAsTheHandlerWishesIsBounded(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.API})
	user := r.User(t, r.Namespace())
	for report, want := range map[string]struct {
		state api.State
		wait  time.Duration
	}{
		`"outcome":"failed","reason":"busy","retry_after":42`:        {api.StateQueued, 42 * time.Second},
		`"outcome":"failed","reason":"busy","retry_after":1e300`:     {api.StateQueued, 24 * time.Hour},
		`"outcome":"failed","reason":"busy","retry_after":1e-300`:    {api.StateQueued, 100 * time.Millisecond},
		`"outcome":"rejected","reason":"no_such","retry_after":5`:    {api.StateFailed, 0},
		`"outcome":"succeeded","reason":"busy","retry_after":1`:      {api.StateSucceeded, 0},
		`"outcome":"canceled","reason":"nobody did","retry_after":1`: {api.StateQueued, 0},
	} {
		submit := rig.Command(r.Namespace(), "x")
		submit["spec"] = map[string]any{"idempotent": true}
		id := user.Submit(t, submit).ID
		pod := r.Pod(t, r.Namespace(), user.JobOf(t, id))
		r.Bind(t, pod)
		r.Run(t, pod)
		runner := r.StartRunner(t, pod)
		runner.Finish(t, map[string]any{"outcome": "failed", "retry_after": -1}, http.StatusBadRequest)
		body := map[string]any{}
		for pair := range strings.SplitSeq(report, ",") {
			name, value, _ := strings.Cut(pair, ":")
			body[strings.Trim(name, `"`)] = rawJSON(value)
		}
		runner.Finish(t, body, http.StatusNoContent)
		r.Exit(t, pod, 1, "")
		seen := user.Until(t, id, "to be judged", func(now api.Task) bool {
			return now.State != api.StateRunning || now.Attempt != nil && now.Attempt.Number == 2
		})
		if again := want.state == api.StateQueued && seen.State == api.StateRunning; !again && seen.State != want.state {
			t.Errorf("%s: it is %s/%s, want %s", report, seen.State, seen.Reason, want.state)
		}
		if want.wait > 0 {
			if wait := planned(t, r, id, 1); math.Abs(wait-want.wait.Seconds()) > 0.001 {
				t.Errorf("%s: it waits %v s, want %v", report, wait, want.wait)
			}
		}
		if seen.State == api.StateFailed && (seen.AttemptsMade != 1 || seen.Spent.Attempts != 1) {
			t.Errorf("%s: %d attempts, spent %+v", report, seen.AttemptsMade, seen.Spent)
		}
		user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil, http.StatusOK, http.StatusAccepted, http.StatusConflict)
	}
}

type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }
