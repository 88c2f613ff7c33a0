package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/pkg/api"
)

const proxyPath = "/api/v1/namespaces/slipway-system/services/https:slipway:http/proxy"

// throughCluster serves p behind a played API server that gives tokens, and returns the kubeconfig.
func throughCluster(t *testing.T, p *plane) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{"audiences":["slipway"]},"status":{"token":"of-%s"}}`, r.PathValue("name"))
	})
	mux.Handle(proxyPath+"/", http.StripPrefix(proxyPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", r.Header.Get("Slipway-Authorization"))
		p.ServeHTTP(w, r)
	})))
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x, namespace: shop}}],
clusters: [{name: x, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: x, user: {token: mine}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// bare runs the command line without a server.
func bare(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	return bareWith(t, "", args...)
}

func bareWith(t *testing.T, in string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, streams{strings.NewReader(in), &o, &e})
	return code, o.String(), e.String()
}

func TestWithoutAServerTheKubeconfigLeadsToIt(t *testing.T) {
	p := ended(api.StateQueued, "")
	file := throughCluster(t, p)
	code, _, errOut := bare(t, "slipway", "--kubeconfig", file, "--as-service-account", "ada", "submit", "--", "true")
	want := `POST /v1/tasks {"kind":"command.run","namespace":"shop","params":{"command":["true"]}}`
	if code != 0 || len(p.asked) != 1 || p.asked[0] != want || p.token != "Bearer of-ada" {
		t.Errorf("%d %q %s %s", code, p.asked, p.token, errOut)
	}
	if code, _, errOut = bare(t, "slipway", "--kubeconfig", file, "--token", "given", "list"); code != 0 ||
		p.asked[1] != "GET /v1/tasks?namespace=shop&limit=50" || p.token != "Bearer given" {
		t.Errorf("%d %q %s %s", code, p.asked, p.token, errOut)
	}
	if code, _, errOut = bare(t, "slipway", "--kubeconfig", file, "--token", "given", "list", "-A"); code != 0 || p.asked[2] != "GET /v1/tasks?limit=50" {
		t.Errorf("%d %q %s", code, p.asked, errOut)
	}
	if code, _, errOut = bare(t, "slipway", "--kubeconfig", file, "--service", "http:slipway:http", "list"); code != exitUsage || !strings.Contains(errOut, "--as-service-account") {
		t.Errorf("%d %s", code, errOut)
	}
}

func TestWithoutAServerAndAKubeconfigBothAreNamed(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	code, _, errOut := bare(t, "slipway", "list")
	if code != exitUsage || !strings.Contains(errOut, "--server") || !strings.Contains(errOut, "--kubeconfig") {
		t.Errorf("%d %s", code, errOut)
	}
}

func TestAsAPluginOfKubectlTheHelpSaysWhatToType(t *testing.T) {
	for name, want := range map[string]string{"/usr/bin/slipway": "slipway get ID", "/usr/bin/kubectl-slipway": "kubectl slipway get ID"} {
		if code, out, _ := bare(t, name, "get", "--help"); code != 0 || !strings.Contains(out, "Usage:\n  "+want) {
			t.Errorf("%s: %d %s", name, code, out)
		}
	}
}
