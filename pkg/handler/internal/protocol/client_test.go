package protocol

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/e2e/authority"
	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers with h and gives a Client for it and the path of its token.
func server(t *testing.T, h http.HandlerFunc) (*Client, string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	token := filepath.Join(t.TempDir(), "token")
	writeFile(t, token, "first\n")
	c, err := New(Place{Base: s.URL + "/", TokenFile: token}, Identity{Attempt: 7, Fence: 41, PodUID: "pod"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, token
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEachStartReadsTheTokenAgain(t *testing.T) {
	var seen []string
	c, token := server(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, _ = c.Start(t.Context())
	writeFile(t, token, "second")
	_, _ = c.Start(t.Context())
	if len(seen) != 2 || seen[0] != "Bearer first" || seen[1] != "Bearer second" {
		t.Errorf("sent %q", seen)
	}
}

func TestAfterStartTheSessionKeyIsTheIdentity(t *testing.T) {
	type call struct{ path, auth, body string }
	var calls []call
	c, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls = append(calls, call{r.URL.Path, r.Header.Get("Authorization"), string(body)})
		switch r.URL.Path {
		case "/v1/runner/start":
			_, _ = io.WriteString(w, `{"task_id":"t","kind":"command.run","params":{"a":1},"session_key":"sesame","run_seconds":1.5,"attempt_number":2}`)
		case "/v1/runner/heartbeat":
			_, _ = io.WriteString(w, `{"cancel":true,"seconds_left":12}`)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	g, err := c.Start(t.Context())
	if err != nil || g.Kind != "command.run" || g.Run != 1.5 || g.AttemptNumber != 2 {
		t.Fatalf("start: %+v, %v", g, err)
	}
	a, err := c.Beat(t.Context(), map[string]int{"done": 1}, 2*time.Second)
	if err != nil || !a.Cancel || a.Left == nil || *a.Left != 12 {
		t.Fatalf("heartbeat: %+v, %v", a, err)
	}
	code := 3
	end := Finish{Outcome: task.OutcomeFailed, Reason: task.ReasonExitCode, ExitCode: &code, LogTail: []byte("hi\x00")}
	if err := c.Finish(t.Context(), end); err != nil {
		t.Fatalf("finish: %v", err)
	}
	want := []call{
		{"/v1/runner/start", "Bearer first", `{"attempt":7,"fence":41}`},
		{"/v1/runner/heartbeat", "Bearer sesame", `{"attempt":7,"fence":41,"pod_uid":"pod","progress":{"done":1},"hold_seconds":2}`},
		{"/v1/runner/finish", "Bearer sesame", `{"attempt":7,"fence":41,"pod_uid":"pod","outcome":"failed","reason":"exit_code","exit_code":3,"log_tail":"aGkA"}`},
	}
	for i := range want {
		if i >= len(calls) || calls[i] != want[i] {
			t.Errorf("call %d: got %+v\nwant %+v", i, calls, want[i])
		}
	}
}

func TestRefusalsAreToldApart(t *testing.T) {
	cases := map[int]struct{ stale, final bool }{
		200: {}, 302: {}, 400: {final: true}, 401: {}, 403: {}, 404: {final: true}, 408: {}, 409: {stale: true},
		413: {final: true}, 422: {final: true}, 429: {}, 500: {}, 503: {},
	}
	for status, want := range cases {
		c, _ := server(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(struct{}{})
		})
		_, err := c.Beat(t.Context(), nil, 0)
		if status == 200 {
			if err != nil {
				t.Errorf("200: %v", err)
			}
			continue
		}
		var refused *RefusedError
		switch {
		case errors.Is(err, ErrStale) != want.stale:
			t.Errorf("%d: stale is %v", status, !want.stale)
		case want.stale:
		case !errors.As(err, &refused) || refused.Final() != want.final || refused.RetryAfter != 7*time.Second || refused.Status != status:
			t.Errorf("%d: %+v", status, err)
		}
	}
}

func TestAnEndlessAnswerIsCut(t *testing.T) {
	c, _ := server(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 64<<10)
		for range 40 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	if _, err := c.Beat(t.Context(), nil, 0); err == nil {
		t.Error("an answer that is no JSON was taken")
	}
}

func TestOnlyTheAuthorityThatWasGivenIsTrusted(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer s.Close()
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	own := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	other, err := authority.Make("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		ca string
		ok bool
	}{"its own": {own, true}, "another": {string(other.CA), false}, "the system's": {"", false}} {
		c, err := New(Place{Base: s.URL, CA: tc.ca}, Identity{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Finish(t.Context(), Finish{Outcome: task.OutcomeSucceeded}); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Place{Base: s.URL, CA: "no PEM"}, Identity{}); err == nil {
		t.Error("an authority that is none was taken")
	}
}
