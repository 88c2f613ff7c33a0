package r1

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// tick is the kernel's unit of CPU time in /proc, on every machine of today.
const tick = 10 * time.Millisecond

// cpu is what processes have used so far, by name.
type cpu map[string]time.Duration

// cpu reads what the cluster, the database with all its children, the replicas and this process have used.
func (b *bench) cpu(t testing.TB) cpu {
	t.Helper()
	used := cpu{}
	for _, part := range b.Cluster.Parts() {
		pid, err := b.Cluster.Pid(part)
		if err != nil {
			t.Fatalf("measure %s: %v", part, err)
		}
		used[part], _ = used.of(t, pid)
	}
	for _, replica := range b.Replicas {
		if replica.Running() {
			own, _ := used.of(t, replica.Pid())
			used["slipway"] += own
		}
	}
	main := b.Postgres.Pid()
	own, ended := used.of(t, main)
	used["postgres"] = own + ended
	for _, pid := range children(main) {
		own, _ := used.of(t, pid)
		used["postgres"] += own
	}
	used["loop"], _ = used.of(t, os.Getpid())
	return used
}

// of reads a process's own time and that of its children that have ended.
func (cpu) of(t testing.TB, pid int) (own, ended time.Duration) {
	t.Helper()
	f, err := stat(pid)
	if err != nil {
		return 0, 0 // it has just ended
	}
	number := func(n int) time.Duration {
		v, err := strconv.ParseInt(string(f[n]), 10, 64)
		if err != nil {
			t.Fatalf("read the CPU time of process %d: %v", pid, err)
		}
		return time.Duration(v) * tick
	}
	return number(11) + number(12), number(13) + number(14)
}

// stat gives the fields of /proc/PID/stat after the name.
func stat(pid int) ([][]byte, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	f := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(f) < 15 {
		return nil, fmt.Errorf("process %d has too few fields", pid)
	}
	return f, nil
}

func children(parent int) (all []int) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		if f, err := stat(pid); err == nil && string(f[1]) == strconv.Itoa(parent) {
			all = append(all, pid)
		}
	}
	return all
}

// since is what was used after an earlier reading, without the given names.
func (c cpu) since(before cpu, without ...string) (total time.Duration) {
	for name, used := range c {
		total += used - before[name]
	}
	for _, name := range without {
		total -= c[name] - before[name]
	}
	return total
}
