package handler_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"slipway.dev/slipway/pkg/handler"
)

func init() { handler.ExampleMain = Example }

// granting is a control plane that grants one start and keeps the report.
func granting(t *testing.T, params string, report *map[string]any) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/runner/start":
			_, _ = io.WriteString(w, `{"task_id":"t","kind":"greet","namespace":"shop","session_key":"k","run_seconds":60,"grace_seconds":5,
				"heartbeat_seconds":10,"fence_after_seconds":60,"attempt_number":1,"params":`+params+`}`)
		case "/v1/runner/finish":
			if err := json.NewDecoder(r.Body).Decode(report); err != nil {
				t.Errorf("read the report: %v", err)
			}
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func TestTheExampleRunsAsAnImageWould(t *testing.T) {
	for params, want := range map[string]struct {
		code                      int
		printed, outcome, results string
	}{
		`{"names":["ada","bob"]}`: {0, "hello ada\nhello bob\n", "succeeded", `{"greeted":2}`},
		`{"naems":["ada"]}`:       {1, "", "rejected", `null`},
	} {
		var report map[string]any
		server, dir := granting(t, params, &report), t.TempDir()
		token := filepath.Join(dir, "token")
		if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{
			"TEST_AS_EXAMPLE=1", "SLIPWAY_URL=" + server.URL, "SLIPWAY_ATTEMPT=7", "SLIPWAY_FENCE=41", "SLIPWAY_POD_UID=pod-1",
			"SLIPWAY_DIR=" + dir, "SLIPWAY_TOKEN_FILE=" + token, "SLIPWAY_TERMINATION_LOG=" + filepath.Join(dir, "message"),
		}
		printed, _ := cmd.Output() // its exit code is looked at
		result, err := json.Marshal(report["result"])
		if err != nil {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != want.code || string(printed) != want.printed || report["outcome"] != want.outcome || string(result) != want.results {
			t.Errorf("%s: exit code %d, printed %q, reported %v", params, code, printed, report)
		}
	}
}
