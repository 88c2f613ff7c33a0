package cases

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// printed is a shell line that prints 200 numbered lines, each with the mark of its Task and the number of its Attempt.
func printed(mark, then string) string {
	return fmt.Sprintf(`for i in $(seq 200); do echo "%s-$SLIPWAY_ATTEMPT_NUMBER $i"; done; %s`, mark, then)
}

// pages is what printed prints in one Attempt.
func pages(mark string, attempt int) string {
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintf(&text, "%s-%d %d\n", mark, attempt, i+1)
	}
	return text.String()
}

// reader is one Task of case 29.
type reader struct {
	mark, then string
	spec       map[string]any
	image      string
	bare       bool // no runner inside: nobody sends the log
	disturb    func(t *testing.T, r *rig.Rig, user *rig.User, task api.Task)
	want       wanted
	attempts   int
	id         string
}

// The log of a Task is gone, or is another Attempt's. Shrunk: nothing but deadlines of the Tasks themselves.
func TestCase29(t *testing.T) {
	replay(t, 29, "each attempt's own log, or why there is none, before and after its pod is gone", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.Node})
		user := r.User(t, r.Namespace())
		twice := map[string]any{"idempotent": true, "retry": map[string]any{"attempts": 2, "backoff": 0.1}}
		readers := []*reader{
			{mark: "good", then: "exit 0", want: succeeded, attempts: 1},
			{mark: "bad", then: "exit 3", spec: twice, want: exit3, attempts: 2},
			{mark: "long", then: "sleep 600", spec: map[string]any{"run_deadline": 6}, want: wanted{api.StateFailed, "deadline"}, attempts: 1},
			{mark: "evicted", then: "sleep 600", disturb: evictTask, want: evicted, attempts: 1},
			{mark: "told", then: "sleep 600", disturb: cancelTask, want: wanted{api.StateCanceled, "cancel"}, attempts: 1},
			{mark: "none", image: "127.0.0.1:1/none:such", spec: map[string]any{"start_deadline": 40, "retry": map[string]any{"attempts": 1, "lost": 0}}, want: wanted{api.StateFailed, "registry"}, attempts: 1},
			{mark: "bare", then: "exit 0", bare: true, want: succeeded, attempts: 1},
			{mark: "bare-told", then: "sleep 600", bare: true, disturb: cancelTask, want: wanted{api.StateCanceled, "cancel"}, attempts: 1},
			{mark: "bare-evicted", then: "sleep 600", bare: true, disturb: evictTask, want: evicted, attempts: 1},
		}
		for _, c := range readers {
			submit := shell(r.Namespace(), printed(c.mark, c.then), c.spec)
			if c.bare {
				submit = container(t, r, map[string]any{"command": []string{"sh", "-c", "SLIPWAY_ATTEMPT_NUMBER=1; " + printed(c.mark, c.then)}, "wrap": false})
			}
			if c.image != "" {
				submit["kind"] = "container.run"
				submit["params"] = map[string]any{"image": c.image, "command": []string{"sh", "-c", printed(c.mark, "exit 0")}}
			}
			c.id = user.Submit(t, submit).ID
		}
		for _, c := range readers {
			if c.image != "" {
				noLog(t, user, c.id, 1, "not_started")
			} else if c.attempts == 1 {
				running := user.Until(t, c.id, "to be started", started)
				logIs(t, user, c, 1)
				if c.disturb != nil {
					c.disturb(t, r, user, running)
				}
			}
		}
		for _, c := range readers {
			if ended := user.Await(t, c.id); ended.State != c.want.state || ended.Reason != c.want.reason {
				t.Errorf("%s ended %s/%s (%s), want %s/%s", c.mark, ended.State, ended.Reason, ended.Message, c.want.state, c.want.reason)
			}
			if made := user.Attempts(t, c.id); len(made) != c.attempts {
				t.Errorf("%s made %d attempts, want %d", c.mark, len(made), c.attempts)
			}
			logsOf(t, user, c)
		}
		for _, c := range readers {
			for _, a := range user.Attempts(t, c.id) {
				r.Kubectl(t, "delete", "job", "--namespace", r.Namespace(), "--ignore-not-found", a.Job.Name)
			}
		}
		for _, c := range readers {
			logsOf(t, user, c)
			if c.image == "" {
				keptIs(t, user, c)
			}
		}
	})
}

func evictTask(t *testing.T, r *rig.Rig, _ *rig.User, task api.Task) {
	evict(t, r, task.Attempt.Pod.Name)
}

func cancelTask(t *testing.T, _ *rig.Rig, user *rig.User, task api.Task) {
	user.Must(t, http.MethodPost, "/v1/tasks/"+task.ID+"/cancel", nil, http.StatusAccepted)
}

// logsOf reads the log of every Attempt of an ended Task, and of one that it never made.
func logsOf(t *testing.T, user *rig.User, c *reader) {
	t.Helper()
	noLog(t, user, c.id, c.attempts+1, "no_attempt")
	if c.image != "" {
		noLog(t, user, c.id, 1, "never_started")
		return
	}
	for n := range c.attempts {
		logIs(t, user, c, n+1)
	}
}

// logIs waits until the log of an Attempt is whole; at no time may it hold anything else.
func logIs(t *testing.T, user *rig.User, c *reader, attempt int) {
	t.Helper()
	want := pages(c.mark, attempt)
	rig.Eventually(t, fmt.Sprintf("the log of attempt %d of %s", attempt, c.mark), func(ctx context.Context) (bool, error) {
		a, err := user.Do(ctx, http.MethodGet, fmt.Sprintf("/v1/tasks/%s/logs?attempt=%d", c.id, attempt), nil)
		if err != nil {
			return false, err
		}
		if a.Status != http.StatusOK {
			return false, fmt.Errorf("%d %.300s", a.Status, a.Body)
		}
		// A runner that was told to stop says so on a line of its own, which only the pod has.
		text, _, _ := strings.Cut(string(a.Body), "slipway: stopped: ")
		if !strings.HasPrefix(want, text) {
			t.Fatalf("the log of attempt %d of %s ends in %q", attempt, c.mark, text[max(0, len(text)-300):])
		}
		return text == want, nil
	})
}

// keptIs waits until the pods are gone and what was kept is served.
func keptIs(t *testing.T, user *rig.User, c *reader) {
	t.Helper()
	for n := range c.attempts {
		rig.Eventually(t, fmt.Sprintf("the kept log of attempt %d of %s", n+1, c.mark), func(ctx context.Context) (bool, error) {
			a, err := user.Do(ctx, http.MethodGet, fmt.Sprintf("/v1/tasks/%s/logs?attempt=%d", c.id, n+1), nil)
			if err != nil {
				return false, err
			}
			if a.Header.Get("Slipway-Log-Source") != "kept" || string(a.Body) != pages(c.mark, n+1) {
				return false, fmt.Errorf("%d %v %.300s", a.Status, a.Header, a.Body)
			}
			return true, nil
		})
	}
}

// noLog holds the answer to be 404 for the one reason that is true.
func noLog(t *testing.T, user *rig.User, id string, attempt int, reason string) {
	t.Helper()
	rig.Eventually(t, "the log to be missing as "+reason, func(ctx context.Context) (bool, error) {
		a, err := user.Do(ctx, http.MethodGet, fmt.Sprintf("/v1/tasks/%s/logs?attempt=%d", id, attempt), nil)
		if err != nil {
			return false, err
		}
		if a.Status != http.StatusNotFound {
			t.Fatalf("a log that cannot be there is answered with %d %.300s", a.Status, a.Body)
		}
		if !strings.Contains(string(a.Body), reason) {
			return false, fmt.Errorf("%s", a.Body)
		}
		return true, nil
	})
}
