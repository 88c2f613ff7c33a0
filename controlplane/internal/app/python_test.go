package app

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// python runs the example of the runner protocol as the pod of a would, and gives what it printed and its exit code.
func (w *town) python(url string, a task.Attempt) (printed string, code int) {
	w.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		w.Skip("python3 is not installed; go run ./e2e/setup installs it")
	}
	token := filepath.Join(w.TempDir(), "token")
	if err := os.WriteFile(token, []byte("pod-of-shop\n"), 0o600); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "../../../pkg/api/examples/runner.py")
	cmd.Env = append(os.Environ(), "SLIPWAY_URL="+url, fmt.Sprint("SLIPWAY_ATTEMPT=", a.ID), fmt.Sprint("SLIPWAY_FENCE=", a.Fence),
		"SLIPWAY_POD_UID=uid-pod-of-shop", "SLIPWAY_TOKEN_FILE="+token)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		w.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestThePythonExampleSpeaksTheRunnerProtocol(t *testing.T) {
	w := newTown(t)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", `{"kind":"command.run","namespace":"shop","params":{"command":["one","two","three"]}}`), 201)
	a := w.claim()
	if printed, code := w.python(server.URL, a); code != 0 || printed != "one\ntwo\nthree\n" {
		t.Fatalf("exit code %d after %q", code, printed)
	}
	_, got, _, err := w.store.OpenAttempt(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != task.Started || got.Report == nil || got.Report.Outcome != task.OutcomeSucceeded || string(got.Report.Result) != `{"words": 3}` {
		t.Fatalf("attempt %+v, report %+v", got, got.Report)
	}
	if seen := must[api.Task](w, w.send("ada", "GET", "/v1/tasks/"+made.ID, ""), 200); seen.Progress == nil || seen.Progress.Done != 3 || seen.Progress.Total != 3 {
		t.Errorf("progress %+v", seen.Progress)
	}
	// Once the attempt has ended, its start is refused and nothing runs.
	if _, err := w.store.Finish(t.Context(), a.ID, a.Fence, task.Verdict{Outcome: task.OutcomeSucceeded, Started: true}, store.Ending{}); err != nil {
		t.Fatal(err)
	}
	if printed, code := w.python(server.URL, a); code != task.ExitGateRefused || printed != "" {
		t.Errorf("a second run: exit code %d after %q", code, printed)
	}
	server.Close()
	if printed, code := w.python(server.URL, a); code != task.ExitUnreachable || printed != "" {
		t.Errorf("without a control plane: exit code %d after %q", code, printed)
	}
}

func TestThePythonExampleDoesNotStartWhatWasCanceled(t *testing.T) {
	w := newTown(t)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", `{"kind":"command.run","namespace":"shop","params":{"command":["one"]}}`), 201)
	a := w.claim()
	must[api.Task](w, w.send("ada", "POST", "/v1/tasks/"+made.ID+"/cancel", ""), 202)
	if printed, code := w.python(server.URL, a); code != task.ExitGateRefused || printed != "" {
		t.Errorf("canceled before its start: exit code %d after %q", code, printed)
	}
}
