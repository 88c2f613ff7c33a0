package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/client"
)

// apiServer plays the API server, and the control plane behind its service proxy.
type apiServer struct {
	asked    []string // METHOD PATH AUTHORIZATION SLIPWAY-AUTHORIZATION
	tokens   int
	refuse   int // status of token requests
	proxySay func(http.ResponseWriter)
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`, reason, message, code)
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, fmt.Sprintf("%s %s %s/%s", r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get(TokenHeader)))
	switch {
	case strings.HasSuffix(r.URL.Path, "/token") && s.refuse == http.StatusForbidden:
		status(w, s.refuse, metav1.StatusReasonForbidden, "no")
	case strings.HasSuffix(r.URL.Path, "/token") && s.refuse == http.StatusNotFound:
		status(w, s.refuse, metav1.StatusReasonNotFound, "none")
	case strings.HasSuffix(r.URL.Path, "/token"):
		s.tokens++
		var asked authenticationv1.TokenRequest
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Spec.Audiences) != 1 || asked.Spec.Audiences[0] != "slipway" {
			status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "audience")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"made-%d"}}`, s.tokens)
	case s.proxySay != nil:
		s.proxySay(w)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"version":"1.2.3"}`)
	}
}

// opened is a Cluster of a played API server; user is what stands under `user:` in the kubeconfig.
func opened(t *testing.T, s *apiServer, user string, c Config) *Cluster {
	t.Helper()
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	c.Kubeconfig = kubeconfig(t, server.URL, user)
	made, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func kubeconfig(t *testing.T, server, user string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: here, context: {cluster: c, user: u, namespace: shop}}
- {name: there, context: {cluster: c, user: u, namespace: bank}}
clusters:
- {name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}
users:
- {name: u, user: %s}
`, server, user)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (s *apiServer) version(t *testing.T, c *Cluster, token bool) error {
	t.Helper()
	transport, err := c.HTTP(!token)
	if err != nil {
		t.Fatal(err)
	}
	defer transport.CloseIdleConnections()
	config := client.Config{Server: c.URL(), TokenHeader: TokenHeader, HTTP: transport, Tries: 1}
	if token {
		config.Token = c.Token
	}
	api, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.Version(t.Context())
	return err
}

const viaProxy = "GET /api/v1/namespaces/slipway-system/services/https:slipway:http/proxy/v1/version"

func TestTheServiceProxyIsCalledAsTheKubeconfigsUserWithATokenOfTheServiceAccount(t *testing.T) {
	s := &apiServer{}
	c := opened(t, s, "{token: mine}", Config{ServiceAccount: "ada", Namespace: "mill"})
	for range 2 {
		if err := s.version(t, c, true); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"POST /api/v1/namespaces/shop/serviceaccounts/ada/token Bearer mine/",
		viaProxy + " Bearer mine/Bearer made-1", viaProxy + " Bearer mine/Bearer made-1",
	}
	if fmt.Sprint(s.asked) != fmt.Sprint(want) {
		t.Errorf("asked %q", s.asked)
	}
}

func TestATokenThatIsNearItsEndIsAskedForAgain(t *testing.T) {
	s := &apiServer{}
	c := opened(t, s, "{token: mine}", Config{ServiceAccount: "bank/ada"})
	first, err1 := c.Token(t.Context())
	c.token.until = c.token.until.Add(-renewAt)
	second, err2 := c.Token(t.Context())
	if err1 != nil || err2 != nil || first != "made-1" || second != "made-2" || !strings.Contains(s.asked[0], "/namespaces/bank/serviceaccounts/ada/") {
		t.Errorf("%s %v, %s %v: %q", first, err1, second, err2, s.asked)
	}
}

func TestTheKubeconfigsOwnTokenIsShownOnlyOverTLS(t *testing.T) {
	s := &apiServer{}
	c := opened(t, s, "{token: mine}", Config{})
	if err := c.OwnToken(); err != nil {
		t.Error(err)
	}
	if err := s.version(t, c, false); err != nil || !strings.HasSuffix(s.asked[0], "Bearer mine/Bearer mine") {
		t.Errorf("%q: %v", s.asked, err)
	}
	for user, config := range map[string]Config{"{token: mine}": {Service: "http:slipway:http"}, "{}": {}} {
		if err := opened(t, &apiServer{}, user, config).OwnToken(); err == nil || !strings.Contains(err.Error(), "--as-service-account") {
			t.Errorf("%s: %v", user, err)
		}
	}
}

func TestMissingRightsAreNamed(t *testing.T) {
	for _, tc := range []struct {
		refuse int
		want   string
	}{
		{http.StatusForbidden, "resources [serviceaccounts/token], resourceNames [ada], verbs [create]"},
		{http.StatusNotFound, "shop/ada: there is no such account"},
	} {
		s := &apiServer{refuse: tc.refuse}
		if _, err := opened(t, s, "{token: mine}", Config{ServiceAccount: "ada"}).Token(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%d: %v", tc.refuse, err)
		}
	}
}

func TestTheAPIServersRefusalsAreToldApartFromTheControlPlanes(t *testing.T) {
	for name, tc := range map[string]struct {
		say  func(http.ResponseWriter)
		want string
	}{
		"no right": {
			func(w http.ResponseWriter) { status(w, 403, metav1.StatusReasonForbidden, "services is forbidden") },
			"403 Forbidden: you may not use the service proxy of Slipway: it takes a RoleBinding to Role slipway-proxy in namespace slipway-system",
		},
		"unknown": {
			func(w http.ResponseWriter) { status(w, 401, metav1.StatusReasonUnauthorized, "Unauthorized") },
			"the API server does not know you",
		},
		"not installed": {
			func(w http.ResponseWriter) { status(w, 404, metav1.StatusReasonNotFound, "services not found") },
			"there is no service slipway in namespace slipway-system",
		},
		"no pod": {
			func(w http.ResponseWriter) {
				status(w, 503, metav1.StatusReasonServiceUnavailable, `no endpoints available for service "http:slipway:http"`)
			},
			"does not reach a control plane in namespace slipway-system: no endpoints",
		},
		"pod away": {
			func(w http.ResponseWriter) {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, "error trying to reach service: dial tcp 10.0.0.1:8080: connection refused\n")
			},
			"namespace slipway-system: dial tcp 10.0.0.1:8080: connection refused",
		},
		"plain": {
			func(w http.ResponseWriter) {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, "error trying to reach service: http: server gave HTTP response to HTTPS client")
			},
			"say --service http:slipway:http",
		},
		"TLS": {
			func(w http.ResponseWriter) {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, "Client sent an HTTP request to an HTTPS server.\n")
			},
			"say --service https:slipway:http",
		},
		"the control plane": {
			func(w http.ResponseWriter) {
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, `{"type":"urn:slipway:problem:forbidden","title":"Forbidden","status":403,"detail":"not allowed: get tasks"}`)
			},
			"403 Forbidden: not allowed: get tasks",
		},
	} {
		s := &apiServer{proxySay: tc.say}
		err := s.version(t, opened(t, s, "{token: mine}", Config{ServiceAccount: "ada"}), true)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := &apiServer{proxySay: func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }}
	if err := s.version(t, opened(t, s, "{token: mine}", Config{}), false); err == nil || !strings.Contains(err.Error(), "does not take your kubeconfig's own token") {
		t.Error(err)
	}
}

func TestTheNamespaceIsTheContexts(t *testing.T) {
	for want, config := range map[string]Config{"shop": {}, "bank": {Context: "there"}, "mill": {Context: "there", Namespace: "mill"}} {
		if got := opened(t, &apiServer{}, "{}", config).Namespace(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestNoKubeconfigIsSaid(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := Open(Config{}); !errors.Is(err, ErrNoKubeconfig) {
		t.Error(err)
	}
	if _, err := Open(Config{Kubeconfig: "/nonexistent"}); err == nil || errors.Is(err, ErrNoKubeconfig) {
		t.Error(err)
	}
}
