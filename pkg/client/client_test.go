package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// play is a RoundTripper that answers from a list, then always with the last.
type play struct {
	answers []http.Response
	asked   []*http.Request
	bodies  []string
}

func (p *play) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(raw)
	}
	p.asked, p.bodies = append(p.asked, r), append(p.bodies, body)
	a := p.answers[min(len(p.asked), len(p.answers))-1]
	if a.StatusCode == 0 {
		return nil, errors.New("connection reset")
	}
	return &a, nil
}

func answer(status int, body any, headers ...string) http.Response {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	if text, ok := body.(string); ok {
		raw = []byte(text)
	}
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(string(raw)))}
}

func newClient(t *testing.T, p *play) *Client {
	t.Helper()
	c, err := New(Config{Server: "http://slipway/prefix", Token: StaticToken("tok"), HTTP: &http.Client{Transport: p}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestASubmitCarriesTokenKeyAndNothingThatWasNotGiven(t *testing.T) {
	p := &play{answers: []http.Response{answer(200, api.Task{ID: "x"}, "Idempotent-Replayed", "true")}}
	made, err := newClient(t, p).Submit(t.Context(), api.SubmitTask{Kind: "command.run", Namespace: "shop", Params: json.RawMessage(`{"a":1}`)}, "k")
	if err != nil || made.Task.ID != "x" || !made.Replayed || made.Coalesced {
		t.Errorf("got %+v, %v", made, err)
	}
	q := p.asked[0]
	if q.Header.Get("Authorization") != "Bearer tok" || q.Header.Get("Idempotency-Key") != "k" || q.URL.Path != "/prefix/v1/tasks" ||
		p.bodies[0] != `{"kind":"command.run","namespace":"shop","params":{"a":1}}` {
		t.Errorf("asked %s %v %s", q.URL, q.Header, p.bodies[0])
	}
}

func TestAListSendsOnlyTheFiltersThatAreGiven(t *testing.T) {
	p := &play{answers: []http.Response{answer(200, api.TaskPage{})}}
	ns, labels := "shop", []string{"a=b", "c=d"}
	if _, err := newClient(t, p).List(t.Context(), api.ListTasksParams{Namespace: &ns, Label: &labels}); err != nil {
		t.Fatal(err)
	}
	if got := p.asked[0].URL.RawQuery; got != "namespace=shop&label=a%3Db&label=c%3Dd" {
		t.Errorf("query %s", got)
	}
}

func TestTheTokenCanGoInSlipwaysOwnHeader(t *testing.T) {
	p := &play{answers: []http.Response{answer(200, api.Version{})}}
	c, err := New(Config{Server: "http://x", Token: StaticToken("tok"), TokenHeader: "Slipway-Authorization", HTTP: &http.Client{Transport: p}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(t.Context()); err != nil || p.asked[0].Header.Get("Slipway-Authorization") != "Bearer tok" ||
		p.asked[0].Header.Get("Authorization") != "" {
		t.Errorf("%v %v", err, p.asked[0].Header)
	}
}

func TestARefusalIsAnErrorWithTheServersWords(t *testing.T) {
	problem := api.Problem{
		Status: 422, Title: "Unprocessable Entity", Detail: "refused", Type: "urn:slipway:problem:invalid",
		Errors: []api.FieldError{{Pointer: "/lane", Reason: "belongs to another namespace"}},
	}
	p := &play{answers: []http.Response{answer(422, problem)}}
	_, err := newClient(t, p).Submit(t.Context(), api.SubmitTask{}, "k")
	if err == nil || err.Error() != "submit a task: 422 Unprocessable Entity: refused; /lane belongs to another namespace" || len(p.asked) != 1 {
		t.Errorf("%v after %d requests", err, len(p.asked))
	}
	p = &play{answers: []http.Response{answer(404, "<html>a proxy's page")}}
	if _, err := newClient(t, p).Get(t.Context(), "x"); !IsNotFound(err) || IsConflict(err) || strings.Contains(err.Error(), "html") {
		t.Errorf("a proxy's answer: %v", err)
	}
}

func TestWhatMaySafelyBeSentTwiceIsSentAgain(t *testing.T) {
	busy := func() http.Response { return answer(503, api.Problem{Status: 503}, "Retry-After", "3") }
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			call  func(*Client) error
			asked int
		}{
			"get":              {func(c *Client) error { _, err := c.Get(t.Context(), "x"); return err }, 3},
			"cancel":           {func(c *Client) error { _, err := c.Cancel(t.Context(), "x", ""); return err }, 3},
			"submit with key":  {func(c *Client) error { _, err := c.Submit(t.Context(), api.SubmitTask{}, "k"); return err }, 3},
			"submit, no key":   {func(c *Client) error { _, err := c.Submit(t.Context(), api.SubmitTask{}, ""); return err }, 1},
			"batch, no key":    {func(c *Client) error { _, err := c.SubmitBatch(t.Context(), nil, ""); return err }, 1},
			"batch with a key": {func(c *Client) error { _, err := c.SubmitBatch(t.Context(), nil, "k"); return err }, 3},
		} {
			p := &play{answers: []http.Response{{}, busy(), answer(200, map[string]any{})}}
			if tc.asked == 1 {
				p.answers = []http.Response{busy()}
			}
			began := time.Now()
			err := tc.call(newClient(t, p))
			if (err == nil) != (tc.asked > 1) || len(p.asked) != tc.asked {
				t.Errorf("%s: %v after %d requests", name, err, len(p.asked))
			}
			if tc.asked > 1 && time.Since(began) < 3*time.Second {
				t.Errorf("%s: did not wait as told", name)
			}
		}
	})
}

func TestWaitEndsWithTheTaskOrWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{answers: []http.Response{
			answer(200, api.Task{State: api.StateQueued}), answer(200, api.Task{State: api.StateRunning}), answer(200, api.Task{State: api.StateFailed}),
		}}
		if got, err := newClient(t, p).Wait(t.Context(), "x"); err != nil || got.State != api.StateFailed || len(p.asked) != 3 {
			t.Errorf("got %+v, %v", got, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		running := make([]http.Response, 1000)
		for i := range running {
			running[i] = answer(200, api.Task{State: api.StateRunning})
		}
		if _, err := newClient(t, &play{answers: running}).Wait(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestALogIsAStream(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Slipway-Attempt", "2")
		w.Header().Set("Slipway-Log-Source", "live")
		_, _ = fmt.Fprintf(w, "%s\n", r.URL.RawQuery)
	}))
	defer server.Close()
	c, err := New(Config{Server: server.URL, HTTP: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	follow, number := true, int32(2)
	log, err := c.Logs(t.Context(), "x", api.GetLogsParams{Follow: &follow, Attempt: &number})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if text, err := io.ReadAll(log); err != nil || string(text) != "attempt=2&follow=true\n" || log.Attempt != 2 || log.Source != "live" {
		t.Errorf("got %q %v %+v", text, err, log)
	}
}

func TestABadServerIsRefused(t *testing.T) {
	for _, server := range []string{"", "slipway:8080", "ftp://x", "http://"} {
		if _, err := New(Config{Server: server}); err == nil {
			t.Errorf("%q was taken", server)
		}
	}
}
