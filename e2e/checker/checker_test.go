package checker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func at(millis int) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(millis) * time.Millisecond)
}

// good is a storm in which nothing went wrong: three Tasks of one lane, the second of which was tried twice.
func good() History {
	h := History{Created: map[string]int{}, Tasks: map[string]Task{}, Attempts: map[string][]Attempt{}}
	for i, id := range []string{"a", "b", "c"} {
		h.Submits = append(h.Submits, Submit{Key: "key-" + id, IDs: []string{id}, Lane: "l", Ordered: true, Idempotent: true, Sent: at(10 * i), Answered: at(10*i + 5)})
		h.Tasks[id] = Task{ID: id, Name: "key-" + id, State: "succeeded", Made: 1, EndedAt: at(1000*i + 900), Attempt: &Attempt{Number: 1, Fence: int64(10 * (i + 1)), Outcome: "succeeded"}}
		h.Created["n/job-"+id] = 1
	}
	b := h.Tasks["b"]
	b.Made, b.Attempt = 2, &Attempt{Number: 2, Fence: 25, Outcome: "succeeded"}
	h.Tasks["b"] = b
	h.Attempts["b"] = []Attempt{{Number: 1, Fence: 20, Outcome: "failed"}, {Number: 2, Fence: 25, Outcome: "succeeded"}}
	h.handler("a", "pa", 10, 100, 500)
	h.handler("b", "pb1", 20, 1000, 1300)
	h.handler("b", "pb2", 25, 1400, 1800)
	h.handler("c", "pc", 30, 2000, 2500)
	return h
}

func (h *History) handler(task, pod string, fence int64, from, to int) {
	for _, r := range []Record{{At: at(from), What: "begin"}, {At: at((from + to) / 2), What: "alive"}, {At: at(to), What: "end", Note: "done"}} {
		r.Task, r.Lane, r.Pod, r.Fence, r.Attempt = task, "l", pod, fence, 1
		h.Records = append(h.Records, r)
	}
}

func TestAStormInWhichNothingWentWrongHasNoFindings(t *testing.T) {
	if found := Check(good()); len(found) > 0 {
		t.Fatalf("%+v", found)
	}
}

func TestEachThingThatMustNotBeIsFoundOnce(t *testing.T) {
	for name, c := range map[string]struct {
		want  Kind
		wreck func(h *History)
	}{
		"two handlers at once in a lane": {Overlap, func(h *History) {
			h.Records[len(h.Records)-3].At = at(1700) // c begins while b is at work
			h.Records[len(h.Records)-2].At = at(1900)
		}},
		"a handler that was alive after the next began": {Overlap, func(h *History) {
			h.Records = append(h.Records, Record{At: at(1450), What: "alive", Task: "b", Lane: "l", Pod: "pb1", Fence: 20})
		}},
		"a lower fence that began after a higher one": {Overlap, func(h *History) {
			h.Submits[2].Ordered = false
			h.setFence("c", 15)
		}},
		"a handler at work after its task had ended": {Overlap, func(h *History) {
			h.Records = append(h.Records, Record{At: at(2950), What: "alive", Task: "c", Lane: "l", Pod: "pc", Fence: 30})
		}},
		"a later task that began first": {OrderBreak, func(h *History) {
			h.Submits[1].Sent, h.Submits[1].Answered = at(40), at(45) // after c
		}},
		"a later task that was claimed first": {OrderBreak, func(h *History) {
			h.drop("c")
			h.setFence("c", 15)
			h.change("c", func(t *Task) { t.State, t.Reason = "failed", "deleted" })
		}},
		"a task that is not there": {Lost, func(h *History) { h.drop("c"); delete(h.Tasks, "c") }},
		"a success without its work": {Lost, func(h *History) {
			h.Records[len(h.Records)-1].Note = "stopped"
		}},
		"a success of which only an earlier attempt did its work": {Lost, func(h *History) {
			h.Records[len(h.Records)-4].What = "alive" // of b's second attempt
		}},
		"an end without a reason":      {Lost, func(h *History) { h.change("c", func(t *Task) { t.State = "failed" }) }},
		"an end that was shown before": {Lost, func(h *History) { h.Submits[2].Ended = "canceled" }},
		"an attempt that ran in two pods": {Doubled, func(h *History) {
			h.handler("c", "pc2", 30, 2600, 2800)
		}},
		"an attempt that began twice": {Doubled, func(h *History) {
			h.Records = append(h.Records, Record{At: at(2400), What: "begin", Task: "c", Lane: "l", Pod: "pc", Fence: 30})
		}},
		"a job that was created twice": {Doubled, func(h *History) { h.Created["n/job-b"] = 2 }},
		"a task that was tried after its success": {Doubled, func(h *History) {
			h.Attempts["b"][0].Outcome = "succeeded"
		}},
		"two answers to one key": {Doubled, func(h *History) {
			h.Submits[2].IDs = append(h.Submits[2].IDs, "d")
			h.Tasks["d"] = Task{ID: "d", State: "canceled", Reason: "canceled", EndedAt: at(9000)}
		}},
		"two tasks for one key, one of them never answered": {Doubled, func(h *History) {
			h.Tasks["d"] = Task{ID: "d", Name: "key-c", State: "canceled", Reason: "canceled", EndedAt: at(9000)}
		}},
		"a task that was not to be repeated": {Doubled, func(h *History) { h.Submits[1].Idempotent = false }},
		"a task that does not end":           {Stuck, func(h *History) { h.change("c", func(t *Task) { t.State, t.Phase = "running", "canceling" }) }},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			c.wreck(&h)
			found := Check(h)
			if len(found) != 1 || found[0].Kind != c.want {
				t.Fatalf("want one %s, found %+v", c.want, found)
			}
		})
	}
}

func TestATaskThatTookOverTheNameOfWhatItAbsorbedIsNoDouble(t *testing.T) {
	h := good()
	h.change("c", func(t *Task) { t.Name = "key-b" })
	if found := Check(h); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

func TestAJobMadeAnewAfterAnotherDeletedItIsExcusedOnce(t *testing.T) {
	line := func(verb, user string) audited {
		e := audited{Stage: "ResponseComplete", Verb: verb}
		e.User.Username, e.ObjectRef.Resource, e.ResponseStatus.Code = user, "jobs", 200
		return e
	}
	for _, c := range []struct {
		lines []audited
		want  int
	}{
		{[]audited{line("create", "plane"), line("delete", "somebody"), line("create", "plane")}, 1},
		{[]audited{line("create", "plane"), line("delete", "somebody"), line("create", "plane"), line("create", "plane")}, 2},
		{[]audited{line("create", "plane"), line("delete", "plane"), line("create", "plane")}, 2},
	} {
		jobs, n := jobLog{by: map[string]string{}, gone: map[string]bool{}}, 0
		for _, e := range c.lines {
			if jobs.fresh(e, "j") {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%+v: %d creates count, want %d", c.lines, n, c.want)
		}
	}
}

func (h *History) change(id string, f func(*Task)) {
	is := h.Tasks[id]
	f(&is)
	h.Tasks[id] = is
}

func (h *History) setFence(id string, fence int64) {
	h.change(id, func(t *Task) { t.Attempt = &Attempt{Number: 1, Fence: fence} })
	for i, r := range h.Records {
		if r.Task == id {
			h.Records[i].Fence = fence
		}
	}
}

// drop forgets what the handlers of a Task have said.
func (h *History) drop(id string) {
	var kept []Record
	for _, r := range h.Records {
		if r.Task != id {
			kept = append(kept, r)
		}
	}
	h.Records = kept
}

func TestARetryByHandHasTheNameOfWhatItRepeats(t *testing.T) {
	h := good()
	h.Submits = append(h.Submits, Submit{Key: "again", IDs: []string{"d"}, Retry: true, Idempotent: true})
	h.Tasks["d"] = Task{ID: "d", Name: "key-c", RetryOf: "c", State: "canceled", Reason: "canceled", EndedAt: at(9000)}
	if found := Check(h); len(found) > 0 {
		t.Fatalf("%+v", found)
	}
}

func TestTheReportFailsWhatProvesNothing(t *testing.T) {
	h := good()
	h.Faults = []Fault{{Kind: "kill"}, {Kind: "kill"}, {Kind: "freeze"}}
	var out bytes.Buffer
	wrong := Report(&out, h, Bounds{Tasks: 3, Lanes: 1, Each: 1, Kinds: []string{"kill", "freeze"}}, 7)
	if want := "fault freeze                           1\nfault kill                             2\n" +
		"chaos: tasks=3 lanes=1 faults=3 overlaps=0 order_breaks=0 lost=0 doubled=0 stuck=0 seed=7\n"; out.String() != want || len(wrong) > 0 {
		t.Errorf("%s%v", out.String(), wrong)
	}
	if wrong = Report(&out, h, Bounds{Tasks: 4, Lanes: 2, Each: 2, Kinds: []string{"kill", "freeze", "cut"}}, 7); len(wrong) != 4 {
		t.Errorf("%q", wrong)
	}
	if b := Scaled(10, nil); b.Tasks != 3000 || b.Each != 20 || b.Lanes != 40 {
		t.Errorf("%+v", b)
	}
}

func TestTracesAreReadFromFilesAndTheAPI(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	created := `{"stage":"ResponseComplete","verb":"create","requestURI":"/apis/batch/v1/namespaces/n/jobs%s","objectRef":{"resource":"jobs","namespace":"%s","name":"j"},"responseStatus":{"code":%d}}` + "\n"
	h, err := Read(Files{
		Submits: write("submits", `{"key":"k","ids":["a"]}`+"\n"),
		Faults:  write("faults", `{"kind":"kill"}`+"\n"),
		Records: write("records", `{"what":"begin","task":"a","fence":3}`+"\n"+`{"what":"al`),
		Audit: write("audit", fmt.Sprintf(created, "", "n", 201)+fmt.Sprintf(created, "?dryRun=All", "n", 201)+
			fmt.Sprintf(created, "", "other", 201)+fmt.Sprintf(created, "", "n", 409)),
	}, "n")
	if err != nil || len(h.Submits) != 1 || len(h.Faults) != 1 || len(h.Records) != 1 || h.Created["n/j"] != 1 || len(h.Created) != 1 {
		t.Fatalf("%+v, %v", h, err)
	}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var answer any
		switch {
		case q.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
			return
		case strings.HasSuffix(q.URL.Path, "/attempts"):
			answer = map[string]any{"items": []any{map[string]any{"number": 1, "fence": 3}, map[string]any{"number": 2, "fence": 4}}}
		case q.URL.Query().Get("cursor") == "":
			answer = map[string]any{"items": []any{map[string]any{"id": "b", "state": "failed", "reason": "exit_code"}}, "next": "more"}
		default:
			state := "running"
			if asked++; asked > 1 {
				state = "succeeded"
			}
			answer = map[string]any{"items": []any{map[string]any{"id": "a", "state": state, "attempts_made": 2, "ended_at": "2026-01-01T00:00:00Z"}}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	api := API{Base: server.URL, Token: map[string]string{"n": "secret"}}
	if err := api.Settle(t.Context(), &h, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	if a := h.Tasks["a"]; a.State != "succeeded" || a.EndedAt.IsZero() || len(h.Attempts["a"]) != 2 || h.Tasks["b"].Reason != "exit_code" || asked != 2 {
		t.Errorf("%+v, asked %d times", h, asked)
	}
}

func TestItSharesNoCodeWithSlipway(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range parsed.Imports {
			if strings.Contains(i.Path.Value, ".") {
				t.Errorf("%s imports %s, which is not of the standard library", file, i.Path.Value)
			}
		}
	}
}
