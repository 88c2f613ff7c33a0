package rig

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

// JobsCreated counts, per Job name, the creates in namespace that the API server accepted, by its own audit log.
func (r *Rig) JobsCreated(t testing.TB, namespace string) map[string]int {
	t.Helper()
	f, err := os.Open(r.Cluster.AuditLog)
	if err != nil {
		t.Fatalf("open the audit log: %v", err)
	}
	defer f.Close()
	created := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e struct {
			Stage, Verb string
			ObjectRef   struct{ Resource, Namespace, Name, Subresource string }
			Status      struct{ Code int } `json:"responseStatus"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line may still be being written
		}
		o := e.ObjectRef
		if e.Stage == "ResponseComplete" && e.Verb == "create" && o.Resource == "jobs" && o.Subresource == "" &&
			o.Namespace == namespace && e.Status.Code == 201 {
			created[o.Name]++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("read the audit log: %v", err)
	}
	return created
}
