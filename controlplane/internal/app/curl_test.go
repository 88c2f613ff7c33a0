package app

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// kubectl stands for the real one: its only word is the token of the user that is asked for.
const kubectl = `#!/bin/sh
[ "$1 $2 $3 $4 $6 $7 $8 $9" = "-n shop create token --audience slipway --duration 10m" ] && echo "$5"
`

// curl starts the example that submits with curl, as ada of shop.
func (w *town) curl(url, submit string) (lines *bufio.Scanner, said *strings.Builder, wait func() int) {
	w.Helper()
	for _, program := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			w.Skip(program + " is not installed; go run ./e2e/setup installs it")
		}
	}
	dir := w.TempDir()
	for name, text := range map[string]string{"kubectl": kubectl, "task.json": submit} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			w.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	w.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "../../../pkg/api/examples/submit.sh", "shop", "ada", filepath.Join(dir, "task.json"))
	cmd.Env = append(os.Environ(), "SLIPWAY_URL="+url, "PATH="+dir+":"+os.Getenv("PATH"))
	said = &strings.Builder{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	return bufio.NewScanner(out), said, func() int {
		_ = cmd.Wait() // its exit code is looked at
		return cmd.ProcessState.ExitCode()
	}
}

// loseFirst handles every request and keeps the first answer to itself.
func loseFirst(next http.Handler) http.Handler {
	var one sync.Once
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lost := false
		one.Do(func() {
			next.ServeHTTP(httptest.NewRecorder(), r)
			w.WriteHeader(http.StatusBadGateway)
			lost = true
		})
		if !lost {
			next.ServeHTTP(w, r)
		}
	})
}

func TestTheCurlExampleFollowsATaskToItsEnd(t *testing.T) {
	for outcome, want := range map[task.Outcome]struct {
		code int
		line string
	}{
		task.OutcomeSucceeded: {0, "succeeded"},
		task.OutcomeRejected:  {1, "failed bad_input no such table"},
	} {
		t.Run(string(outcome), func(t *testing.T) {
			w := newTown(t)
			server := httptest.NewServer(loseFirst(w.handler)) // so the submit is sent twice
			t.Cleanup(server.Close)
			lines, said, wait := w.curl(server.URL, `{"kind":"command.run","namespace":"shop","params":{"command":["true"]}}`)
			next := func() string {
				lines.Scan()
				_, line, _ := strings.Cut(lines.Text(), " ")
				return line
			}
			if first := next(); !strings.HasPrefix(first, "waiting") {
				t.Fatalf("it said %q first", first)
			}
			a := w.claim()
			if second := next(); second != "launching" {
				t.Errorf("it said %q after the claim", second)
			}
			v := task.Verdict{Outcome: outcome, Started: true}
			if outcome != task.OutcomeSucceeded {
				v.Reason, v.Message = "bad_input", "no such table"
			}
			if _, err := w.store.Finish(t.Context(), a.ID, a.Fence, v, store.Ending{}); err != nil {
				t.Fatal(err)
			}
			last := next()
			if code := wait(); code != want.code || last != want.line {
				t.Errorf("exit code %d after %q and %q", code, last, said)
			}
			if list := must[api.TaskPage](w, w.send("ada", "GET", "/v1/tasks", ""), 200); len(list.Items) != 1 || list.Items[0].CreatedBy != "ada" {
				t.Errorf("tasks %+v", list.Items)
			}
		})
	}
}

func TestTheCurlExampleSaysWhatIsRefused(t *testing.T) {
	w := newTown(t)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	lines, said, wait := w.curl(server.URL, `{"kind":"command.run","namespace":"shop","params":{"command":[]}}`)
	if lines.Scan() || wait() != 2 || !strings.Contains(said.String(), "/params/command must hold at least 1") {
		t.Errorf("it said %q and %q", lines.Text(), said)
	}
}
