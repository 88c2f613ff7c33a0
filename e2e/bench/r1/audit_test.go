package r1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	create = `{"stage":"ResponseComplete","verb":"create","requestURI":"/apis/batch/v1/namespaces/a/jobs","user":{"username":"system:serviceaccount:slipway-system:slipway"},"objectRef":{"resource":"jobs","namespace":"a","name":"x"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:05.000002Z"}`
	dryRun = `{"stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/namespaces/a/pods?dryRun=All","user":{"username":"system:serviceaccount:slipway-system:slipway"},"objectRef":{"resource":"pods","namespace":"a"},"responseStatus":{"code":201}}`
	status = `{"stage":"ResponseComplete","verb":"patch","requestURI":"/api/v1/namespaces/a/pods/p/status","user":{"username":"admin"},"objectRef":{"resource":"pods","namespace":"a","name":"p","subresource":"status"},"responseStatus":{"code":200}}`
	begun  = `{"stage":"ResponseStarted","verb":"watch","objectRef":{"resource":"jobs"}}`
)

func TestTheAuditLogIsReadPieceByPieceAndALineUnderWayLater(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := &audit{file: file}
	write(create + "\n" + begun + "\n" + dryRun[:20])
	if got := a.read(t); len(got) != 1 || !got[0].did("create", "jobs", "") || !got[0].ours() || got[0].Answered.Sub(got[0].Asked) != 1000 {
		t.Fatalf("read %+v", got)
	}
	write(create + "\n" + begun + "\n" + dryRun + "\n" + status + "\n")
	got := a.read(t)
	if len(got) != 2 || got[0].did("create", "pods", "") || !got[1].did("patch", "pods", "status") || got[1].ours() {
		t.Fatalf("then read %+v", got)
	}
}

func TestCallsOffTheStraightLineAreCountedApart(t *testing.T) {
	for text, want := range map[string]struct {
		name     string
		straight bool
	}{
		"create jobs ": {"create jobs", true}, "patch pods ": {"patch pods", true}, "delete pods ": {"delete pods", true},
		"list jobs ": {"list jobs", false}, "get pods log": {"get pods/log", false}, "create subjectaccessreviews ": {"create subjectaccessreviews", false},
		"create tokenreviews ": {"create tokenreviews", false}, "create pods dry": {"dry run pods", false},
	} {
		var e event
		var sub string
		for i, part := range []*string{&e.Verb, &e.ObjectRef.Resource, &sub} {
			*part = strings.Split(text, " ")[i]
		}
		if e.ObjectRef.Subresource = sub; sub == "dry" {
			e.ObjectRef.Subresource, e.RequestURI = "", "/api/v1/namespaces/a/pods?dryRun=All"
		}
		if name, straight := e.call(); name != want.name || straight != want.straight {
			t.Errorf("%q is %q, on the line %v; want %q, %v", text, name, straight, want.name, want.straight)
		}
	}
}
