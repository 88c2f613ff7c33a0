package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/api"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC
	goleak.VerifyTestMain(m)
}

// plane plays the control plane.
type plane struct {
	task     api.Task
	asked    []string // METHOD PATH?QUERY BODY
	token    string
	key      string
	notYet   int // answers of a log before it begins
	listNext string
}

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	p.asked = append(p.asked, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body)))
	p.token, p.key = r.Header.Get("Authorization"), r.Header.Get("Idempotency-Key")
	var answer any = p.task
	status := http.StatusOK
	switch {
	case strings.Contains(r.URL.Path, "/logs") && p.notYet > 0:
		p.notYet--
		status, answer = 404, api.Problem{Status: 404, Title: "Not Found", Type: "urn:slipway:problem:not_started"}
	case strings.Contains(r.URL.Path, "/logs"):
		w.Header().Set("Slipway-Attempt", "1")
		_, _ = io.WriteString(w, "hello\n")
		return
	case r.URL.Path == "/v1/tasks/absent":
		status, answer = 404, api.Problem{Status: 404, Title: "Not Found", Detail: "there is no such thing"}
	case r.URL.Path == "/v1/tasks" && r.Method == http.MethodGet:
		answer = api.TaskPage{Items: []api.Task{p.task}, Next: p.listNext}
	case r.URL.Path == "/v1/version":
		answer = api.Version{Version: "1.2.3"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

// call runs the command line against p.
func call(t *testing.T, p *plane, in string, args ...string) (code int, out, errOut string) {
	t.Helper()
	server := httptest.NewServer(p)
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"slipway", "--server", server.URL, "--token", "tok"}, args...), streams{strings.NewReader(in), &o, &e})
	return code, o.String(), e.String()
}

func ended(state api.State, outcome api.Outcome) *plane {
	return &plane{task: api.Task{ID: "t-1", Kind: "command.run", State: state, Phase: api.Phase(state), Outcome: outcome, CreatedAt: time.Now(), CreatedBy: "ada"}}
}

func TestACommandAfterTheDashesIsSubmitted(t *testing.T) {
	p := ended(api.StateQueued, "")
	code, out, errOut := call(t, p, "", "submit", "-n", "shop", "--label", "a=b", "--lane", "volume:shop/x", "--attempts", "2",
		"--run-deadline", "90s", "--key", "k", "--after", "a", "--after", "b", "--run-if", "all_finished", "--", "sh", "-c", "echo hi")
	want := `POST /v1/tasks {"after":["a","b"],"kind":"command.run","labels":{"a":"b"},"lane":"volume:shop/x","namespace":"shop",` +
		`"params":{"command":["sh","-c","echo hi"]},"run_if":"all_finished","spec":{"retry":{"attempts":2},"run_deadline":90}}`
	if code != 0 || len(p.asked) != 1 || p.asked[0] != want || p.token != "Bearer tok" || p.key != "k" || !strings.Contains(out, "t-1") {
		t.Errorf("%d %v %s %s", code, p.asked, out, errOut)
	}
}

func TestAFileIsSubmittedWithTheFlagsOverIt(t *testing.T) {
	text := "kind: command.run\nnamespace: bank\nparams:\n  command: [\"true\"]\n"
	file := filepath.Join(t.TempDir(), "task.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{file, "-"} {
		p := ended(api.StateQueued, "")
		code, _, errOut := call(t, p, text, "submit", "-f", from, "--namespace", "shop", "--class", "high")
		want := `POST /v1/tasks {"class":"high","kind":"command.run","namespace":"shop","params":{"command":["true"]}}`
		if code != 0 || p.asked[0] != want {
			t.Errorf("%s: %d %v %s", from, code, p.asked, errOut)
		}
	}
}

func TestTheExitCodeIsTheOutcome(t *testing.T) {
	for _, tc := range []struct {
		state   api.State
		outcome api.Outcome
		want    int
	}{
		{api.StateSucceeded, api.OutcomeSucceeded, 0},
		{api.StateFailed, api.OutcomeFailed, 3},
		{api.StateFailed, api.OutcomeRejected, 4},
		{api.StateFailed, api.OutcomeTimedOut, 5},
		{api.StateFailed, api.OutcomeLost, 6},
		{api.StateFailed, "", 3},
		{api.StateCanceled, api.OutcomeCanceled, 7},
		{api.StateCanceled, "", 7},
	} {
		if code, _, errOut := call(t, ended(tc.state, tc.outcome), "", "wait", "t-1"); code != tc.want || errOut != "" {
			t.Errorf("wait, %s %s: %d %s, want %d", tc.state, tc.outcome, code, errOut, tc.want)
		}
		if code, _, _ := call(t, ended(tc.state, tc.outcome), "", "submit", "-n", "shop", "--wait", "--", "x"); code != tc.want {
			t.Errorf("submit --wait, %s %s: %d, want %d", tc.state, tc.outcome, code, tc.want)
		}
	}
}

func TestEveryFormShowsTheTask(t *testing.T) {
	for form, want := range map[string]string{"table": "state succeeded", "json": `"id": "t-1"`, "yaml": "id: t-1"} {
		if code, out, _ := call(t, ended(api.StateSucceeded, api.OutcomeSucceeded), "", "get", "t-1", "-o", form); code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%s: %d %s", form, code, out)
		}
	}
}

func TestAListFiltersAndSaysHowToGoOn(t *testing.T) {
	p := ended(api.StateFailed, api.OutcomeFailed)
	p.listNext = "abc"
	code, out, errOut := call(t, p, "", "list", "-n", "shop", "--state", "failed", "-l", "a=b", "-l", "c=d")
	if code != 0 || p.asked[0] != "GET /v1/tasks?namespace=shop&state=failed&label=a%3Db&label=c%3Dd&limit=50" ||
		!strings.Contains(out, "more: --cursor abc") || !strings.Contains(out, "PHASE") {
		t.Errorf("%d %v %s %s", code, p.asked, out, errOut)
	}
}

func TestAListCanLookBackSoFarAndNoFurther(t *testing.T) {
	p := ended(api.StateFailed, api.OutcomeFailed)
	code, _, errOut := call(t, p, "", "list", "--since", "90m")
	if code != 0 || len(p.asked) != 1 {
		t.Fatalf("%d %v %s", code, p.asked, errOut)
	}
	_, query, _ := strings.Cut(p.asked[0], "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	from, err := time.Parse(time.RFC3339, values.Get("created_after"))
	if back := time.Since(from); err != nil || back < 90*time.Minute || back > 91*time.Minute {
		t.Errorf("%s: %v, %v", query, back, err)
	}
}

func TestAFollowerWaitsForTheLogToBegin(t *testing.T) {
	p := ended(api.StateRunning, "")
	p.notYet = 1
	if code, out, errOut := call(t, p, "", "logs", "-f", "t-1"); code != 0 || out != "hello\n" || len(p.asked) != 2 {
		t.Errorf("%d %q %s %v", code, out, errOut, p.asked)
	}
	p.notYet = 1
	if code, _, errOut := call(t, p, "", "logs", "t-1"); code != 1 || !strings.Contains(errOut, "404") {
		t.Errorf("without -f: %d %s", code, errOut)
	}
}

func TestMistakesAreToldApartFromRefusals(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want int
		says string
	}{
		{[]string{"frob"}, 2, "unknown command"},
		{[]string{"get"}, 2, "accepts 1 arg"},
		{[]string{"get", "t-1", "-o", "xml"}, 2, "unknown output"},
		{[]string{"submit", "-n", "shop", "-o", "xml", "--", "x"}, 2, "unknown output"},
		{[]string{"get", "--frob"}, 2, "unknown flag"},
		{[]string{"submit", "--", "x"}, 2, "--namespace"},
		{[]string{"submit", "-n", "shop"}, 2, "say what to run"},
		{[]string{"submit", "-n", "shop", "--label", "a", "--", "x"}, 2, "key=value"},
		{[]string{"submit", "-n", "shop", "--params", "{", "--kind", "x"}, 2, "not JSON"},
		{[]string{"submit", "-f", "/nonexistent"}, 2, "read the task"},
		{[]string{"get", "t-1", "--server", "x"}, 2, "http or https"},
		{[]string{"get", "absent"}, 1, "there is no such thing"},
	} {
		p := ended(api.StateQueued, "")
		code, _, errOut := call(t, p, "", tc.args...)
		if tc.want == exitUsage && len(p.asked) > 0 {
			t.Errorf("%v: asked %v", tc.args, p.asked)
		}
		if code != tc.want || !strings.Contains(errOut, tc.says) {
			t.Errorf("%v: %d %s", tc.args, code, errOut)
		}
	}
}

func TestCancelAndVersion(t *testing.T) {
	p := ended(api.StateCanceled, "")
	if code, _, _ := call(t, p, "", "cancel", "t-1", "--note", "wrong one"); code != 0 || p.asked[0] != `POST /v1/tasks/t-1/cancel {"note":"wrong one"}` {
		t.Errorf("%d %v", code, p.asked)
	}
	if code, out, _ := call(t, p, "", "version"); code != 0 || !strings.Contains(out, "1.2.3") {
		t.Errorf("%d %s", code, out)
	}
}
