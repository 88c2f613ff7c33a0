package r1

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/bench/report"
	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/pkg/api"
)

// memory measures a replica while 10,000 Tasks run: each has a Job and a running pod.
func memory(t testing.TB, b *bench) {
	const watched = 40 * time.Second
	active := part(10_000)
	replica := b.Replicas[0]
	pid := replica.Pid()
	idle := resident(t, pid, "VmRSS")
	ids := b.submitMany(t, local.FakeHold, active)
	b.running(t, ids)
	var samples []float64
	for tick, end := time.NewTicker(time.Second), time.Now().Add(watched); time.Now().Before(end); <-tick.C {
		samples = append(samples, resident(t, pid, "VmRSS"))
	}
	b.one(t, idle, "memory of a replica before that", "MB", report.NoBudget)
	b.keep(t, "memory", samples, b.figure("memory of a replica, 10,000 active tasks", "MB", report.Figure{Of: report.Most, Budget: 200}))
	b.one(t, resident(t, pid, "VmHWM"), "its peak on the way there", "MB", report.NoBudget)
}

// running waits until each of these Tasks has a pod that runs.
func (b *bench) running(t testing.TB, ids []string) {
	t.Helper()
	until(t, "every pod to run", func() (int, error) {
		time.Sleep(2 * time.Second) // counting them is work for the machine too
		seen := b.count(t, ids, "SELECT count(*) FROM slipway.attempts a JOIN slipway.tasks t ON t.key = a.task JOIN slipway.attempt_pods p ON p.attempt = a.id WHERE t.id = ANY ($1::uuid[])")
		pending, err := b.Kube.CoreV1().Pods(b.Namespace()).List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Pending", Limit: 1})
		if err != nil {
			return len(ids) - seen, err
		}
		return len(ids) - seen + len(pending.Items), nil
	})
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
