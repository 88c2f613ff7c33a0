package postgres

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// session is a process of the server, known beyond its pid, which may be given out again.
type session struct {
	pid   int
	start string // clock ticks after boot
}

// sessions lists the server's child processes.
func (s *Server) sessions() []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	pid := s.process.Pid
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil // not on Linux: they notice by themselves
	}
	var found []session
	for _, field := range strings.Fields(string(raw)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		if start, ok := startOf(child); ok {
			found = append(found, session{child, start})
		}
	}
	return found
}

// alive tells whether this very process still runs.
func (p session) alive() bool {
	start, ok := startOf(p.pid)
	return ok && start == p.start
}

// startOf reads when a process began; ok is false where it is gone, or dead and not yet collected.
func startOf(pid int) (start string, ok bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	end := bytes.LastIndexByte(raw, ')') // the name may hold anything
	fields := strings.Fields(string(raw[end+1:]))
	const state, begun = 0, 19
	if end < 0 || len(fields) <= begun || fields[state] == "Z" || fields[state] == "X" {
		return "", false
	}
	return fields[begun], true
}
