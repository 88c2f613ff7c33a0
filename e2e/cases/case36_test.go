package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

const keyHeader = "Idempotency-Key"

// The client times out and sends again. Nothing is shrunk.
func TestCase36(t *testing.T) {
	replay(t, 36, "one key makes one task, and says when it is a repeat", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API, Namespaces: 2})
		user, ns := r.User(t, r.Namespace()), r.Namespace()
		first := fiftyAtOnce(t, user, rig.Command(ns, "true"))

		other := decodeProblem(t, keyed(t, user, rig.Command(ns, "false"), "k", http.StatusConflict))
		if other.Task != first || !strings.HasSuffix(other.Type, ":idempotency_body") {
			t.Errorf("another body under the key: %+v", other)
		}
		if a, b := user.Submit(t, later(ns)).ID, user.Submit(t, later(ns)).ID; a == b {
			t.Error("without a key two sends are one task")
		}
		keyed(t, user, later(ns), strings.Repeat("k", 10<<10), http.StatusBadRequest)
		keyed(t, user, later(ns), "not ascii: ü", http.StatusBadRequest)
		stranger := r.User(t, r.Namespaces[1])
		if same := taskOf(t, keyed(t, stranger, later(r.Namespaces[1]), "k", http.StatusCreated)); same.ID == first {
			t.Error("the key of one caller gave the task of another")
		}

		r.Replicas[0].Kill(t)
		r.Replicas[0].Start(t)
		r.Replicas[0].WaitReady(t)
		repeats(t, user, rig.Command(ns, "true"), first)

		pod := r.Pod(t, ns, user.JobOf(t, first))
		r.Bind(t, pod)
		r.Run(t, pod)
		r.StartRunner(t, pod).Finish(t, map[string]any{"outcome": "succeeded"}, http.StatusNoContent)
		r.Exit(t, pod, 0, "")
		if ended := user.Await(t, first); ended.State != api.StateSucceeded {
			t.Fatalf("task is %s/%s", ended.State, ended.Reason)
		}
		if again := repeats(t, user, rig.Command(ns, "true"), first); again.State != api.StateSucceeded {
			t.Errorf("after the end the repeat shows state %s", again.State)
		}
		anAnswerThatIsCutOff(t, r, user)
	})
}

// keyed submits under a key.
func keyed(t *testing.T, user *rig.User, submit any, key string, status int) rig.Answer {
	t.Helper()
	a, err := user.Do(t.Context(), http.MethodPost, "/v1/tasks", submit, keyHeader, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != status {
		t.Fatalf("key of %d bytes: answered %d %s, want %d", len(key), a.Status, a.Body[:min(len(a.Body), 500)], status)
	}
	return a
}

func taskOf(t *testing.T, a rig.Answer) (task api.Task) {
	t.Helper()
	if err := json.Unmarshal(a.Body, &task); err != nil {
		t.Fatal(err)
	}
	return task
}

func decodeProblem(t *testing.T, a rig.Answer) (p api.Problem) {
	t.Helper()
	if err := json.Unmarshal(a.Body, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// fiftyAtOnce sends one submit fifty times under the key k and gives the id of the one Task.
func fiftyAtOnce(t *testing.T, user *rig.User, submit any) string {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses, ids := map[string]int{}, map[string]bool{}
	for range 50 {
		all.Go(func() {
			a, err := user.Do(t.Context(), http.MethodPost, "/v1/tasks", submit, keyHeader, "k")
			for err == nil && a.Status == http.StatusConflict && a.Header.Get("Retry-After") != "" { // the first is still at it
				a, err = user.Do(t.Context(), http.MethodPost, "/v1/tasks", submit, keyHeader, "k")
			}
			if err != nil {
				t.Error(err)
				return
			}
			var task api.Task
			_ = json.Unmarshal(a.Body, &task) // what cannot be read counts as another id
			mu.Lock()
			defer mu.Unlock()
			statuses[fmt.Sprintf("%d %s", a.Status, a.Header.Get("Idempotent-Replayed"))]++
			ids[task.ID] = true
		})
	}
	all.Wait()
	if len(ids) != 1 || statuses["201 "] != 1 || statuses["200 true"] != 49 {
		t.Fatalf("%d tasks; answers %v, want one 201 and 49 repeats", len(ids), statuses)
	}
	for id := range ids {
		return id
	}
	return ""
}

// repeats sends the submit again under the key k and wants the first Task.
func repeats(t *testing.T, user *rig.User, submit any, first string) api.Task {
	t.Helper()
	a := keyed(t, user, submit, "k", http.StatusOK)
	task := taskOf(t, a)
	if task.ID != first || a.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repeat gave task %s, replayed %q, want %s", task.ID, a.Header.Get("Idempotent-Replayed"), first)
	}
	return task
}

// anAnswerThatIsCutOff breaks the connection between the commit and the answer, and sends again.
func anAnswerThatIsCutOff(t *testing.T, r *rig.Rig, user *rig.User) {
	t.Helper()
	replica := r.Replicas[0]
	replica.Kill(t)
	replica.Start(t, map[string]string{"SLIPWAY_FAILPOINTS": "enqueue-after-commit=sleep:20s"})
	replica.WaitReady(t)
	submit := later(r.Namespace())
	submit["name"] = "cut off"
	sent := make(chan error, 1)
	go func() {
		_, err := user.Do(t.Context(), http.MethodPost, "/v1/tasks", submit, keyHeader, "cut")
		sent <- err
	}()
	direct := user.Via(replica.Address)
	var committed string
	rig.Eventually(t, "the task to be committed", func(ctx context.Context) (bool, error) {
		a, err := direct.Do(ctx, http.MethodGet, "/v1/tasks?state=queued&limit=5&namespace="+r.Namespace(), nil)
		if err != nil {
			return false, err
		}
		var page api.TaskPage
		if err := json.Unmarshal(a.Body, &page); err != nil {
			return false, err
		}
		for _, item := range page.Items {
			if item.Name == "cut off" {
				committed = item.ID
			}
		}
		return committed != "", nil
	})
	r.Gate.Cut()
	if err := <-sent; err == nil {
		t.Fatal("the answer came although the connection was cut")
	}
	r.Gate.Mend()
	a := keyed(t, user, submit, "cut", http.StatusOK)
	if again := taskOf(t, a); again.ID != committed || a.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("sent again it gave task %s, want %s", again.ID, committed)
	}
}
