package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/pkg/api"
)

var update = flag.Bool("update", false, "write the golden files anew")

// script is a played control plane: answers by "METHOD PATH", and what it was asked.
type script struct {
	answers map[string]string
	asked   []string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	s.asked = append(s.asked, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), key, body)), " "))
	w.Header().Set("Content-Type", "application/json")
	text, ok := s.answers[r.Method+" "+r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		text = `{"type":"urn:slipway:problem:not_found","title":"Not Found","status":404,"detail":"there is no such thing"}`
	}
	_, _ = io.WriteString(w, text)
}

// play runs one command line against s.
func play(t *testing.T, s *script, args ...string) (code int, out, errOut string) {
	t.Helper()
	server := httptest.NewServer(s)
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"slipway", "--server", server.URL, "--token", "tok"}, args...), streams{strings.NewReader(""), &o, &e})
	return code, o.String(), e.String()
}

const queuedTask = `{"id":"t-1","kind":"volume.resize","namespace":"shop","name":"grow","lane":"volume:shop/data","state":"queued","phase":"waiting",
"waiting":{"reason":"held","note":"ada: until Monday"},"attempts_made":0,"created_at":"2026-11-30T10:00:00Z","created_by":"ada"}`

const triedTask = `{"id":"00000000-0000-0000-0000-000000000000","kind":"command.run","namespace":"shop","mode":"parallel","queue":"default","class":"normal",
"state":"queued","phase":"waiting","attempts_made":0,"created_at":"2026-11-30T10:00:00Z","created_by":"ada","spec":{"image":"registry.example.com/tool:1"},
"warnings":[{"pointer":"","reason":"quota","message":"it would wait for room in a quota: exceeded quota: full"}]}`

const failedTask = `{"id":"t-2","kind":"command.run","namespace":"shop","state":"failed","phase":"failed","outcome":"failed","reason":"exit_code",
"spent":{"attempts":1,"lost":1},"spec":{"retry":{"attempts":1,"lost":20}},
"message":"the command ended with 3","attempts_made":2,"retry_of":"t-1","created_at":"2026-11-30T10:00:00Z","created_by":"ada",
"started_at":"2026-11-30T10:00:01Z","ended_at":"2026-11-30T10:00:09Z"}`

const failedAttempts = `{"items":[
{"number":1,"fence":7,"state":"finished","executor":"job","replica":"slipway-a","outcome":"lost","reason":"evicted","message":"The node was low on memory","rule":"3 disruption",
"job":{"name":"command-run-1"},"pod":{"name":"command-run-1-x"},"node":"n1","claimed_at":"2026-11-30T10:00:01Z","launched_at":"2026-11-30T10:00:01.1Z","started_at":"2026-11-30T10:00:02Z",
"heartbeat_at":"2026-11-30T10:00:03Z","finished_at":"2026-11-30T10:00:04.5Z"},
{"number":2,"fence":9,"state":"finished","executor":"job","replica":"slipway-b","outcome":"failed","reason":"exit_code","rule":"0 stopped: cancel","exit_code":3,
"stop":{"reason":"cancel","note":"wrong one","at":"2026-11-30T10:00:08Z"},"late_report":{"outcome":"succeeded","at":"2026-11-30T10:00:08.5Z"},
"claimed_at":"2026-11-30T10:00:06Z","finished_at":"2026-11-30T10:00:09Z"}]}`

const events = `{"items":[
{"position":"1-1","task":"t-2","type":"submitted","actor":"ada","at":"2026-11-30T10:00:00Z"},
{"position":"1-2","task":"t-2","attempt":1,"type":"claimed","actor":"slipway-a","at":"2026-11-30T10:00:01Z","data":{"fence":7}}]}`

const kinds = `{"items":[
{"name":"command.run","description":"Run a command.","executor":"job","queue":"default","mode":"parallel","on_conflict":"queue","free":true,
"spec":{"idempotent":false,"run_deadline":3600,"start_deadline":120,"capacity_deadline":3600,"queue_deadline":0,"grace":30,"fence_after":600,"retry":{"attempts":1,"lost":20,"backoff":2,"cap":300}}},
{"name":"volume.resize","executor":"off","queue":"volume","lane":"volume:{namespace}/{pvc}","mode":"strict","on_conflict":"queue","free":false,"secrets":["token","passphrase"],
"switched":{"executor":"off","percent":100,"by":"ada","reason":"storage is being moved","at":"2026-11-30T09:00:00Z"},
"spec":{"idempotent":true,"run_deadline":5400,"retry":{"attempts":4}}}]}`

const queue = `{"name":"volume","cap":50,"ns_cap":20,"max_queued":10000,"burst":1,"rate":2.5,"paused":true,"draining":false,"note":"storage is being moved","queued":3,"running":1}`

func TestTablesAreAsTheGoldenFilesShow(t *testing.T) {
	old := time.Now().Add(-51*time.Hour - 30*time.Minute).UTC().Format(time.RFC3339)
	s := &script{answers: map[string]string{
		"GET /v1/tasks":              `{"items":[` + strings.ReplaceAll(queuedTask, "2026-11-30T10:00:00Z", old) + `,` + strings.ReplaceAll(failedTask, "2026-11-30T10:00:00Z", old) + `],"next":"abc"}`,
		"POST /v1/tasks":             triedTask,
		"GET /v1/tasks/t-1":          queuedTask,
		"GET /v1/tasks/t-2":          failedTask,
		"GET /v1/tasks/t-2/attempts": failedAttempts,
		"GET /v1/tasks/t-2/events":   events,
		"GET /v1/kinds":              kinds,
		"GET /v1/queues":             `{"items":[{"name":"default","cap":50,"ns_cap":20,"max_queued":10000,"burst":1,"queued":0,"running":0},` + queue + `]}`,
		"GET /v1/limits/shop":        `{"namespace":"shop","items":[{"queue":"default","cap":50,"ns_cap":20,"max_queued":10000,"queued":4,"running":2}]}`,
		"GET /v1/limits/bank": `{"namespace":"bank","items":[{"queue":"volume","cap":50,"ns_cap":20,"max_queued":10000,"queued":4,"running":2}],"storage":{
"limit":"500Gi","in_use":"420Gi","reserved":"30Gi","open":3,"tasks":[{"task":"t-1","pvc":"data-0","size":"50Gi"},{"task":"t-2","pvc":"data-1","size":"60Gi"}]}}`,
		"GET /v1/audit": `{"items":[{"at":"2026-11-30T10:00:00Z","actor":"ada","verb":"pause","resource":"queues","name":"volume","peer":"10.1.2.3","request_id":"r-1","before":{"paused":false},"after":{"paused":true}},{"at":"2026-11-30T09:00:00Z","actor":"bob","verb":"cancel","resource":"tasks","name":"t-1","namespace":"shop"}],"next":"abc"}`,
		"GET /v1/lanes": `{"key":"volume:shop/data","queue":"volume","namespace":"shop","kind":"volume.resize","fence":12,"holder":"t-9","head":"t-1","queued":2,"waiting":{"reason":"lane","note":"t-9 runs"},
"line":[{"position":1,"task":"t-1","kind":"volume.resize","class":"normal","mode":"strict","held":true},{"position":2,"task":"t-3","kind":"volume.observe","class":"high","mode":"latest","absorbed":4}]}`,
		"GET /v1/freezes":              `{"items":[{"id":7,"namespace":"shop","actor":"ada","reason":"storage is being moved","expires_at":"` + time.Now().Add(90*time.Minute+30*time.Second).UTC().Format(time.RFC3339) + `"},{"id":8,"queue":"backup","actor":"bob","reason":"full"}]}`,
		"POST /v1/lanes:check":         `{"checked":500,"differences":[{"lane":"volume:shop/a","field":"head","shown":"t-1","derived":"t-2","repaired":true}]}`,
		"POST /v1/lanes:force-release": `{"task":"t-9","state":"queued","outcome":"lost","reason":"force_released","attempt":2,"fence":12,"may_still_run":["pod a on node n1"]}`,
	}}
	for name, args := range map[string][]string{
		"get": {"get", "t-1"}, "list": {"list"}, "explain": {"explain", "t-2"}, "kinds": {"kinds"}, "kind": {"kinds", "volume.resize"},
		"kind-free": {"kinds", "command.run"}, "queues": {"queues"}, "limits": {"queues", "-n", "shop"}, "storage": {"limits", "bank"}, "no-storage": {"limits", "-n", "shop"}, "lane": {"lanes", "volume:shop/data"},
		"freezes": {"freezes", "-n", "shop"}, "check": {"lanes", "check"}, "force": {"lanes", "force-release", "volume:shop/data", "--reason", "off"},
		"dry-run": {"submit", "-n", "shop", "--dry-run", "--", "true"}, "audit": {"audit", "-A"}, "audit-json": {"audit", "-n", "shop", "-o", "json"}, "explain-yaml": {"explain", "t-2", "-o", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := play(t, s, args...)
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if code != 0 || err != nil || out != string(want) {
				t.Errorf("%d %s %v\ngot\n%s\nwant\n%s", code, errOut, err, out, want)
			}
		})
	}
}

func TestEachVerbAsksForWhatItSays(t *testing.T) {
	s := &script{answers: map[string]string{
		"POST /v1/tasks": queuedTask, "POST /v1/tasks/t-2/retry": queuedTask, "POST /v1/tasks/t-1/hold": queuedTask, "POST /v1/tasks/t-1/unhold": queuedTask,
		"GET /v1/tasks/t-1": strings.ReplaceAll(queuedTask, `"queued"`, `"succeeded"`), "GET /v1/kinds": kinds, "POST /v1/queues/volume/pause": queue,
		"POST /v1/queues/volume/resume": queue, "POST /v1/queues/volume/drain": queue, "PATCH /v1/kinds/volume.resize": `{"name":"volume.resize"}`,
		"GET /v1/version": `{"version":"1.2.3"}`, "GET /v1/audit": `{"items":[]}`, "GET /v1/freezes": `{"items":[]}`, "POST /v1/freezes": `{"id":7}`, "DELETE /v1/freezes/7": "",
		"POST /v1/lanes:force-release": `{"task":"t-9"}`, "POST /v1/lanes:check": `{"checked":1,"differences":[{"lane":"volume:shop/a","field":"head"}],"next":"volume:shop/m"}`,
		"PATCH /v1/tasks/t-1": queuedTask, "DELETE /v1/tasks/t-2": "", "PATCH /v1/queues/volume": queue, "PUT /v1/limits/shop": `{"namespace":"shop","items":[]}`,
	}}
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"submit -n shop --dry-run -- true", 0, `POST /v1/tasks?dry_run=true {"kind":"command.run","namespace":"shop","params":{"command":["true"]}}`},
		{"submit -n shop --dry-run --wait -- true", 2, ""},
		{"limits shop --storage 500Gi", 0, `PUT /v1/limits/shop {"storage":"500Gi"}`},
		{"limits -n shop --storage none", 0, `PUT /v1/limits/shop {"storage":null}`},
		{"limits shop --storage=", 2, ""},
		{"limits shop bank", 2, ""},
		{"retry t-2 --key k", 0, "POST /v1/tasks/t-2/retry k"},
		{"retry t-2 --wait", 0, "POST /v1/tasks/t-2/retry|GET /v1/tasks/t-1"},
		{"retry t-9", 1, "POST /v1/tasks/t-9/retry"},
		{"retry", 2, ""},
		{"retry t-2 --state failed", 2, ""},
		{"cancel --kind x --preview --yes", 1, ""},
		{"edit t-1 --class high --run-at 2026-11-30T18:00:00Z", 0, `PATCH /v1/tasks/t-1 {"class":"high","run_at":"2026-11-30T18:00:00Z"}`},
		{"edit t-1 --run-at now", 0, `PATCH /v1/tasks/t-1 {"run_at":null}`},
		{"edit t-1 --run-at soon", 2, ""},
		{"edit t-1", 2, ""},
		{"delete t-2", 0, "DELETE /v1/tasks/t-2"},
		{"delete t-9", 1, "DELETE /v1/tasks/t-9"},
		{"queues limit volume --cap 5 --rate default", 0, `PATCH /v1/queues/volume {"cap":5,"rate":null}`},
		{"queues limit volume --cap many", 2, ""},
		{"queues limit volume", 2, ""},
		{"hold t-1 --reason later", 0, `POST /v1/tasks/t-1/hold {"reason":"later"}`},
		{"unhold t-1", 0, "POST /v1/tasks/t-1/unhold"},
		{"explain t-9", 1, "GET /v1/tasks/t-9"},
		{"kinds absent", 1, "GET /v1/kinds"},
		{"kinds a b", 2, ""},
		{"kinds off volume.resize --reason moving", 0, `PATCH /v1/kinds/volume.resize {"executor":"off","reason":"moving"}`},
		{"kinds inline volume.resize --percent 25", 0, `PATCH /v1/kinds/volume.resize {"executor":"inline","percent":25}`},
		{"kinds inline volume.resize --percent 0", 2, ""},
		{"kinds on volume.resize", 0, `PATCH /v1/kinds/volume.resize {"executor":null}`},
		{"queues pause volume --note moving", 0, `POST /v1/queues/volume/pause {"note":"moving"}`},
		{"queues resume volume", 0, "POST /v1/queues/volume/resume {}"},
		{"queues drain volume", 0, "POST /v1/queues/volume/drain {}"},
		{"lanes volume:shop/absent", 1, "GET /v1/lanes?key=volume%3Ashop%2Fabsent"},
		{"lanes", 2, ""},
		{"lanes check --repair", 1, `POST /v1/lanes:check {"repair":true}|POST /v1/lanes:check {"after":"volume:shop/m","repair":true}`},
		{"lanes force-release volume:shop/a --reason off", 0, `POST /v1/lanes:force-release {"key":"volume:shop/a","reason":"off"}`},
		{"lanes force-release volume:shop/a", 2, ""},
		{"freezes -n shop", 0, "GET /v1/freezes?namespace=shop"},
		{"freezes -A", 0, "GET /v1/freezes"},
		{"freezes create -n shop --reason moving --for 2h", 0, `POST /v1/freezes {"namespace":"shop","reason":"moving","seconds":7200}`},
		{"freezes create -A --queue backup --reason full --for 30m", 0, `POST /v1/freezes {"queue":"backup","reason":"full","seconds":1800}`},
		{"freezes create -n shop --reason moving", 2, ""},
		{"freezes end 7", 0, "DELETE /v1/freezes/7"},
		{"freezes end x", 2, ""},
		{"audit -A --limit 9 --actor ada --verb pause --resource queues --name volume --cursor abc", 0, "GET /v1/audit?actor=ada&verb=pause&resource=queues&name=volume&limit=9&cursor=abc"},
		{"audit -n shop", 0, "GET /v1/audit?namespace=shop&limit=50"},
		{"version", 0, "GET /v1/version"},
		{"version --client", 0, ""},
	} {
		s.asked = nil
		code, _, errOut := play(t, s, strings.Fields(tc.args)...)
		if got := strings.Join(s.asked, "|"); code != tc.code || got != tc.want {
			t.Errorf("%s: %d %s\ngot  %s\nwant %s", tc.args, code, errOut, got, tc.want)
		}
	}
}

func TestAShellCompletesIdsAndKinds(t *testing.T) {
	s := &script{answers: map[string]string{"GET /v1/tasks": `{"items":[` + queuedTask + `,` + failedTask + `]}`, "GET /v1/kinds": kinds}}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"get", ""}, "t-1 t-2"},
		{[]string{"cancel", ""}, "t-1"},
		{[]string{"hold", ""}, "t-1"},
		{[]string{"retry", ""}, "t-2"},
		{[]string{"get", "t-1", ""}, ""},
		{[]string{"kinds", ""}, "command.run off on volume.resize"},
		{[]string{"list", "--kind", ""}, "command.run volume.resize"},
		{[]string{"list", "--state", "f"}, "queued running succeeded failed canceled"},
		{[]string{"get", "-o", ""}, "table json yaml"},
	} {
		_, out, _ := play(t, s, append([]string{"__complete"}, tc.args...)...)
		var words []string
		for row := range strings.Lines(out) {
			if word, _, _ := strings.Cut(strings.TrimSpace(row), "\t"); !strings.HasPrefix(word, ":") {
				words = append(words, word)
			}
		}
		for _, want := range strings.Fields(tc.want) {
			if !strings.Contains(" "+strings.Join(words, " ")+" ", " "+want+" ") {
				t.Errorf("%q: %q lacks %s", tc.args, words, want)
			}
		}
		if tc.want == "" && len(words) > 0 || tc.want == "t-1" && len(words) != 1 || tc.want == "t-2" && len(words) != 1 {
			t.Errorf("%q: %q", tc.args, words)
		}
	}
}

func TestTheBarShowsProgressPhaseAndTimeInOneLine(t *testing.T) {
	began := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	now := began.Add(75 * time.Second)
	task := api.Task{Phase: "running", CreatedAt: began.Add(-time.Hour), StartedAt: began}
	for want, p := range map[string]*api.Progress{
		"running 1m15s": nil,
		"[############............]  50% running 5/10 copying 1m15s": {Done: 5, Total: 10, Message: "copying"},
		"[########################] 100% running 12/10 1m15s":        {Done: 12, Total: 10},
		"running 7 1m15s": {Done: 7},
	} {
		task.Progress = p
		if got := barLine(task, now); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	task.Progress = &api.Progress{Message: strings.Repeat("ä", 200)}
	if got := []rune(barLine(task, now)); len(got) != lineCells {
		t.Errorf("%d cells", len(got))
	}
	queued := api.Task{Phase: "waiting", CreatedAt: began, Waiting: &api.Waiting{Reason: "lane", Holder: "t-9"}}
	if got := barLine(queued, now); got != "waiting for lane, behind t-9 1m15s" {
		t.Errorf("%q", got)
	}
	var out bytes.Buffer
	b := bar{to: &out, now: func() time.Time { return now }}
	b.draw(queued)
	b.clear()
	if out.String() != "\r\x1b[Kwaiting for lane, behind t-9 1m15s\r\x1b[K" {
		t.Errorf("%q", out.String())
	}
}

const manyShown = `{"count":2,"selection":"abc","sample":[{"id":"t-2","kind":"command.run","namespace":"shop","state":"failed","reason":"exit_code","attempts_made":2,"created_at":"2026-11-30T10:00:00Z"}],
"items":[{"id":"t-3","result":"refused","reason":"/kind: is not known here"}]}`

func TestManyAreShownFirstAndThenExactlyThoseAreTaken(t *testing.T) {
	s := &script{answers: map[string]string{"POST /v1/tasks:retry": manyShown, "POST /v1/tasks:cancel": manyShown}}
	line := strings.Fields("retry -n shop --reason exit_code --kind command.run -l team=a")
	const asked = `POST /v1/tasks:retry {"dry_run":true,"filter":{"kind":"command.run","labels":{"team":"a"},"namespace":"shop","reason":"exit_code"}}`
	code, out, errOut := play(t, s, line...)
	if code != 0 || len(s.asked) != 1 || s.asked[0] != asked || !strings.Contains(out, "2 tasks match. To retry them: --yes --expect 2") || !strings.Contains(out, "t-3 would be refused: /kind") {
		t.Errorf("%d %s\nasked %q\n%s", code, errOut, s.asked, out)
	}
	s.asked = nil
	if code, _, errOut := play(t, s, append(line, "--yes", "--expect", "3")...); code != 1 || len(s.asked) != 1 || !strings.Contains(errOut, "2 tasks match, not 3") {
		t.Errorf("%d %s, asked %q", code, errOut, s.asked)
	}
	s.asked = nil
	code, out, errOut = play(t, s, append(line, "--yes")...)
	if code != 0 || len(s.asked) != 2 || !strings.HasSuffix(s.asked[1], `"expected_count":2,"filter":{"kind":"command.run","labels":{"team":"a"},"namespace":"shop","reason":"exit_code"},"selection":"abc"}`) {
		t.Errorf("%d %s, asked %q", code, errOut, s.asked)
	}
	if key := strings.Fields(s.asked[1])[2]; len(key) < 20 || !strings.Contains(out, "t-3  refused") {
		t.Errorf("key %q\n%s", key, out)
	}
	s.asked = nil
	if code, _, errOut := play(t, s, strings.Fields("cancel -A --queue volume --note enough")...); code != 0 || s.asked[0] != `POST /v1/tasks:cancel {"dry_run":true,"filter":{"queue":"volume"},"note":"enough"}` {
		t.Errorf("%d %s, asked %q", code, errOut, s.asked)
	}
}
