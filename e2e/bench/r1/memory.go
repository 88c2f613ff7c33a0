package r1

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/bench/report"
	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/pkg/api"
)

// memory measures a replica while 10,000 Tasks run: each has a Job and a running pod. A machine that cannot bring up so many
// in three minutes stops where it is; then what a Task takes is multiplied: of the memory that is the process's own, since the
// pages of the program itself, which count too, are as many for any number.
func memory(t testing.TB, b *bench) {
	const wanted, most, settle = 10_000, 3 * time.Minute, 40
	pid := b.Replicas[0].Pid()
	idle, before := resident(t, pid, "RssAnon"), resident(t, pid, "VmRSS")
	ids := b.submitMany(t, local.FakeHold, part(wanted))
	for end := time.Now().Add(most); b.running(t, ids) < len(ids) && time.Now().Before(end); {
		time.Sleep(2 * time.Second) // counting them is work for the machine too
	}
	b.Exec(t, "UPDATE slipway.queues SET paused = true")
	var samples, own []float64
	for tick := time.NewTicker(time.Second); len(samples) < settle; <-tick.C {
		samples, own = append(samples, resident(t, pid, "VmRSS")), append(own, resident(t, pid, "RssAnon"))
	}
	active := b.running(t, ids)
	if active == 0 {
		t.Fatalf("no task is active")
	}
	scaled := make([]float64, len(samples))
	for i, mb := range samples {
		scaled[i] = mb - own[i] + idle + max(own[i]-idle, 0)*wanted/float64(active)
	}
	b.one(t, float64(active), "active tasks when the memory was measured", "tasks", report.NoBudget)
	b.one(t, before, "memory of a replica before that", "MB", report.NoBudget)
	b.keep(t, "memory", samples, b.figure("memory of a replica then", "MB", report.Figure{Of: report.Most}))
	b.keep(t, "memory in proportion", scaled, b.figure("memory of a replica, 10,000 active tasks, in proportion", "MB", report.Figure{Of: report.Most, Budget: 200}))
	b.one(t, resident(t, pid, "VmHWM"), "its peak on the way there", "MB", report.NoBudget)
}

// running counts the Tasks among these that have a pod on a node.
func (b *bench) running(t testing.TB, ids []string) int {
	t.Helper()
	return b.count(t, ids, `SELECT count(DISTINCT t.key) FROM slipway.tasks t JOIN slipway.attempts a ON a.task = t.key
		JOIN slipway.attempt_pods p ON p.attempt = a.id WHERE t.id = ANY ($1::uuid[]) AND t.state = 'running'`)
}

// resident reads a line of /proc/PID/status, in MB.
func resident(t testing.TB, pid int, field string) float64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatalf("read the memory of process %d: %v", pid, err)
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			if err != nil {
				t.Fatalf("read the memory of process %d: %v", pid, err)
			}
			return kb / 1024
		}
	}
	t.Fatalf("process %d has no %s", pid, field)
	return 0
}

func idsOf(t testing.TB, body []byte) (ids []string) {
	t.Helper()
	var result api.BatchResult
	if err := json.Unmarshal(body, &result); err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	for _, entry := range result.Items {
		ids = append(ids, entry.ID)
	}
	return ids
}
