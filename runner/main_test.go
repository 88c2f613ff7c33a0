package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/task"
)

// asRunner makes the test's own binary behave as the runner.
const asRunner = "TEST_AS_RUNNER"

func TestMain(m *testing.M) {
	if os.Getenv(asRunner) != "" {
		main()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// pod is a folder that stands for a pod and the runner process in it.
type pod struct {
	cmd *exec.Cmd
	dir string
	out *output
}

// output collects what the runner writes and wakes who waits for a word in it.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	word    string
	arrived chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	o.wake()
	return len(p), nil
}

func (o *output) wake() {
	if o.arrived != nil && strings.Contains(o.text.String(), o.word) {
		close(o.arrived)
		o.arrived = nil
	}
}

func (o *output) wait(t *testing.T, word string) {
	t.Helper()
	o.mu.Lock()
	arrived := make(chan struct{})
	o.word, o.arrived = word, arrived
	o.wake()
	o.mu.Unlock()
	select {
	case <-arrived:
	case <-time.After(20 * time.Second):
		t.Fatalf("the output never held %q", word)
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// place is where a pod's process runs, apart from the machine's own.
type place struct {
	namespaces uintptr
	cgroup     string
	args       []string
	env        []string
	dir        string // working directory
}

func startPod(t *testing.T, url string, where place) *pod {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &pod{dir: dir, out: &output{}, cmd: exec.Command(os.Args[0], where.args...)}
	if where.cgroup != "" {
		p.cmd = exec.Command("sh", "-c", `echo $$ > "$1" && exec "$0"`, os.Args[0], filepath.Join(where.cgroup, "cgroup.procs"))
	}
	p.cmd.Env = []string{
		asRunner + "=1", "PATH=" + os.Getenv("PATH"), "SLIPWAY_URL=" + url, "SLIPWAY_ATTEMPT=7", "SLIPWAY_FENCE=41", "SLIPWAY_TASK=0c5c",
		"SLIPWAY_POD_UID=pod-1", "SLIPWAY_POD_NAME=p", "SLIPWAY_DIR=" + dir, "SLIPWAY_TOKEN_FILE=" + filepath.Join(dir, "token"),
		"SLIPWAY_TERMINATION_LOG=" + filepath.Join(dir, "message"), "SLIPWAY_START_SECONDS=2",
	}
	p.cmd.Env, p.cmd.Dir = append(p.cmd.Env, where.env...), where.dir
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: where.namespaces}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

func (p *pod) wait(t *testing.T) int {
	t.Helper()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *pod) message(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(p.dir, "message"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func shell(script string) map[string]any {
	return map[string]any{"command": []string{"sh", "-c", script}}
}

func TestARealCommandSucceedsWithResultLogAndMessage(t *testing.T) {
	plane := newControlPlane(t, shell(`echo MARK; echo '{"rows":3}' > $SLIPWAY_RESULT`))
	p := startPod(t, plane.URL, place{})
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d: %s", code, p.out)
	}
	if p.out.String() != "MARK\n" {
		t.Errorf("the log is %q, not the command's output alone", p.out)
	}
	if m := p.message(t); m != "v1 7 41 succeeded -" {
		t.Errorf("message %q", m)
	}
	got := asJSON(t, plane.last(t))
	want := fmt.Sprintf(`{"attempt":7,"fence":41,"log_tail":%q,"outcome":"succeeded","pod_uid":"pod-1","result":{"rows":3}}`,
		base64.StdEncoding.EncodeToString([]byte("MARK\n")))
	if got != want {
		t.Errorf("reported %s\nwant     %s", got, want)
	}
}

func TestTheRunnerExitsWithTheCommandsCode(t *testing.T) {
	for code, want := range map[int]int{3: 3, 121: 1, 122: 1} {
		plane := newControlPlane(t, shell(fmt.Sprintf("exit %d", code)))
		p := startPod(t, plane.URL, place{})
		if got := p.wait(t); got != want {
			t.Errorf("exit %d became %d", code, got)
		}
		if r := plane.last(t); r["outcome"] != "failed" || r["reason"] != "exit_code" || r["exit_code"] != float64(code) {
			t.Errorf("reported %v", r)
		}
	}
}

func TestTheStartedMessageSurvivesAnAbruptEnd(t *testing.T) {
	plane := newControlPlane(t, shell(`echo ready; sleep 60`))
	p := startPod(t, plane.URL, place{})
	p.out.wait(t, "ready")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	m, ok := task.ParseTermination(p.message(t))
	if !ok || m.Final() || m.Outcome != task.TerminationStarted || m.Attempt != 7 || m.Fence != 41 {
		t.Errorf("message %+v", m)
	}
}

func TestSIGTERMThroughARealSignalEndsTheCommandAndIsNoSuccess(t *testing.T) {
	plane := newControlPlane(t, shell(`trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done`))
	p := startPod(t, plane.URL, place{})
	p.out.wait(t, "ready")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if r := plane.last(t); r["outcome"] != "lost" || r["reason"] != "terminated" {
		t.Errorf("reported %v", r)
	}
	if m, _ := task.ParseTermination(p.message(t)); m.Outcome != task.OutcomeLost || m.Reason != task.ReasonTerminated {
		t.Errorf("message %+v", m)
	}
}

func TestACommandThatIgnoresSIGTERMIsKilledWithinTheGracePeriod(t *testing.T) {
	plane := newControlPlane(t, shell(`trap '' TERM; echo ready; while :; do sleep 0.05; done`))
	plane.grant["grace_seconds"] = 1
	p := startPod(t, plane.URL, place{})
	p.out.wait(t, "ready")
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 137 || time.Since(began) > 5*time.Second {
		t.Errorf("exit code %d after %v", code, time.Since(began))
	}
}

func TestCancelAndProgressTravelWithRealHeartbeats(t *testing.T) {
	plane := newControlPlane(t, shell(`echo '4/9 copying' > $SLIPWAY_PROGRESS; echo ready; sleep 60`))
	plane.grant["heartbeat_seconds"] = 0.2
	var progress any
	plane.beat = func(_ int, body map[string]any) (int, string) {
		if body["progress"] == nil {
			return http.StatusOK, `{"cancel":false,"seconds_left":50}`
		}
		progress = body["progress"]
		return http.StatusOK, `{"cancel":true,"seconds_left":50}`
	}
	p := startPod(t, plane.URL, place{})
	if code := p.wait(t); code != 143 {
		t.Errorf("exit code %d", code)
	}
	if got := asJSON(t, progress); got != `{"done":4,"message":"copying","total":9}` {
		t.Errorf("progress %s", got)
	}
	if r := plane.last(t); r["outcome"] != "canceled" || r["reason"] != "cancel" {
		t.Errorf("reported %v", r)
	}
}

func TestAStaleHeartbeatKillsTheCommandWithoutGrace(t *testing.T) {
	plane := newControlPlane(t, shell(`trap '' TERM; echo ready; while :; do sleep 0.05; done`))
	plane.grant["heartbeat_seconds"] = 0.2
	plane.beat = func(int, map[string]any) (int, string) { return http.StatusConflict, `{}` }
	p := startPod(t, plane.URL, place{})
	began := time.Now()
	if code := p.wait(t); code != 137 || time.Since(began) > 10*time.Second {
		t.Errorf("exit code %d after %v", code, time.Since(began))
	}
	if len(plane.finished) != 0 {
		t.Errorf("reported %v", plane.finished)
	}
}

func TestSilenceForTheFenceTimeEndsTheCommand(t *testing.T) {
	plane := newControlPlane(t, shell(`echo ready; sleep 60`))
	plane.grant["heartbeat_seconds"], plane.grant["fence_after_seconds"] = 0.2, 1
	plane.beat = func(int, map[string]any) (int, string) { return http.StatusServiceUnavailable, `{}` }
	p := startPod(t, plane.URL, place{})
	p.wait(t)
	if m, _ := task.ParseTermination(p.message(t)); m.Outcome != task.OutcomeLost || m.Reason != task.ReasonHeartbeat {
		t.Errorf("message %+v", m)
	}
}

func TestARunnerWithoutAControlPlaneExitsWith122(t *testing.T) {
	p := startPod(t, "http://127.0.0.1:1", place{})
	if code := p.wait(t); code != task.ExitUnreachable {
		t.Errorf("exit code %d", code)
	}
	if m := p.message(t); !strings.Contains(m, "could not be reached within 2s") {
		t.Errorf("message %q", m)
	}
}

func TestARunnerThatNobodyStartedSaysSo(t *testing.T) {
	p := startPod(t, "", place{})
	if code := p.wait(t); code != task.ExitUnreachable || !strings.Contains(p.out.String(), "SLIPWAY_URL is not set") {
		t.Errorf("exit code %d, %q", code, p.out)
	}
}

func TestTheCommandSeesNothingOfTheRunnersEnvironment(t *testing.T) {
	plane := newControlPlane(t, shell(`env | grep ^SLIPWAY_ | cut -d= -f1`))
	p := startPod(t, plane.URL, place{})
	p.wait(t)
	got := strings.Fields(p.out.String())
	slices.Sort(got)
	want := []string{"SLIPWAY_ATTEMPT_NUMBER", "SLIPWAY_PROGRESS", "SLIPWAY_RESULT", "SLIPWAY_TASK"}
	if !slices.Equal(got, want) {
		t.Errorf("the command sees %q", got)
	}
}

// A runner that was frozen past its fence time and the grace period after it gives its handler no more time: when it
// wakes, somebody else may hold the lane. It sends no heartbeat, and its report is refused.
func TestARunnerThatWakesPastItsFenceTimeKillsItsHandlerBeforeAnythingElse(t *testing.T) {
	const fence, grace = time.Second, 8 * time.Second
	p := newControlPlane(t, map[string]any{"command": []string{"sh", "-c", "trap '' TERM; echo at work; while :; do sleep 0.1; done"}})
	p.grant["fence_after_seconds"], p.grant["grace_seconds"], p.grant["heartbeat_seconds"] = fence.Seconds(), grace.Seconds(), 5
	p.stale = true
	pod := startPod(t, p.URL, place{})
	pod.out.wait(t, "at work")
	if err := pod.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(fence + grace + time.Second) // frozen
	if err := pod.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	woke := time.Now()
	if code := pod.wait(t); code == 0 {
		t.Error("it exits as if its handler had succeeded")
	}
	if took := time.Since(woke); took >= grace {
		t.Errorf("it was gone %v after it woke: the handler got another grace period", took)
	}
	if p.beats != 0 {
		t.Errorf("%d heartbeats were sent", p.beats)
	}
	if got := p.last(t); got["outcome"] != "lost" || got["reason"] != "heartbeat" {
		t.Errorf("reported %v", got)
	}
	if strings.Contains(pod.out.String(), "found nobody") {
		t.Error("it went on after its report was refused as stale")
	}
}
