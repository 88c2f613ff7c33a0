package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a shell script as the command of a Task.
func run(ctx context.Context, t *testing.T, script string, overdue <-chan struct{}) (any, string, error) {
	t.Helper()
	return runParams(ctx, t, Params{Command: []string{"sh", "-c", script}}, overdue)
}

func runParams(ctx context.Context, t *testing.T, p Params, overdue <-chan struct{}) (any, string, error) {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	both := &locked{to: &out}
	result, err := Run(ctx, handler.Task{
		ID: "t-1", Attempt: 2, Params: raw, Stdout: both, Stderr: both, Dir: t.TempDir(), Overdue: overdue,
	})
	return result, out.String(), err
}

func failure(t *testing.T, err error) *handler.Failure {
	t.Helper()
	var f *handler.Failure
	if !errors.As(err, &f) || f.ExitCode == nil {
		t.Fatalf("got %v, want a failure with an exit code", err)
	}
	return f
}

func TestTheResultFileIsTheResult(t *testing.T) {
	result, out, err := run(t.Context(), t, `echo '{"rows": 3}' > $SLIPWAY_RESULT; echo out; echo err >&2`, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := asJSON(t, result); got != `{"rows":3}` {
		t.Errorf("result %s", got)
	}
	if !strings.Contains(out, "out\n") || !strings.Contains(out, "err\n") {
		t.Errorf("output %q", out)
	}
	if result, _, err := run(t.Context(), t, `true`, nil); result != nil || err != nil {
		t.Errorf("without a file: %v, %v", result, err)
	}
}

func TestABadResultFileIsAFailure(t *testing.T) {
	for _, script := range []string{
		`echo '{"rows": ' > $SLIPWAY_RESULT`,
		`head -c 70000 /dev/zero > $SLIPWAY_RESULT`,
		`mkdir $SLIPWAY_RESULT`,
	} {
		if _, _, err := run(t.Context(), t, script, nil); failure(t, err).Reason != handler.ReasonResult {
			t.Errorf("%s: %v", script, err)
		}
	}
}

func TestTheExitCodeIsKept(t *testing.T) {
	for script, want := range map[string]int{`exit 3`: 3, `exit 121`: 121, `kill -9 $$`: 137} {
		_, _, err := run(t.Context(), t, script, nil)
		if f := failure(t, err); *f.ExitCode != want {
			t.Errorf("%s: exit code %d, want %d", script, *f.ExitCode, want)
		}
	}
}

func TestACommandThatCannotRunIsRejected(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("\x7fELFnot really"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range []Params{
		{Command: []string{"no-such-program"}},
		{Command: []string{"/no/such/program"}},
		{Command: []string{"/etc"}},
		{Command: []string{text}},
		{Command: []string{"true"}, Dir: "/no/such/folder"},
	} {
		_, _, err := runParams(t.Context(), t, p, nil)
		if f := failure(t, err); f.Reason != task.ReasonCannotRun {
			t.Errorf("%v: %v", p, err)
		}
	}
}

func TestParametersThatMakeNoCommandAreRefused(t *testing.T) {
	for _, p := range []Params{
		{},
		{Command: []string{""}},
		{Command: []string{"echo", "a\x00b"}},
		{Command: []string{"true"}, Env: map[string]string{"A=B": "c"}},
		{Command: []string{"true"}, Env: map[string]string{"SLIPWAY_URL": "http://elsewhere"}},
	} {
		if _, _, err := runParams(t.Context(), t, p, nil); err == nil {
			t.Errorf("%+v was taken", p)
		}
	}
}

func TestDirStdinAndEnvironmentReachTheCommand(t *testing.T) {
	dir := t.TempDir()
	big := strings.Repeat("x", 200_000)
	_, out, err := runParams(t.Context(), t, Params{
		Command: []string{"sh", "-c", `pwd; echo $GREETING; wc -c`}, Dir: dir, Stdin: big, Env: map[string]string{"GREETING": "hello"},
	}, nil)
	if want := dir + "\nhello\n200000\n"; err != nil || out != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
	if _, _, err := runParams(t.Context(), t, Params{Command: []string{"true"}, Stdin: big}, nil); err != nil {
		t.Errorf("a command that does not read its input: %v", err)
	}
}

func TestNoVariableOfTheRunnerReachesTheCommand(t *testing.T) {
	own := []string{"SLIPWAY_URL=u", "SLIPWAY_FENCE=1", "SLIPWAY_TASK=forged", "HOME=/h", "LANG=C"}
	got := childEnvironment(own, handler.Task{ID: "t", Attempt: 2, Dir: "/slipway"}, map[string]string{"LANG": "en"})
	slices.Sort(got)
	want := []string{
		"HOME=/h", "LANG=en", "PATH=" + defaultPath, "SLIPWAY_ATTEMPT_NUMBER=2", "SLIPWAY_PROGRESS=/slipway/progress",
		"SLIPWAY_RESULT=/slipway/result.json", "SLIPWAY_TASK=t",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTheWholeGroupGetsSIGTERM(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	out := onOutput("ready", cancel)
	_, err := runTo(ctx, t, `sleep 60 & sleep 60 & echo ready; wait`, out, nil)
	if f := failure(t, err); f.Reason != task.ReasonSignal || *f.ExitCode != 143 {
		t.Errorf("got %+v", f)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestAnExitWith0AfterSIGTERMIsNoSuccessWithoutAResult(t *testing.T) {
	for script, succeeds := range map[string]bool{
		`trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done`:                           false,
		`trap 'echo 1 > $SLIPWAY_RESULT; exit 0' TERM; echo ready; while :; do sleep 0.05; done`: true,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := runTo(ctx, t, script, onOutput("ready", cancel), nil)
		cancel()
		if (err == nil) != succeeds {
			t.Errorf("%s: %v", script, err)
		}
	}
}

func TestACommandThatIgnoresSIGTERMIsKilledWhenItsGracePeriodIsOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	overdue := make(chan struct{})
	out := onOutput("deaf", func() { cancel(); close(overdue) })
	_, err := runTo(ctx, t, `trap '' TERM; echo deaf; while :; do sleep 0.05; done`, out, overdue)
	if f := failure(t, err); *f.ExitCode != 137 {
		t.Errorf("got %+v", f)
	}
}

func TestWhatACommandLeavesBehindInItsGroupEndsWithIt(t *testing.T) {
	began := time.Now()
	_, out, err := run(t.Context(), t, `(trap '' TERM; sleep 300; echo late) & echo $!; exit 0`, nil)
	if err != nil || strings.Contains(out, "late") || time.Since(began) > 20*time.Second {
		t.Errorf("%v, %q after %v", err, out, time.Since(began))
	}
}

func TestAProcessThatLeftTheGroupDoesNotHoldTheEndUp(t *testing.T) {
	began := time.Now()
	_, _, err := run(t.Context(), t, `setsid sleep 8 & while [ ! -e "$SLIPWAY_RESULT" ]; do sleep 0.02; [ "$(cut -d" " -f6 /proc/$!/stat)" = "$!" ] && echo 1 > "$SLIPWAY_RESULT"; done; exit 0`, nil)
	if took := time.Since(began); err != nil || took > 7*time.Second || took < drainWithin {
		t.Errorf("%v after %v", err, took)
	}
}

func TestProgressIsReadFromTheLastLine(t *testing.T) {
	cases := map[string]struct {
		want handler.Progress
		ok   bool
	}{
		"3/10 copying\n":                          {handler.Progress{Done: 3, Total: 10, Message: "copying"}, true},
		"1/2\n2/2 both\n":                         {handler.Progress{Done: 2, Total: 2, Message: "both"}, true},
		`{"done": 5, "total": 7, "message": "x"}`: {handler.Progress{Done: 5, Total: 7, Message: "x"}, true},
		strings.Repeat("1/9 "+strings.Repeat("y", 90)+"\n", 200) + "9/9 end": {handler.Progress{Done: 9, Total: 9, Message: "end"}, true},
		"":          {},
		"half":      {},
		"-1/3":      {},
		"1/x":       {},
		`{"done": `: {},
	}
	for text, c := range cases {
		file := filepath.Join(t.TempDir(), "progress")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok := readProgress(file); got != c.want || ok != c.ok {
			t.Errorf("%.40q: %+v %v", text, got, ok)
		}
	}
	if _, ok := readProgress("/no/such/file"); ok {
		t.Error("a missing file has progress")
	}
}

func TestTheMemoryCountIsFoundInBothCgroupVersions(t *testing.T) {
	const hybrid = "7:cpu,memory:/kubepods/pod1/c\n1:name=systemd:/x\n0::/unified/y\n"
	got := oomFiles(hybrid)
	want := []string{
		"/sys/fs/cgroup/memory/kubepods/pod1/c/memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control",
		"/sys/fs/cgroup/unified/y/memory.events", "/sys/fs/cgroup/memory.events",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for text, n := range map[string]int{
		"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n": 2, "low 0\noom 4\noom_kill 3\noom_group_kill 1\n": 3,
	} {
		if got, ok := oomCount(text); !ok || got != n {
			t.Errorf("%q: %d %v", text, got, ok)
		}
	}
	if _, ok := oomCount("low 0\n"); ok {
		t.Error("a file without the line has a count")
	}
}

func TestAKillForMemoryCountsWhateverTheExitCode(t *testing.T) {
	for _, end := range []ended{{outOfMemory: true}, {outOfMemory: true, code: 3}, {outOfMemory: true, code: 137, signal: 9}} {
		_, err := conclude(end, "/no/such/file")
		if f := failure(t, err); f.Reason != task.ReasonOOMKilled || *f.ExitCode != end.code {
			t.Errorf("%+v: %+v", end, f)
		}
	}
}
