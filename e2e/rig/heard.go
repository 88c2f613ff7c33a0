package rig

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Logged counts the lines of the replica's log that hold text.
func (p *Replica) Logged(t testing.TB, text string) int {
	t.Helper()
	raw, err := os.ReadFile(p.LogFile)
	if err != nil {
		t.Fatalf("read the log of %s: %v", p.Name, err)
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Metric reads one number of the replica, by its name with its labels.
func (p *Replica) Metric(ctx context.Context, name string) (float64, error) {
	_, body, err := p.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", p.Name, name)
}

// WaitHealth waits until the replica is ready and says, or does not say, that it is degraded.
func (p *Replica) WaitHealth(t testing.TB, degraded bool) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s to be degraded: %t", p.Name, degraded), func(ctx context.Context) (bool, error) {
		status, body, err := p.Get(ctx, "/readyz")
		if err != nil {
			return false, err
		}
		if status != http.StatusOK || strings.Contains(body, "degraded: cluster") != degraded {
			return false, fmt.Errorf("%d %s", status, body)
		}
		return true, nil
	})
}
