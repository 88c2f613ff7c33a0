package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"slipway.dev/slipway/e2e/packages"
)

// process identifies a process beyond its pid, which may be given out again.
type process struct {
	PID   int
	Start uint64 // clock ticks after boot
	Boot  string // the boot that it ran in
}

// clusterVariable and partVariable stand in the environment of every process
// that is started here; containerd hands them on to its shims.
const (
	clusterVariable = "SLIPWAY_CLUSTER"
	partVariable    = "SLIPWAY_PART"
)

// identify reads who a running process is; ended is true for one that only
// waits for its exit status to be collected.
func identify(pid int) (p process, ended bool, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, true, fmt.Errorf("identify process %d: %w", pid, err)
	}
	ended, start, err := parseStat(raw)
	if err != nil {
		return process{}, true, fmt.Errorf("identify process %d: %w", pid, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}, true, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return process{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, ended, nil
}

// parseStat reads the state, the number of threads and the start; the process's
// name may hold anything. A process whose first thread has ended is dead only
// when the others have let go of files and ports too.
func parseStat(raw []byte) (ended bool, start uint64, err error) {
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return false, 0, errors.New("no process name")
	}
	fields := strings.Fields(string(raw[end+1:]))
	if len(fields) < 20 {
		return false, 0, errors.New("too few fields")
	}
	state, threads := fields[0], fields[17]
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return state == "X" || state == "Z" && (threads == "0" || threads == "1"), start, err
}

// alive says whether this very process runs. It also collects the exit status
// if the process was a child of ours.
func (p process) alive() bool {
	if p.PID <= 0 {
		return false
	}
	now, ended, err := identify(p.PID)
	if err != nil || now != p {
		return false
	}
	if ended {
		_, _ = syscall.Wait4(p.PID, nil, syscall.WNOHANG, nil)
	}
	return !ended
}

// signal cannot hit another process: the handle is taken before the check.
func (p process) signal(s os.Signal) error {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	defer func() { _ = handle.Release() }()
	if !p.alive() {
		return fmt.Errorf("signal process %d: %w", p.PID, os.ErrProcessDone)
	}
	if err := handle.Signal(s); err != nil {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// launch starts a process that outlives this one, with its output in a log.
func (c *Cluster) launch(part string, argv []string) error {
	if err := os.MkdirAll(c.path("log"), 0o700); err != nil {
		return fmt.Errorf("start %s: %w", part, err)
	}
	log, err := os.OpenFile(c.logPath(part), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", part, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(packages.Find(argv[0]), argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.Env = []string{"PATH=" + packages.SearchPath, "HOME=" + c.Dir, c.mark(), partVariable + "=" + part}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", part, err)
	}
	p, _, err := identify(cmd.Process.Pid)
	_ = cmd.Process.Release()
	if err != nil {
		return fmt.Errorf("start %s: %w", part, err)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("start %s: %w", part, err)
	}
	if err := os.MkdirAll(c.path("pid"), 0o700); err != nil {
		return fmt.Errorf("start %s: %w", part, err)
	}
	return writeFile(c.path("pid", part+".json"), raw)
}

func (c *Cluster) logPath(part string) string { return c.path("log", part+".log") }

func (c *Cluster) mark() string { return clusterVariable + "=" + c.record.ID }

// running reads a part's process; false if it does not run.
func (c *Cluster) running(part string) (process, bool) {
	var p process
	raw, err := os.ReadFile(c.path("pid", part+".json"))
	if err != nil || json.Unmarshal(raw, &p) != nil {
		return process{}, false
	}
	return p, p.alive()
}

// marked finds the processes that carry the cluster's mark in their
// environment, however they were started and whatever became of their parent.
func marked(id string) []process {
	return scan(func(pid int) bool {
		return hasVariable(pid, clusterVariable+"="+id)
	})
}

func hasVariable(pid int, variable string) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(append([]byte{0}, raw...), []byte("\x00"+variable+"\x00"))
}

// scan never returns this process.
func scan(want func(pid int) bool) []process {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	var found []process
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || pid == os.Getpid() || !want(pid) {
			continue
		}
		if p, ended, err := identify(pid); err == nil && !ended {
			found = append(found, p)
		}
	}
	return found
}

// end stops processes, by SIGTERM first if there is a grace, and returns when
// they are gone.
func end(ctx context.Context, grace time.Duration, list ...process) error {
	signal := syscall.SIGTERM
	if grace == 0 {
		signal = syscall.SIGKILL
	}
	for _, p := range list {
		_ = p.signal(signal)
	}
	for since := time.Now(); ; {
		living := 0
		for _, p := range list {
			if p.alive() {
				living++
				if time.Since(since) > grace {
					_ = p.signal(syscall.SIGKILL)
				}
			}
		}
		if living == 0 {
			return nil
		}
		if time.Since(since) > grace+20*time.Second {
			return fmt.Errorf("end processes: %d still run 20 s after SIGKILL", living)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("end processes: %w", err)
		}
	}
}
