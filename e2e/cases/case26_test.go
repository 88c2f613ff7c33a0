package cases

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// The database refuses the text that describes the failure. Nothing is shrunk. The runner's form, on a real node, has
// bytes that no API would let a test play.
func TestCase26(t *testing.T) {
	replay(t, 26, "text that the database refuses never costs an outcome", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API})
		user, ns := r.User(t, r.Namespace()), r.Namespace()
		refused := map[string]struct{ body, pointer string }{
			"a NUL in a nested string": {`{"kind":"command.run","namespace":"` + ns + `","params":{"command":["x"],"env":{"A":"b\u0000c"}}}`, "/params/env/A"},
			"a lone surrogate":         {`{"kind":"command.run","namespace":"` + ns + `","params":{"command":["\ud800"]}}`, "/params/command/0"},
			"bytes that are not UTF-8": {`{"kind":"command.run","namespace":"` + ns + `","name":"` + "\xff\xfe" + `","params":{"command":["x"]}}`, "/name"},
			"a name of 5000 emoji":     {`{"kind":"command.run","namespace":"` + ns + `","name":"` + strings.Repeat("🐘", 5000) + `","params":{"command":["x"]}}`, "/name"},
		}
		for what, c := range refused {
			a := user.Must(t, http.MethodPost, "/v1/tasks", c.body, http.StatusBadRequest)
			if !strings.Contains(string(a.Body), `"`+c.pointer) {
				t.Errorf("%s: the answer does not name %s: %s", what, c.pointer, a.Body)
			}
		}
		harmless := `\u0000 is six characters`
		submitted := user.Submit(t, rig.Command(ns, "echo", harmless))
		var params struct{ Command []string }
		raw, err := json.Marshal(user.Task(t, submitted.ID).Params)
		if err != nil || json.Unmarshal(raw, &params) != nil || len(params.Command) != 2 || params.Command[1] != harmless {
			t.Errorf("params came back as %s, want the escaped text unchanged", raw)
		}
		reportWithBadText(t, r, user, submitted.ID)
		messageWithBadText(t, r, user)
		t.Run("from a runner and from an image without one", bytesFromPods)
	})
}

// reportWithBadText ends a Task by a report that carries NUL and a megabyte of error text.
func reportWithBadText(t *testing.T, r *rig.Rig, user *rig.User, id string) {
	t.Helper()
	pod := r.Pod(t, r.Namespace(), user.JobOf(t, id))
	r.Bind(t, pod)
	r.Run(t, pod)
	runner := r.StartRunner(t, pod)
	runner.Finish(t, map[string]any{
		"outcome": "failed", "reason": "exit_code", "exit_code": 3,
		"message": "before\x00after " + strings.Repeat("e", 1<<20), "result": map[string]any{"text": "a\x00b"},
	}, http.StatusNoContent)
	r.Exit(t, pod, 3, "")
	ended := user.Await(t, id)
	if ended.State != api.StateFailed || ended.Reason != "exit_code" || !strings.HasPrefix(ended.Message, "before") {
		t.Errorf("task with a bad report is %s/%s %.40q, want failed/exit_code with its cleaned message", ended.State, ended.Reason, ended.Message)
	}
	if strings.ContainsRune(ended.Message, 0) || len(ended.Message) > 5000 {
		t.Errorf("message of %d bytes is not cleaned and bounded", len(ended.Message))
	}
}

// messageWithBadText ends a Task by an exit code whose termination message carries NUL.
func messageWithBadText(t *testing.T, r *rig.Rig, user *rig.User) {
	t.Helper()
	task := user.Submit(t, rig.Command(r.Namespace(), "x"))
	pod := r.Pod(t, r.Namespace(), user.JobOf(t, task.ID))
	r.Bind(t, pod)
	r.Exit(t, pod, 7, "left\x00right")
	ended := user.Await(t, task.ID)
	if ended.State != api.StateFailed || ended.Reason != "exit_code" || strings.ContainsRune(ended.Message, 0) {
		t.Errorf("task with a bad termination message is %s/%s %q, want failed/exit_code, cleaned", ended.State, ended.Reason, ended.Message)
	}
}

// bytesFromPods writes NUL and FF FE to logs and to a termination message.
func bytesFromPods(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.Node})
	user := r.User(t, r.Namespace())
	const bad = `printf 'left \000 \377\376 right\n'`
	wrapped := user.Submit(t, rig.Command(r.Namespace(), "sh", "-c", bad+"; "+bad+" >&2; exit 7")).ID
	bare := user.Submit(t, container(t, r, map[string]any{
		"command": []string{"sh", "-c", bad + "; " + bad + " > /dev/termination-log; exit 7"}, "wrap": false,
	})).ID
	for _, id := range []string{wrapped, bare} {
		ended := user.Await(t, id)
		if ended.State != api.StateFailed || ended.Reason != "exit_code" || strings.ContainsRune(ended.Message, 0) {
			t.Errorf("task is %s/%s %q, want failed/exit_code, cleaned", ended.State, ended.Reason, ended.Message)
		}
		if log := user.Must(t, http.MethodGet, "/v1/tasks/"+id+"/logs", nil, http.StatusOK); !strings.HasPrefix(string(log.Body), "left \x00 \xff\xfe right\n") {
			t.Errorf("the log is %q", log.Body)
		}
	}
}
