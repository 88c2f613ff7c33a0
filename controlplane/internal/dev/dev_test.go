package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// screen is what a person sees.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	any  chan struct{}
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		select {
		case s.any <- struct{}{}:
		default:
		}
	}()
	return s.text.Write(p)
}

var printed = regexp.MustCompile(`SLIPWAY_SERVER=(\S+) SLIPWAY_TOKEN=(\S+)`)

// up starts it and gives its address and token; down ends it as Ctrl-C does.
func up(t *testing.T) (server, token string, down func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, ended := &screen{any: make(chan struct{}, 1)}, make(chan error, 1)
	go func() { ended <- Run(ctx, []string{"SLIPWAY_LISTEN=127.0.0.1:0"}, api.Version{}, out, out) }()
	select {
	case <-out.any:
	case err := <-ended:
		t.Fatalf("it ended with %v", err)
	case <-time.After(time.Minute):
		t.Fatal("it says nothing")
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	found := printed.FindStringSubmatch(out.text.String())
	if found == nil {
		t.Fatalf("it says %s", out.text.String())
	}
	return found[1], found[2], func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func call[T any](t *testing.T, method, url, token, body string, status int) (v T) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+token)
	q.Header.Set("Content-Type", "application/json")
	q.Close = true
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != status {
		t.Fatalf("%s %s: %s, want %d", method, url, a.Status, status)
	}
	if err := json.NewDecoder(a.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestATaskRunsWithoutAClusterAndNothingIsLeftBehind(t *testing.T) {
	dir := t.TempDir()
	for _, open := range []string{dir, filepath.Dir(dir)} { // PostgreSQL runs as another user where we are root
		if err := os.Chmod(open, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", dir)
	server, token, down := up(t)
	if !strings.HasPrefix(server, "http://127.0.0.1:") {
		t.Errorf("it listens on %s", server)
	}
	call[api.Problem](t, "GET", server+"/v1/kinds", "guess", "", 401)
	run := func(script string) api.Task {
		body := fmt.Sprintf(`{"kind":"command.run","namespace":"dev","params":{"command":["sh","-c",%q]}}`, script)
		return call[api.Task](t, "POST", server+"/v1/tasks", token, body, 201)
	}
	made := run("echo '{\"n\":3}' > $SLIPWAY_RESULT")
	for began := time.Now(); made.State != "succeeded"; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("it is %s after %v", made.State, time.Since(began))
		}
		made = call[api.Task](t, "GET", server+"/v1/tasks/"+made.ID, token, "", 200)
	}
	if string(made.Result) != `{"n":3}` {
		t.Errorf("result %s", made.Result)
	}
	long := run("echo $$ > " + dir + "/pid; exec sleep 50")
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(dir + "/pid"); err == nil {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("task %s does not run", long.ID)
		}
	}
	pid, err := os.ReadFile(dir + "/pid")
	if err != nil {
		t.Fatal(err)
	}
	down()
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
		t.Error("the command still runs")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 { // what the command wrote
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestItListensOnTheLoopbackInterfaceAlone(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		err := Run(t.Context(), []string{"SLIPWAY_LISTEN=" + listen}, api.Version{}, &bytes.Buffer{}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), "no loopback address") {
			t.Errorf("%s: %v", listen, err)
		}
	}
}
