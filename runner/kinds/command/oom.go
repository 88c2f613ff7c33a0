package command

import (
	"os"
	"path"
	"strconv"
	"strings"
)

// oomKills counts the processes that the kernel has killed for memory in this container's cgroup so far; 0 where that
// cannot be read.
func oomKills() int {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	for _, file := range oomFiles(string(own)) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, ok := oomCount(string(text)); ok {
			return n
		}
	}
	return 0
}

// oomFiles lists where the count may stand, given /proc/self/cgroup: under the cgroup's own path, or at the top where
// the container sees its own cgroup as the root. Version 1 keeps it in memory.oom_control, version 2 in memory.events.
func oomFiles(own string) []string {
	const root = "/sys/fs/cgroup"
	var v1, v2 []string
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case hasWord(parts[1], "memory"):
			v1 = append(v1, path.Join(root, "memory", parts[2], "memory.oom_control"), path.Join(root, "memory/memory.oom_control"))
		case parts[0] == "0" && parts[1] == "":
			v2 = append(v2, path.Join(root, parts[2], "memory.events"), path.Join(root, "memory.events"))
		}
	}
	return append(v1, v2...)
}

func hasWord(list, word string) bool {
	for entry := range strings.SplitSeq(list, ",") {
		if entry == word {
			return true
		}
	}
	return false
}

// oomCount reads the line `oom_kill N`.
func oomCount(text string) (n int, ok bool) {
	for line := range strings.Lines(text) {
		value, found := strings.CutPrefix(strings.TrimSpace(line), "oom_kill ")
		if !found {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(value))
		return n, err == nil
	}
	return 0, false
}
