package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// everyRoute is one good request for each operation, and what each user with too few rights for some gets.
var everyRoute = []struct {
	request
	asks                     string // caller
	status                   int
	nobody, viewer, operator int // where asks is user
}{
	{request{method: "POST", path: "/v1/tasks", body: good}, "user", 201, 403, 403, 403},
	{request{method: "POST", path: "/v1/tasks:batch", body: `{"tasks":[` + good + `]}`}, "user", 201, 403, 403, 403},
	{request{method: "POST", path: "/v1/tasks:retry", body: `{"filter":{"namespace":"shop"},"expected_count":1}`}, "user", 200, 403, 403, 403},
	{request{method: "POST", path: "/v1/tasks:cancel", body: `{"filter":{"namespace":"shop"},"expected_count":1}`}, "user", 200, 403, 403, 200},
	{request{method: "GET", path: "/v1/tasks?namespace=shop"}, "user", 200, 403, 200, 200},
	{request{method: "GET", path: "/v1/tasks/" + taskID}, "user", 200, 404, 200, 200},
	{request{method: "PATCH", path: "/v1/tasks/" + taskID, body: `{"class":"high"}`}, "user", 200, 404, 403, 200},
	{request{method: "DELETE", path: "/v1/tasks/" + taskID}, "user", 204, 404, 403, 403},
	{request{method: "POST", path: "/v1/tasks/" + taskID + "/cancel"}, "user", 202, 404, 403, 202},
	{request{method: "POST", path: "/v1/tasks/" + endedID + "/retry"}, "user", 201, 404, 403, 403},
	{request{method: "POST", path: "/v1/tasks/" + taskID + "/hold", body: `{"reason":"look"}`}, "user", 200, 404, 403, 200},
	{request{method: "POST", path: "/v1/tasks/" + taskID + "/unhold"}, "user", 200, 404, 403, 200},
	{request{method: "GET", path: "/v1/tasks/" + taskID + "/attempts"}, "user", 200, 404, 200, 200},
	{request{method: "GET", path: "/v1/tasks/" + taskID + "/events"}, "user", 200, 404, 200, 200},
	{request{method: "GET", path: "/v1/tasks/" + taskID + "/logs"}, "user", 200, 404, 200, 200},
	{request{method: "GET", path: "/v1/kinds"}, "user", 200, 200, 200, 200},
	{request{method: "PATCH", path: "/v1/kinds/command.run", body: `{"executor":"off"}`}, "user", 200, 403, 403, 403},
	{request{method: "GET", path: "/v1/queues"}, "user", 200, 403, 403, 403},
	{request{method: "GET", path: "/v1/queues/default"}, "user", 200, 404, 404, 404},
	{request{method: "PATCH", path: "/v1/queues/default", body: `{"cap":1}`}, "user", 200, 404, 404, 404},
	{request{method: "POST", path: "/v1/queues/default/pause", body: `{"note":"look"}`}, "user", 200, 404, 404, 404},
	{request{method: "POST", path: "/v1/queues/default/drain"}, "user", 200, 404, 404, 404},
	{request{method: "POST", path: "/v1/queues/default/resume"}, "user", 200, 404, 404, 404},
	{request{method: "GET", path: "/v1/lanes?key=volume:shop/a"}, "user", 200, 404, 200, 200},
	{request{method: "POST", path: "/v1/lanes:check", body: `{"repair":true}`}, "user", 200, 403, 403, 403},
	{request{method: "POST", path: "/v1/lanes:force-release", body: `{"key":"volume:shop/a","reason":"its node burns"}`}, "user", 200, 404, 403, 403},
	{request{method: "GET", path: "/v1/freezes?namespace=shop"}, "user", 200, 403, 200, 200},
	{request{method: "POST", path: "/v1/freezes", body: `{"namespace":"shop","reason":"moving","seconds":60}`}, "user", 201, 403, 403, 403},
	{request{method: "DELETE", path: "/v1/freezes/7"}, "user", 204, 404, 403, 403},
	{request{method: "GET", path: "/v1/limits/shop"}, "user", 200, 404, 200, 200},
	{request{method: "PUT", path: "/v1/limits/shop", body: `{"storage":"500Gi"}`}, "user", 200, 404, 403, 403},
	{request{method: "GET", path: "/v1/audit"}, "user", 200, 403, 403, 403},
	{request{method: "POST", path: "/v1/schedules", body: goodSchedule}, "user", 201, 403, 403, 403},
	{request{method: "GET", path: "/v1/schedules?namespace=shop"}, "user", 200, 403, 200, 200},
	{request{method: "POST", path: "/v1/schedules:preview", body: `{"namespace":"shop","cron":"0 3 * * *","n":3}`}, "user", 200, 403, 200, 200},
	{request{method: "GET", path: "/v1/schedules:collisions?namespace=shop"}, "user", 200, 403, 200, 200},
	{request{method: "GET", path: "/v1/schedules/" + scheduleID}, "user", 200, 404, 200, 200},
	{request{method: "PATCH", path: "/v1/schedules/" + scheduleID, body: `{"owner":"team"}`}, "user", 200, 404, 403, 403},
	{request{method: "DELETE", path: "/v1/schedules/" + scheduleID}, "user", 204, 404, 403, 204},
	{request{method: "POST", path: "/v1/schedules/" + scheduleID + "/pause"}, "user", 200, 404, 403, 200},
	{request{method: "POST", path: "/v1/schedules/" + scheduleID + "/resume"}, "user", 200, 404, 403, 403},
	{request{method: "POST", path: "/v1/schedules/" + scheduleID + "/run"}, "user", 201, 404, 403, 201},
	{request{method: "POST", path: "/v1/schedules/" + scheduleID + "/backfill", body: `{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"}`}, "user", 200, 404, 403, 200},
	{request{method: "GET", path: "/v1/schedules/" + scheduleID + "/preview?n=3"}, "user", 200, 404, 200, 200},
	{request{method: "GET", path: "/v1/schedules/" + scheduleID + "/fires"}, "user", 200, 404, 200, 200},
	{request{method: "GET", path: "/v1/calendars?namespace=shop"}, "user", 200, 403, 200, 200},
	{request{method: "GET", path: "/v1/calendars/holidays?namespace=shop"}, "user", 200, 404, 200, 200},
	{request{method: "PUT", path: "/v1/calendars/holidays?namespace=shop", body: `{"windows":[]}`}, "user", 200, 403, 403, 200},
	{request{method: "DELETE", path: "/v1/calendars/holidays?namespace=shop"}, "user", 204, 404, 403, 204},
	{request{method: "POST", path: "/v1/runner/start", body: `{"attempt":7,"fence":9}`}, "pod", 200, 0, 0, 0},
	{request{method: "POST", path: "/v1/runner/heartbeat", body: `{"attempt":7,"fence":9,"pod_uid":"u"}`}, "session", 200, 0, 0, 0},
	{request{method: "POST", path: "/v1/runner/finish", body: `{"attempt":7,"fence":9,"pod_uid":"u","outcome":"succeeded"}`}, "session", 204, 0, 0, 0},
	{request{method: "GET", path: "/v1/version"}, "anybody", 200, 0, 0, 0},
	{request{method: "GET", path: "/v1/openapi.yaml"}, "anybody", 200, 0, 0, 0},
}

func TestEveryRouteAnswersEachCallerAsItShould(t *testing.T) {
	if len(everyRoute) != len(routes) {
		t.Fatalf("%d routes are tested, %d exist", len(everyRoute), len(routes))
	}
	tokens := map[string]string{
		"none": "", "wrong audience": "stranger", "admin": "admin", "nobody": "nobody", "viewer": "viewer", "operator": "operator",
		"other namespace": "operator of bank", "pod": "pod",
		"session": sessionToken(7, 9, "u"), "other session": sessionToken(7, 10, "u"),
	}
	for _, route := range everyRoute {
		for name, token := range tokens {
			want := 401
			switch {
			case route.asks == "anybody", route.asks == "user" && name == "admin", route.asks == "pod" && name == "pod",
				route.asks == "session" && name == "session":
				want = route.status
			case route.asks == "user" && (name == "nobody" || name == "other namespace"):
				want = route.nobody
			case route.asks == "user" && name == "viewer":
				want = route.viewer
			case route.asks == "user" && name == "operator":
				want = route.operator
			}
			t.Run(fmt.Sprintf("%s %s as %s", route.method, route.path, name), func(t *testing.T) {
				r := newRig(t)
				q := route.request
				q.token = token
				w := r.send(q)
				if want >= 400 {
					r.problem(w, want)
				} else if w.Code != want {
					t.Errorf("got %d %s, want %d", w.Code, w.Body, want)
				}
				if want == 401 && w.Header().Get("WWW-Authenticate") == "" {
					t.Error("401 without WWW-Authenticate")
				}
			})
		}
	}
}

func TestForbiddenNamesVerbResourceAndNamespace(t *testing.T) {
	r := newRig(t)
	p := r.problem(r.send(request{method: "POST", path: "/v1/tasks/" + taskID + "/cancel", token: "viewer"}), 403)
	if p.Detail != "not allowed to create tasks/cancel.slipway.dev in namespace shop" {
		t.Errorf("detail %q", p.Detail)
	}
	p = r.problem(r.send(request{method: "POST", path: "/v1/tasks", token: "operator", body: good}), 403)
	if p.Detail != "not allowed to create jobs.batch in namespace shop" {
		t.Errorf("a free command: detail %q", p.Detail)
	}
	p = r.problem(r.send(request{method: "GET", path: "/v1/tasks", token: "viewer"}), 403)
	if p.Detail != "not allowed to list tasks.slipway.dev in all namespaces" {
		t.Errorf("a list of everything: detail %q", p.Detail)
	}
}

func TestAHiddenTaskLooksLikeAnAbsentOne(t *testing.T) {
	r := newRig(t)
	hidden := r.problem(r.send(request{method: "GET", path: "/v1/tasks/" + taskID, token: "nobody"}), 404)
	absent := r.problem(r.send(request{method: "GET", path: "/v1/tasks/" + absentID, token: "nobody"}), 404)
	hidden.RequestID, absent.RequestID = "", ""
	if fmt.Sprint(hidden) != fmt.Sprint(absent) {
		t.Errorf("hidden %+v, absent %+v", hidden, absent)
	}
}

func TestTheTokenMayStandInEitherHeader(t *testing.T) {
	for name, tc := range map[string]struct {
		headers []string
		status  int
	}{
		"slipway's own":                  {[]string{"Slipway-Authorization", "Bearer admin"}, 200},
		"lower case scheme":              {[]string{"Authorization", "bearer admin"}, 200},
		"a proxy's beside slipway's own": {[]string{"Authorization", "Bearer proxy", "Slipway-Authorization", "Bearer admin"}, 200},
		"a bad one hides no good one":    {[]string{"Authorization", "Bearer admin", "Slipway-Authorization", "Bearer x"}, 401},
		"no scheme":                      {[]string{"Authorization", "admin"}, 401},
		"another scheme":                 {[]string{"Authorization", "Basic admin"}, 401},
	} {
		r := newRig(t)
		if w := r.send(request{method: "GET", path: "/v1/tasks/" + taskID, headers: tc.headers}); w.Code != tc.status {
			t.Errorf("%s: got %d, want %d", name, w.Code, tc.status)
		}
	}
}

func TestUnknownRoutesAndMethodsAreProblemsOfOurs(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/", "/v1", "/v1/tasks/", "/v1/tasks/" + taskID + "/", "/v1/tasksZZZ", "/V1/tasks", "/v1//tasks", "/healthz/"} {
		r.problem(r.send(request{method: "GET", path: path, token: "admin"}), 404)
	}
	for path, allow := range map[string]string{
		"/v1/tasks": "POST, GET", "/v1/tasks/" + taskID + "/events": "GET", "/v1/tasks:batch": "POST", "/v1/runner/start": "POST", "/readyz": "GET",
	} {
		w := r.send(request{method: "DELETE", path: path, token: "admin"})
		r.problem(w, 405)
		for method := range strings.SplitSeq(allow, ", ") {
			if !strings.Contains(w.Header().Get("Allow"), method) {
				t.Errorf("%s: Allow is %q, want %q", path, w.Header().Get("Allow"), allow)
			}
		}
	}
}

func TestReadinessNamesItsReason(t *testing.T) {
	r := newRig(t)
	if w := r.send(request{method: "GET", path: "/readyz"}); w.Code != 200 {
		t.Errorf("ready: %d %s", w.Code, w.Body)
	}
	r.degraded = "cluster: not heard for 7s"
	if w := r.send(request{method: "GET", path: "/readyz"}); w.Code != 200 || w.Body.String() != "ready, degraded: cluster: not heard for 7s\n" {
		t.Errorf("degraded: %d %s", w.Code, w.Body)
	}
	r.ready = errors.New("database: cannot be reached")
	if w := r.send(request{method: "GET", path: "/readyz"}); w.Code != 503 || !strings.Contains(w.Body.String(), "database: cannot be reached") {
		t.Errorf("not ready: %d %s", w.Code, w.Body)
	}
	if w := r.send(request{method: "GET", path: "/healthz"}); w.Code != 200 {
		t.Errorf("alive: %d", w.Code)
	}
	r.ready = nil
	if err := r.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		w := r.send(request{method: "GET", path: "/readyz"})
		return w.Code == 503 && strings.Contains(w.Body.String(), "shutting down")
	})
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Error("did not happen within 5 s")
}

func TestTroubleIsAnsweredByItsSortAndNeverWithInnerText(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
		retry  bool
	}{
		{errForTest, 500, false},
		{fmt.Errorf("read: %w", task.ErrUnavailable), 503, true},
		{context.DeadlineExceeded, 503, true},
		{&FullError{Namespace: "shop", Queue: "default", RetryAfter: 1500 * time.Millisecond}, 429, true},
		{&ConflictError{Conflicts: []Conflict{{Task: taskID, Reason: ConflictLaneBusy}}}, 409, false},
		{&ConflictError{Conflicts: []Conflict{{Reason: ConflictInProgress}}}, 409, true},
	} {
		r := newRig(t)
		r.fail = tc.err
		w := r.send(request{method: "POST", path: "/v1/tasks", token: "admin", body: good})
		p := r.problem(w, tc.status)
		if strings.Contains(w.Body.String(), "hunter2") || (w.Header().Get("Retry-After") != "") != tc.retry {
			t.Errorf("%v: %s, Retry-After %q", tc.err, w.Body, w.Header().Get("Retry-After"))
		}
		if tc.status == 500 && (!strings.Contains(r.logged.String(), "hunter2") || !strings.Contains(r.logged.String(), p.RequestID)) {
			t.Errorf("the log does not tell of it: %s", r.logged)
		}
	}
}

func TestAPanicIs500AndItsTextStaysInside(t *testing.T) {
	r := newRig(t)
	half, err := New(Config{Gate: r.backend, Log: loggerInto(r.logged)}) // without a Finder, reading a Task panics
	if err != nil {
		t.Fatal(err)
	}
	r.server = half
	w := r.send(request{method: "GET", path: "/v1/tasks/" + taskID, token: "admin"})
	p := r.problem(w, 500)
	if strings.Contains(w.Body.String(), "nil pointer") || !strings.Contains(r.logged.String(), "panicked") ||
		!strings.Contains(r.logged.String(), p.RequestID) {
		t.Errorf("answer %s, log %s", w.Body, r.logged)
	}
}

func loggerInto(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func TestABadTrustedProxyRefusesToStart(t *testing.T) {
	if _, err := New(Config{TrustedProxies: []string{"10.0.0.0/99"}, Log: loggerInto(io.Discard)}); err == nil {
		t.Error("started")
	}
}

func TestForgedAddressesAreNotBelieved(t *testing.T) {
	r := newRig(t)
	r.send(request{method: "POST", path: "/v1/tasks", token: "admin", body: good, headers: []string{"X-Forwarded-For", "6.6.6.6", "X-Real-IP", "6.6.6.6"}})
	if strings.Contains(r.logged.String(), "6.6.6.6") || !strings.Contains(r.logged.String(), "peer=192.0.2.1") {
		t.Errorf("log: %s", r.logged)
	}
}

func TestTheLogNamesRequestCallerTaskAndAttempt(t *testing.T) {
	r := newRig(t)
	r.send(request{method: "POST", path: "/v1/tasks", token: "admin", body: good, headers: []string{"X-Request-Id", "req-1"}})
	r.fail = errForTest
	r.send(runner("finish", `{"attempt":7,"fence":9,"pod_uid":"u","outcome":"failed"}`))
	for _, want := range []string{"request=req-1", "caller=admin", "task=" + taskID, "attempt=7"} {
		if !strings.Contains(r.logged.String(), want) {
			t.Errorf("no %s in %s", want, r.logged)
		}
	}
}

func TestTokensNeverReachTheLog(t *testing.T) {
	r := newRig(t)
	r.fail = errForTest
	for _, header := range []string{"Authorization", "Slipway-Authorization"} {
		r.send(request{method: "POST", path: "/v1/tasks", body: good, headers: []string{header, "Bearer topsecret"}})
	}
	if strings.Contains(r.logged.String(), "topsecret") {
		t.Errorf("log: %s", r.logged)
	}
}

// serve starts the rig's server on a port of its own.
func serve(t *testing.T, r *rig) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := r.server.Shutdown(ctx); err != nil {
			t.Errorf("shut down: %v", err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + listener.Addr().String()
}

func get(t *testing.T, url string) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer admin")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func TestAFollowerSeesEachLineAtOnceAndTheServersEnd(t *testing.T) {
	r := newRig(t)
	out, in := io.Pipe()
	r.log = out
	url := serve(t, r)
	answer := get(t, url+"/v1/tasks/"+taskID+"/logs?follow=true")
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Slipway-Log-Source") != "live" || answer.Header.Get("Slipway-Attempt") != "1" {
		t.Fatalf("got %d %v", answer.StatusCode, answer.Header)
	}
	lines := bufio.NewReader(answer.Body)
	for _, want := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(in, want); err != nil {
			t.Fatal(err)
		}
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("got %q %v, want %q", got, err, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		t.Errorf("a follower keeps the server: %v", err)
	}
	if rest, err := io.ReadAll(lines); err != nil || !strings.Contains(string(rest), "broke off") {
		t.Errorf("the follower's end: %q %v", rest, err)
	}
}

func TestAFollowerThatLeavesEndsTheStreamBelow(t *testing.T) {
	r := newRig(t)
	out, in := io.Pipe()
	r.log = out
	url := serve(t, r)
	answer := get(t, url+"/v1/tasks/"+taskID+"/logs?follow=true")
	_ = answer.Body.Close()
	eventually(t, func() bool {
		_, err := io.WriteString(in, "x")
		return errors.Is(err, io.ErrClosedPipe)
	})
}

func TestAMissingLogSaysWhy(t *testing.T) {
	r := newRig(t)
	r.logErr = &MissingLogError{Reason: "pod_lost", Message: "the pod was gone before its log was kept"}
	p := r.problem(r.send(request{method: "GET", path: "/v1/tasks/" + taskID + "/logs", token: "admin"}), 404)
	if p.Type != "urn:slipway:problem:pod_lost" {
		t.Errorf("got %+v", p)
	}
	p = r.problem(r.send(request{method: "GET", path: "/v1/tasks/" + taskID + "/logs?attempt=2", token: "admin"}), 404)
	if p.Type != "urn:slipway:problem:no_attempt" {
		t.Errorf("another attempt: %+v", p)
	}
	r.attempts = nil
	p = r.problem(r.send(request{method: "GET", path: "/v1/tasks/" + taskID + "/logs", token: "admin"}), 404)
	if p.Type != "urn:slipway:problem:not_started" {
		t.Errorf("no attempt: %+v", p)
	}
}
