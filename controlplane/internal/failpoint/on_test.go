//go:build failpoints

package failpoint

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestAPlanIsReadOrRefused(t *testing.T) {
	got, err := parse("a=kill|b=sleep:2s|c@3=panic")
	if err != nil || len(got) != 3 || got["b"] != "sleep:2s" || got["c@3"] != "panic" {
		t.Fatalf("%v, %v", got, err)
	}
	for _, bad := range []string{"a", "=kill", "a=sleep", "a=sleep:long", "a=explode"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestProcess is what the next test runs: it does nothing by itself.
func TestProcess(t *testing.T) {
	if os.Getenv(Variable) == "" {
		t.Skip("run by TestAProcessEndsWhereThePlanSays")
	}
	Hit("here")
	Hit("here")
}

func TestAProcessEndsWhereThePlanSays(t *testing.T) {
	run := func(plan string) (*os.ProcessState, string) {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestProcess$")
		cmd.Env = append(os.Environ(), Variable+"="+plan)
		out, _ := cmd.CombinedOutput() // how it ended is what is looked at
		return cmd.ProcessState, string(out)
	}
	if state, out := run("elsewhere=kill"); !state.Success() {
		t.Fatalf("%v: %s", state, out)
	}
	if state, _ := run("here@2=kill"); state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v", state)
	}
	if state, out := run("here=panic"); state.Success() || !strings.Contains(out, "failpoint here") {
		t.Fatalf("%v: %s", state, out)
	}
}
