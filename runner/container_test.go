package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ownPIDs puts a process into a PID namespace of its own, where it is process 1.
func ownPIDs(t *testing.T) place {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may make a PID namespace here")
	}
	return place{namespaces: syscall.CLONE_NEWPID}
}

func TestAsProcess1TheRunnerReapsOrphansAndKeepsTheExitCode(t *testing.T) {
	// The orphan's parent exits at once; nobody but process 1 can reap it then.
	plane := newControlPlane(t, shell(`(setsid sh -c 'echo orphan; exit 0' &) ; echo ready; sleep 60`))
	p := startPod(t, plane.URL, ownPIDs(t))
	p.out.wait(t, "ready")
	p.out.wait(t, "orphan")
	late := time.After(10 * time.Second)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for zombiesOf(t, p.cmd.Process.Pid) > 0 {
		select {
		case <-look.C:
		case <-late:
			t.Fatal("zombies are left")
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 143 {
		t.Errorf("exit code %d: %s", code, p.out)
	}
	if r := plane.last(t); r["outcome"] != "lost" {
		t.Errorf("reported %v", r)
	}
}

// zombiesOf counts the children of pid that have ended and were not reaped.
func zombiesOf(t *testing.T, pid int) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range stats {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // gone meanwhile
		}
		_, rest, _ := strings.Cut(string(raw), ") ")
		if strings.HasPrefix(rest, fmt.Sprintf("Z %d ", pid)) {
			n++
		}
	}
	return n
}

// memoryGroup makes a memory cgroup with the limit and gives its folder.
func memoryGroup(t *testing.T, limit int) string {
	t.Helper()
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(root); errors.Is(err, os.ErrNotExist) {
		root, file = "/sys/fs/cgroup", "memory.max"
	}
	dir := filepath.Join(root, fmt.Sprintf("slipway-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no memory cgroup can be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("remove the cgroup: %v", err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, file), []byte(fmt.Sprint(limit)), 0o644); err != nil {
		t.Skipf("no memory limit can be set here: %v", err)
	}
	return dir
}

func TestACommandKilledForMemoryIsReportedAsSuchWhateverItsExitCode(t *testing.T) {
	// The shell survives its child and turns the kill into an exit code of its own.
	plane := newControlPlane(t, shell(`head -c 400000000 /dev/zero | tail > /dev/null; exit 3`))
	p := startPod(t, plane.URL, place{cgroup: memoryGroup(t, 64<<20)})
	if code := p.wait(t); code != 3 {
		t.Errorf("exit code %d", code)
	}
	if r := plane.last(t); r["outcome"] != "failed" || r["reason"] != "oom_killed" {
		t.Errorf("reported %v: %s", r, p.out)
	}
}
