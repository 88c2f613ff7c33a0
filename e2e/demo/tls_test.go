package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubectlThat makes a kubectl that runs a line of shell and counts its runs in a file.
func kubectlThat(t *testing.T, line string) (kubectl string, runs func() int) {
	t.Helper()
	dir := t.TempDir()
	kubectl, count := filepath.Join(dir, "kubectl"), filepath.Join(dir, "runs")
	if err := os.WriteFile(kubectl, []byte("#!/bin/sh\necho run >>"+count+"\n"+line+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return kubectl, func() int {
		text, _ := os.ReadFile(count)
		return strings.Count(string(text), "run")
	}
}

func TestAForwardingThatHasEndedIsBegunAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	kubectl, runs := kubectlThat(t, fmt.Sprintf("echo 'Forwarding from %s -> 8080'; exec sleep 60", l.Addr()))
	way := &tunnel{cluster: &cluster{kubectl: kubectl}}
	defer way.close()
	dial := func(want int) {
		t.Helper()
		conn, err := way.dial(t.Context(), "tcp", "")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if runs() != want {
			t.Errorf("begun %d times, want %d", runs(), want)
		}
	}
	dial(1)
	dial(1)
	way.stop()
	dial(2)
}

func TestAForwardingThatCannotStandIsExplained(t *testing.T) {
	kubectl, _ := kubectlThat(t, "echo 'pods is forbidden' >&2; exit 1")
	if _, err := (&tunnel{cluster: &cluster{kubectl: kubectl}}).dial(t.Context(), "tcp", ""); err == nil || !strings.Contains(err.Error(), "pods is forbidden") {
		t.Error(err)
	}
}
