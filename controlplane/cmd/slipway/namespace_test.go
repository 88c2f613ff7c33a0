package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/manifests/rights"
)

// apiServer plays a cluster with one Deployment, one pod and one Job; it keeps what it was asked to change.
type apiServer struct {
	list    string // SLIPWAY_NAMESPACES
	jobs    int
	changed []string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodGet {
		s.changed = append(s.changed, r.Method+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "/namespaces/")+len("/namespaces/"):])
	}
	w.Header().Set("Content-Type", "application/json")
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p-1","namespace":"shop","finalizers":["slipway.dev/evidence"],"labels":{"slipway.dev/instance":"i-1"}}}`
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/deployments/slipway"):
		_, _ = fmt.Fprintf(w, `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"slipway","resourceVersion":"7"},"spec":{"template":{"spec":{"containers":[
{"name":"controlplane","env":[{"name":"SLIPWAY_NAMESPACES","value":%q}]}]}}}}`, s.list)
		if r.Method == http.MethodPatch {
			s.changed = append(s.changed, string(body))
		}
	case strings.HasSuffix(path, "/jobs"):
		items := strings.TrimSuffix(strings.Repeat(`{"metadata":{"name":"j"}},`, s.jobs), ",")
		_, _ = io.WriteString(w, `{"kind":"JobList","apiVersion":"batch/v1","items":[`+items+`]}`)
	case strings.HasSuffix(path, "/pods"):
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","items":[`+pod+`]}`)
	case strings.Contains(path, "/pods/"):
		_, _ = io.WriteString(w, pod)
	case r.Method == http.MethodPatch && json.Valid(body): // an apply
		_, _ = w.Write(body)
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
}

// on runs the command line on the cluster that s plays.
func (s *apiServer) on(t *testing.T, in string, args ...string) (code int, out, errOut string) {
	t.Helper()
	server := httptest.NewServer(s)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x}}], clusters: [{name: x, cluster: {server: %q}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.changed = nil
	return bareWith(t, in, append([]string{"slipway", "--kubeconfig", file}, args...)...)
}

func TestEnablingANamespaceSaysWhatIsLeftToDo(t *testing.T) {
	s := &apiServer{list: "demo"}
	code, out, errOut := s.on(t, "", "namespace", "enable", "shop")
	for _, kind := range rights.Kinds() {
		for _, what := range []string{"ServiceAccount", "RoleBinding"} {
			if line := "applied " + what + " " + rights.Account(kind.Name) + "\n"; code != 0 || !strings.Contains(out, line) {
				t.Errorf("%d %s%s without %s", code, out, errOut, line)
			}
		}
	}
	code, out, errOut = s.on(t, "", "namespace", "enable", "shop", "--volumes=false")
	want := `applied ServiceAccount slipway-runner
applied RoleBinding slipway-launcher
next: the control plane has to be told, by --roll or with
  kubectl -n slipway-system set env deployment/slipway -c controlplane SLIPWAY_NAMESPACES=demo,shop
`
	if code != 0 || out != want || len(s.changed) != 2 {
		t.Errorf("%d %s%s %q", code, out, errOut, s.changed)
	}
	code, out, errOut = s.on(t, "", "namespace", "enable", "shop", "--volumes=false", "--roll")
	if code != 0 || !strings.HasSuffix(out, "the control plane rolls to SLIPWAY_NAMESPACES=demo,shop\n") || len(s.changed) != 4 ||
		!strings.Contains(s.changed[3], `"resourceVersion":"7"`) || !strings.Contains(s.changed[3], `"value":"demo,shop"`) {
		t.Errorf("%d %s%s %q", code, out, errOut, s.changed)
	}
	s.list = "*"
	if code, out, _ = s.on(t, "", "namespace", "enable", "shop", "--roll"); code != 0 || !strings.HasSuffix(out, "the control plane has shop in its list\n") {
		t.Errorf("%d %s", code, out)
	}
}

func TestANamespaceWithOpenTasksIsDisabledByForceOnly(t *testing.T) {
	s := &apiServer{list: "demo,shop", jobs: 2}
	code, _, errOut := s.on(t, "", "namespace", "disable", "shop", "--roll")
	if code != exitFailed || !strings.Contains(errOut, "2 Jobs of open tasks") || len(s.changed) > 0 {
		t.Errorf("%d %s %q", code, errOut, s.changed)
	}
	code, out, errOut := s.on(t, "", "namespace", "disable", "shop", "--roll", "--force")
	if code != 0 || !strings.Contains(out, "rolls to SLIPWAY_NAMESPACES=demo\n") {
		t.Errorf("%d %s%s", code, out, errOut)
	}
	s.list = "shop"
	if code, _, errOut = s.on(t, "", "namespace", "disable", "shop", "--roll", "--force"); code != exitFailed || !strings.Contains(errOut, "would be empty") {
		t.Errorf("%d %s", code, errOut)
	}
}

func TestPodsAreReleasedOnlyAfterAYes(t *testing.T) {
	s := &apiServer{}
	for _, in := range []string{"", "no\n", "y\n"} {
		if code, _, errOut := s.on(t, in, "release", "-n", "shop"); code != exitFailed || !strings.Contains(errOut, "nothing was released") || len(s.changed) > 0 {
			t.Errorf("%q: %d %s %q", in, code, errOut, s.changed)
		}
	}
	for in, args := range map[string][]string{"yes\n": {"release", "--all"}, "": {"release", "-n", "shop", "--yes", "--instance", "i-1"}} {
		if code, out, errOut := s.on(t, in, args...); code != 0 || out != "released pod shop/p-1\n" || fmt.Sprint(s.changed) != "[PATCH shop/pods/p-1]" {
			t.Errorf("%v: %d %s%s %q", args, code, out, errOut, s.changed)
		}
	}
	if code, out, _ := s.on(t, "", "release", "--all", "--instance", "another"); code != 0 || out != "no pod is held\n" {
		t.Errorf("%d %s", code, out)
	}
	for _, args := range [][]string{{"release"}, {"release", "--all", "-n", "shop"}, {"namespace", "frob"}, {"namespace", "enable"}, {"namespace", "enable", "shop", "--pod-security", "x"}} {
		if code, _, errOut := s.on(t, "", args...); code != exitUsage || len(s.changed) > 0 {
			t.Errorf("%v: %d %s", args, code, errOut)
		}
	}
}
