package rig

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// JobsCreated counts, per Job name, the creates in namespace that the API server accepted, by its own audit log.
func (r *Rig) JobsCreated(t testing.TB, namespace string) map[string]int {
	t.Helper()
	return r.audited(t, namespace, "create", 201)
}

// JobsDeleted counts the deletes in the same way.
func (r *Rig) JobsDeleted(t testing.TB, namespace string) map[string]int {
	t.Helper()
	return r.audited(t, namespace, "delete", 200)
}

func (r *Rig) audited(t testing.TB, namespace, verb string, code int) map[string]int {
	t.Helper()
	f, err := os.Open(r.Cluster.AuditLog)
	if err != nil {
		t.Fatalf("open the audit log: %v", err)
	}
	defer f.Close()
	count := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e struct {
			Stage, Verb, RequestURI string
			ObjectRef               struct{ Resource, Namespace, Name, Subresource string }
			Status                  struct{ Code int } `json:"responseStatus"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line may still be being written
		}
		o := e.ObjectRef
		if e.Stage == "ResponseComplete" && e.Verb == verb && o.Resource == "jobs" && o.Subresource == "" &&
			o.Namespace == namespace && e.Status.Code == code && !strings.Contains(e.RequestURI, "dryRun") {
			count[o.Name]++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("read the audit log: %v", err)
	}
	return count
}
