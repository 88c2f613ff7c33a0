package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// played is an API server that answers in plain words and says over a watch what the test sends.
type played struct {
	*httptest.Server
	events chan string // of every watch; closed: they end
	asked  atomic.Int64
}

func play(t *testing.T) *played {
	t.Helper()
	s := &played{events: make(chan string)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if r.URL.Query().Get("watch") == "" {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s as %s", r.Method, r.URL.Path, body, r.Header.Get("Authorization"))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case e, open := <-s.events:
				if !open {
					return
				}
				_, _ = io.WriteString(w, e)
			case <-r.Context().Done():
				return
			}
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	return s
}

// stand puts an API before a played server, and gives a client that trusts it.
func stand(t *testing.T) (*API, *played, *http.Client) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	server := play(t)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	api, err := NewAPI(t.Context(), APIOptions{Server: server.URL, Authority: ca, Host: "127.0.0.1", Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return api, server, clientOf(t, api)
}

func clientOf(t *testing.T, api *API) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(api.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

const jobs = "/apis/batch/v1/namespaces/ns/jobs"

// ask sends one request, with a token.
func ask(ctx context.Context, c *http.Client, method, url string) (status int, body string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("hello"))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer secret")
	answer, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(raw), err
}

func TestWithoutAFaultEverythingPassesWithItsToken(t *testing.T) {
	api, _, client := stand(t)
	status, body, err := ask(t.Context(), client, http.MethodPost, api.URL()+jobs)
	if want := "POST " + jobs + " hello as Bearer secret"; err != nil || status != http.StatusOK || body != want {
		t.Errorf("answered %d %q %v, want %q", status, body, err, want)
	}
	if len(api.Counts()) != 0 || api.Requests()[APICall{"create", "jobs"}] != 1 {
		t.Errorf("counts %v, requests %v", api.Counts(), api.Requests())
	}
}

func TestEachFaultDoesWhatItsNameSays(t *testing.T) {
	for _, c := range []struct {
		fault  APIFault
		status int // 0: the client sees a broken connection
		body   string
		asked  int64 // how often the server was asked
		count  string
	}{
		{APIFault{Action: APICutBefore}, 0, "", 0, "api_cut_before"},
		{APIFault{Action: APICutAfter}, 0, "", 1, "api_cut_after"},
		{APIFault{Action: APISever}, 0, "", 0, "api_sever"},
		{APIFault{Action: APIHalfBody}, http.StatusOK, "PUT " + jobs + "/a ", 1, "api_half_body"},
		{APIFault{Action: APIReply, Answer: APIStatus(503, "ServiceUnavailable", 2)}, 503, APIStatus(503, "ServiceUnavailable", 2).Body, 0, "api_reply_503"},
		{APIFault{Action: APIDelay, For: time.Millisecond}, http.StatusOK, "PUT " + jobs + "/a hello as Bearer secret", 1, "api_delay"},
	} {
		t.Run(c.count, func(t *testing.T) {
			api, server, client := stand(t)
			c.fault.Match, c.fault.Times = APIMatch{Verbs: []string{"update"}, Resources: []string{"jobs"}}, 1
			defer api.Add(c.fault)()
			if status, _, err := ask(t.Context(), client, http.MethodPost, api.URL()+jobs); err != nil || status != http.StatusOK {
				t.Fatalf("what the fault is not for is answered %d, %v", status, err)
			}
			server.asked.Store(0)
			status, body, err := ask(t.Context(), client, http.MethodPut, api.URL()+jobs+"/a")
			if status != c.status || (err != nil) != (status == 0 || c.count == "api_half_body") || !strings.HasPrefix(c.body, body) || body == "" && c.body != "" {
				t.Errorf("answered %d %q, %v", status, body, err)
			}
			if server.asked.Load() != c.asked || !maps.Equal(api.Counts(), map[string]int{c.count: 1}) {
				t.Errorf("the server was asked %d times; counts %v", server.asked.Load(), api.Counts())
			}
			if status, _, err := ask(t.Context(), client, http.MethodPut, api.URL()+jobs+"/a"); err != nil || status != http.StatusOK {
				t.Errorf("once it has happened the next is answered %d, %v", status, err)
			}
		})
	}
}

func TestAReplyCarriesRetryAfterInHeaderAndBody(t *testing.T) {
	api, _, client := stand(t)
	api.Add(APIFault{Action: APIReply, Answer: APIStatus(429, "TooManyRequests", 7)})
	answer, err := client.Get(api.URL() + jobs)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var status struct {
		Details struct{ RetryAfterSeconds int }
	}
	if err := json.NewDecoder(answer.Body).Decode(&status); err != nil || status.Details.RetryAfterSeconds != 7 || answer.Header.Get("Retry-After") != "7" {
		t.Errorf("%+v, header %v, %v", status, answer.Header, err)
	}
}

func TestSilenceAnswersNothingClosesNothingAndEnds(t *testing.T) {
	for _, action := range []APIAction{APISilentConnections, APISilentRequests} {
		t.Run(string(action), func(t *testing.T) {
			api, _, client := stand(t)
			if _, _, err := ask(t.Context(), client, http.MethodGet, api.URL()+jobs); err != nil {
				t.Fatal(err)
			}
			remove := api.Add(APIFault{Action: action, Match: APIMatch{Verbs: []string{"create"}}})
			answered := make(chan error, 1)
			go func() {
				_, _, err := ask(t.Context(), client, http.MethodPost, api.URL()+jobs)
				answered <- err
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, _, err := ask(ctx, client, http.MethodGet, api.URL()+jobs)
			if heard := err == nil; heard != (action == APISilentRequests) {
				t.Errorf("another request: %v", err)
			}
			select {
			case err := <-answered:
				t.Fatalf("the silence ended by itself: %v", err)
			default:
			}
			remove()
			if err := <-answered; err != nil {
				t.Errorf("after the silence: %v", err)
			}
			if api.Counts()[string(action)] != 1 {
				t.Errorf("counts %v", api.Counts())
			}
		})
	}
}

func TestADeadConnectionIsNeverHeardAgainAndANewOneIs(t *testing.T) {
	api, _, before := stand(t)
	if _, _, err := ask(t.Context(), before, http.MethodGet, api.URL()+jobs); err != nil {
		t.Fatal(err)
	}
	api.Add(APIFault{Action: APIDeadConnections})
	api.Clear()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, _, err := ask(ctx, before, http.MethodGet, api.URL()+jobs); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the dead connection: %v", err)
	}
	if _, _, err := ask(t.Context(), clientOf(t, api), http.MethodGet, api.URL()+jobs); err != nil {
		t.Errorf("a new connection: %v", err)
	}
	if api.Counts()["api_dead_connections"] != 1 {
		t.Errorf("counts %v", api.Counts())
	}
}

func TestANewCertificateIsServedToNewConnections(t *testing.T) {
	api, _, before := stand(t)
	if _, _, err := ask(t.Context(), before, http.MethodGet, api.URL()+jobs); err != nil {
		t.Fatal(err)
	}
	if err := api.Certify("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask(t.Context(), before, http.MethodGet, api.URL()+jobs); err != nil {
		t.Errorf("an open connection: %v", err)
	}
	api.Sever()
	before.CloseIdleConnections() // it may not have noticed yet
	var unknown *tls.CertificateVerificationError
	if _, _, err := ask(t.Context(), before, http.MethodGet, api.URL()+jobs); !errors.As(err, &unknown) {
		t.Errorf("who trusts the old authority: %v", err)
	}
	if _, _, err := ask(t.Context(), clientOf(t, api), http.MethodGet, api.URL()+jobs); err != nil {
		t.Errorf("who trusts the new one: %v", err)
	}
}

func TestWhatIsLeftToChanceFollowsFromTheSeed(t *testing.T) {
	drawn := func(seed uint64) (all string) {
		s := newFaults(seed)
		s.add(APIFault{Action: APICutBefore, Share: 0.5})
		for range 64 {
			if s.draw(APICall{"get", "jobs"}, APICutBefore) != nil {
				all += "x"
			} else {
				all += "."
			}
		}
		return all
	}
	if one, same, other := drawn(1), drawn(1), drawn(2); one != same || one == other || !strings.Contains(one, "x") || !strings.Contains(one, ".") {
		t.Errorf("seed 1 gives %s and %s, seed 2 %s", one, same, other)
	}
}

func TestCallsAreNamedAsKubernetesNamesThem(t *testing.T) {
	for request, want := range map[string]APICall{
		"GET /api/v1/namespaces/ns/pods/a/log?follow=true": {"get", "pods/log"},
		"GET /api/v1/namespaces/ns/pods?watch=true":        {"watch", "pods"},
		"GET /apis/batch/v1/jobs":                          {"list", "jobs"},
		"GET /api/v1/namespaces/ns":                        {"get", "namespaces"},
		"PATCH /apis/batch/v1/namespaces/ns/jobs/a":        {"patch", "jobs"},
		"DELETE /apis/batch/v1/namespaces/ns/jobs":         {"deletecollection", "jobs"},
		"POST /apis/authentication.k8s.io/v1/tokenreviews": {"create", "tokenreviews"},
		"GET /version": {"get", "/version"},
	} {
		method, url, _ := strings.Cut(request, " ")
		if got := callOf(httptest.NewRequest(method, url, nil)); got != want {
			t.Errorf("%s is %v, want %v", request, got, want)
		}
	}
}

// watching opens a watch and gives its lines; the channel is closed when it ends.
func watching(t *testing.T, client *http.Client, api *API) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL()+jobs+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	heard := make(chan string, 16)
	go func() {
		defer close(heard)
		for in := bufio.NewScanner(answer.Body); in.Scan(); {
			heard <- in.Text()
		}
	}()
	return heard
}

func said(kind, uid, version string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"uid":%q,"resourceVersion":%q}}}`, kind, uid, version) + "\n"
}

func hear(t *testing.T, heard <-chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		if strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Fatalf("heard %q, want %q", got, want)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("heard nothing, want %q", want)
	}
}
