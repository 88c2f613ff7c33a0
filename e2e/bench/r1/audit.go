package r1

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// audit reads the API server's audit log piece by piece.
type audit struct {
	file   string
	offset int64
}

// event is one request that was answered.
type event struct {
	Stage, Verb, RequestURI string
	User                    struct{ Username string }
	ObjectRef               struct{ Resource, Namespace, Name, Subresource string }
	ResponseStatus          struct{ Code int }
	Asked                   time.Time `json:"requestReceivedTimestamp"`
	Answered                time.Time `json:"stageTimestamp"`
}

// ours reports whether the control plane asked.
func (e event) ours() bool { return e.User.Username == "system:serviceaccount:slipway-system:slipway" }

func (e event) did(verb, resource, subresource string) bool {
	return e.Verb == verb && e.ObjectRef.Resource == resource && e.ObjectRef.Subresource == subresource &&
		e.ResponseStatus.Code/100 == 2 && !strings.Contains(e.RequestURI, "dryRun")
}

// read gives what was answered since it was last called.
func (a *audit) read(t testing.TB) []event {
	t.Helper()
	f, err := os.Open(a.file)
	if err != nil {
		t.Fatalf("open the audit log: %v", err)
	}
	defer f.Close()
	if _, err := f.Seek(a.offset, io.SeekStart); err != nil {
		t.Fatalf("read the audit log: %v", err)
	}
	var all []event
	for in := bufio.NewReaderSize(f, 1<<20); ; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all // the last line may still be being written: it is read again
		}
		if err != nil {
			t.Fatalf("read the audit log: %v", err)
		}
		a.offset += int64(len(line))
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("read the audit log: %v", err)
		}
		if e.Stage == "ResponseComplete" {
			all = append(all, e)
		}
	}
}

// call names what a request of ours was. Those on the straight line are apart from what answers a user, proves a template,
// or reads.
func (e event) call() (name string, straight bool) {
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	switch {
	case strings.Contains(e.RequestURI, "dryRun"):
		return "dry run " + resource, false
	case strings.HasSuffix(resource, "reviews"), e.Verb == "get", e.Verb == "list", e.Verb == "watch":
		return e.Verb + " " + resource, false
	}
	return e.Verb + " " + resource, true
}
