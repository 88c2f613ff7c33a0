package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"slipway.dev/slipway/pkg/task"
)

// wrapping makes a runner wrap a shell script, in a folder of its own and with an environment like an image's.
func wrapping(script string) place {
	return place{args: []string{"exec", "--", "sh", "-c", script}, env: []string{"FROM_IMAGE=kept"}}
}

// anyKind is a control plane that grants a Task of a kind that no image of ours knows.
func anyKind(t *testing.T, params any) *controlPlane {
	t.Helper()
	plane := newControlPlane(t, params)
	plane.grant["kind"] = "report.build"
	return plane
}

func TestAWrappedProgramHasGateLogResultProgressAndMessage(t *testing.T) {
	plane := anyKind(t, map[string]any{"rows": 3, "key": "a secret word"})
	plane.grant["heartbeat_seconds"] = 0.2
	beaten := make(chan any, 100)
	plane.beat = func(_ int, body map[string]any) (int, string) {
		if body["progress"] != nil {
			beaten <- body["progress"]
		}
		return http.StatusOK, `{"cancel":false,"seconds_left":50}`
	}
	script := `echo MARK $FROM_IMAGE $PWD; stat -c %a $SLIPWAY_PARAMS; cp $SLIPWAY_PARAMS $SLIPWAY_RESULT; chmod 600 $SLIPWAY_RESULT
		echo '4/9 copying' > $SLIPWAY_PROGRESS; echo ready; while [ ! -e go ]; do sleep 0.05; done`
	where := wrapping(script)
	where.dir = t.TempDir()
	p := startPod(t, plane.URL, where)
	p.out.wait(t, "ready")
	if got := asJSON(t, <-beaten); got != `{"done":4,"message":"copying","total":9}` {
		t.Errorf("progress %s", got)
	}
	if err := os.WriteFile(filepath.Join(where.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d: %s", code, p.out)
	}
	want := fmt.Sprintf("MARK kept %s\n400\nready\n", where.dir)
	if p.out.String() != want {
		t.Errorf("the log is %q, want %q", p.out, want)
	}
	r := plane.last(t)
	if got := asJSON(t, r["result"]); r["outcome"] != "succeeded" || got != `{"key":"a secret word","rows":3}` {
		t.Errorf("reported %v", r)
	}
	if tail, err := base64.StdEncoding.DecodeString(fmt.Sprint(r["log_tail"])); err != nil || string(tail) != want {
		t.Errorf("tail %q, %v", tail, err)
	}
	if m := p.message(t); m != "v1 7 41 succeeded -" {
		t.Errorf("message %q", m)
	}
}

func TestAWrappedProgramSeesNoParametersInItsEnvironment(t *testing.T) {
	plane := anyKind(t, map[string]any{"key": "a secret word", "password": map[string]any{"secretRef": map[string]any{"name": "db", "key": "pw"}}})
	where := wrapping(`cp $SLIPWAY_PARAMS $SLIPWAY_RESULT; env`)
	where.env = append(where.env, "SLIPWAY_SECRET_password=another secret word")
	p := startPod(t, plane.URL, where)
	p.wait(t)
	if got := asJSON(t, plane.last(t)["result"]); got != `{"key":"a secret word","password":"another secret word"}` {
		t.Errorf("the file holds %s", got)
	}
	if strings.Contains(p.out.String(), "secret word") {
		t.Error("a parameter is in the environment")
	}
	var got []string
	for line := range strings.Lines(p.out.String()) {
		if name, _, ok := strings.Cut(line, "="); ok && strings.HasPrefix(name, "SLIPWAY_") {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if want := []string{"SLIPWAY_ATTEMPT_NUMBER", "SLIPWAY_PARAMS", "SLIPWAY_PROGRESS", "SLIPWAY_RESULT", "SLIPWAY_TASK"}; !slices.Equal(got, want) {
		t.Errorf("the program sees %q", got)
	}
}

func TestAWrappedProgramKeepsItsExitCodeAndItsSIGTERM(t *testing.T) {
	p := startPod(t, anyKind(t, nil).URL, wrapping(`exit 3`))
	if code := p.wait(t); code != 3 {
		t.Errorf("exit code %d", code)
	}
	plane := anyKind(t, nil)
	p = startPod(t, plane.URL, wrapping(`trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done`))
	p.out.wait(t, "ready")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	if r := plane.last(t); r["outcome"] != "lost" || r["reason"] != "terminated" {
		t.Errorf("reported %v", r)
	}
}

func TestAWrappedProgramThatDoesNotExistIsRejected(t *testing.T) {
	plane := anyKind(t, nil)
	p := startPod(t, plane.URL, place{args: []string{"exec", "--", "./no-such-program"}})
	if code := p.wait(t); code != 127 {
		t.Errorf("exit code %d", code)
	}
	if r := plane.last(t); r["outcome"] != "rejected" || r["reason"] != string(task.ReasonCannotRun) {
		t.Errorf("reported %v", r)
	}
}

func TestNothingRunsWhereTheStartIsRefused(t *testing.T) {
	for name, args := range map[string][]string{
		"exec": {"exec", "--", "sh", "-c", "echo RAN"}, "gate": {"gate"},
	} {
		plane := anyKind(t, nil)
		plane.refuse = http.StatusConflict
		p := startPod(t, plane.URL, place{args: args})
		if code := p.wait(t); code != task.ExitGateRefused || strings.Contains(p.out.String(), "RAN") {
			t.Errorf("%s: exit code %d, %s", name, code, p.out)
		}
	}
}

func TestAGateOpensOnceTheStartIsGrantedAndSaysNothingElse(t *testing.T) {
	plane := anyKind(t, nil)
	p := startPod(t, plane.URL, place{args: []string{"gate"}})
	if code := p.wait(t); code != 0 || p.out.String() != "" {
		t.Errorf("exit code %d, %s", code, p.out)
	}
	if len(plane.begun) != 1 || len(plane.finished) != 0 {
		t.Errorf("%d starts, %d reports", len(plane.begun), len(plane.finished))
	}
	if _, err := os.Stat(filepath.Join(p.dir, "message")); err == nil {
		t.Error("the gate left a termination message")
	}
}

func TestTheRunnerInstallsItself(t *testing.T) {
	file := filepath.Join(t.TempDir(), "copy")
	p := startPod(t, "", place{args: []string{"install", file}})
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d: %s", code, p.out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o755 {
		t.Fatalf("the copy: %v, %v", info, err)
	}
	again := exec.Command(file, "gate")
	again.Env = []string{asRunner + "=1"}
	out, err := again.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "SLIPWAY_URL is not set") {
		t.Errorf("the copy said %q, %v", out, err)
	}
	for _, args := range [][]string{{"install", "/no/such/folder/copy"}, {"install"}, {"exec"}, {"exec", "--"}, {"exec", "x"}, {"other"}} {
		if code := startPod(t, "", place{args: args}).wait(t); code != task.ExitUnreachable {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}
