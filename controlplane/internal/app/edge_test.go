package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/httpapi"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/controlplane/internal/kube"
	"slipway.dev/slipway/controlplane/internal/logs"
	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// city plays the cluster: every token is a user of that name with all rights, `pod` is a runner in namespace shop.
type city struct {
	labels kube.PodLabels
	asked  sync.Map // audience of each review
	denied sync.Map // users without any right
	claims sync.Map // `NAMESPACE SELECTOR` → names
	use    sync.Map // namespace → map[string]int64, or an error
}

func (c *city) ReviewToken(_ context.Context, token, audience string) (kube.Identity, bool, error) {
	c.asked.Store(audience, true)
	if audience == auth.RunnerAudience {
		ns, ok := strings.CutPrefix(token, "pod-of-")
		return kube.Identity{User: "runner", Namespace: ns, PodName: "p", PodUID: "uid-" + token, Node: "n"}, ok, nil
	}
	return kube.Identity{User: token}, true, nil
}

func (c *city) Allowed(_ context.Context, id kube.Identity, _ kube.Access) (bool, string, error) {
	_, denied := c.denied.Load(id.User)
	return !denied, "", nil
}

func (c *city) PodOf(context.Context, string, string, string) (kube.PodLabels, error) {
	return c.labels, nil
}

// town is the edge over a real database and a played cluster.
type town struct {
	*testing.T
	store   *store.Store
	city    *city
	times   timetable
	handler http.Handler
}

func newTown(t *testing.T) *town {
	t.Helper()
	s := pgtest.New(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return townOver(t, s, kinds.BuiltIn())
}

func townOver(t *testing.T, s *store.Store, known *kinds.Registry) *town {
	t.Helper()
	c := &city{}
	asked, e := gatekeeper{c}, edge{store: s, counts: newCounts()}
	gate := auth.New(auth.Config{Reviewer: asked, Accessor: asked, Keep: time.Millisecond})
	times := timetable{store: s, kinds: known, gate: gate, counts: e.counts, cluster: c}
	server, err := httpapi.New(httpapi.Config{
		Gate: gate, Schedules: times, Calendars: times, Timer: times,
		Submitter: e, Finder: e, Picker: e, History: e, Canceler: e, Holder: e, Editor: e, Queues: standing{s}, Switches: standing{s}, Standing: standing{s}, Storage: standing{s}, Freezer: standing{s}, Lanes: standing{s}, Runners: runners{s, silence{}}, Pods: pods{c}, Cluster: c, Audit: e,
		Logs: journal{logs.New(noPods{}, e)}, Kinds: known, SessionKey: s.SessionKey(), Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &town{T: t, store: s, city: c, times: times, handler: server.Handler}
}

func (w *town) send(token, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	w.Helper()
	q := httptest.NewRequestWithContext(w.Context(), method, path, strings.NewReader(body))
	q.Header.Set("Authorization", "Bearer "+token)
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	a := httptest.NewRecorder()
	w.handler.ServeHTTP(a, q)
	return a
}

// silence hears of steps.
type silence struct{}

func (silence) Tell(task.Task, task.Step, int) {}

// Takes says that any pod would be taken.
func (*city) Takes(context.Context, task.Task) error { return nil }

// Claims finds those that the test has named.
func (c *city) Claims(_ context.Context, namespace, selector string) ([]string, error) {
	found, _ := c.claims.Load(namespace + " " + selector)
	names, _ := found.([]string)
	return names, nil
}

// StorageUse gives what the test has set.
func (c *city) StorageUse(_ context.Context, namespace string) (map[string]int64, error) {
	switch found, _ := c.use.Load(namespace); found := found.(type) {
	case map[string]int64:
		return found, nil
	case error:
		return nil, found
	}
	return nil, errors.New("nobody was to ask for the claims of " + namespace)
}

// Against finds nothing.
func (*city) Against(context.Context, task.Task) (map[string]string, error) { return nil, nil }

// must sends and checks the status.
func must[T any](w *town, a *httptest.ResponseRecorder, status int) (v T) {
	w.Helper()
	if a.Code != status {
		w.Fatalf("got %d %s, want %d", a.Code, a.Body, status)
	}
	if a.Body.Len() > 0 {
		if err := json.Unmarshal(a.Body.Bytes(), &v); err != nil {
			w.Fatalf("read %s: %v", a.Body, err)
		}
	}
	return v
}

const hello = `{"kind":"command.run","namespace":"shop","params":{"command":["echo","\\u0000 🚢"],"stdin":"1e400 12345678901234567890"}}`

func TestOneKeyMakesOneTaskHoweverOftenItIsSent(t *testing.T) {
	w := newTown(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	codes, ids := map[int]int{}, map[string]bool{}
	for range 50 {
		all.Go(func() {
			a := w.send("ada", "POST", "/v1/tasks", hello, "Idempotency-Key", "k")
			var made api.Task
			_ = json.Unmarshal(a.Body.Bytes(), &made) // an id that cannot be read counts as another one
			mu.Lock()
			defer mu.Unlock()
			codes[a.Code]++
			ids[made.ID] = true
		})
	}
	all.Wait()
	if codes[201] != 1 || codes[200] != 49 || len(ids) != 1 {
		t.Errorf("statuses %v, %d tasks", codes, len(ids))
	}
	other := must[api.Problem](w, w.send("ada", "POST", "/v1/tasks", strings.Replace(hello, "echo", "cat", 1), "Idempotency-Key", "k"), 409)
	if other.Type != "urn:slipway:problem:idempotency_body" || !ids[other.Task] {
		t.Errorf("another body: %+v", other)
	}
	if made := must[api.Task](w, w.send("bob", "POST", "/v1/tasks", hello, "Idempotency-Key", "k"), 201); ids[made.ID] {
		t.Error("another caller got the same task")
	}
	for range 2 {
		if made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", hello), 201); ids[made.ID] {
			t.Error("without a key the same task came back")
		}
	}
}

func TestAKeyStillWorksWhenItsKindIsGone(t *testing.T) {
	w := newTown(t)
	first := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", hello, "Idempotency-Key", "k"), 201)
	none, err := kinds.New()
	if err != nil {
		t.Fatal(err)
	}
	later := townOver(t, w.store, none)
	a := later.send("ada", "POST", "/v1/tasks", hello, "Idempotency-Key", "k")
	if again := must[api.Task](later, a, 200); again.ID != first.ID || a.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %s, want %s again", again.ID, first.ID)
	}
	must[api.Problem](later, later.send("ada", "POST", "/v1/tasks", hello, "Idempotency-Key", "new"), 422)
	must[api.Problem](later, later.send("ada", "POST", "/v1/tasks", strings.Replace(hello, "echo", "cat", 1), "Idempotency-Key", "k"), 409)
}

func TestWhatIsStoredComesBackUnchanged(t *testing.T) {
	w := newTown(t)
	body := strings.Replace(hello, `{"kind"`, `{"name":"\\u0000 ünï","labels":{"team":"blue"},"class":"low","delay":3600,
		"spec":{"idempotent":true,"run_deadline":1.5,"requests":{"cpu":"100m"}},"kind"`, 1)
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", body), 201)
	got := must[api.Task](w, w.send("ada", "GET", "/v1/tasks/"+made.ID, ""), 200)
	var params struct {
		Command []string
		Stdin   string
	}
	if err := json.Unmarshal(got.Params, &params); err != nil || params.Command[1] != `\u0000 🚢` || params.Stdin != "1e400 12345678901234567890" {
		t.Errorf("params %s", got.Params)
	}
	if got.Name != `\u0000 ünï` || got.Labels["team"] != "blue" || got.Class != api.ClassLow || got.Phase != api.PhaseDelayed ||
		made.Phase != api.PhaseDelayed || got.CreatedBy != "ada" || got.Spec.Requests["cpu"] != "100m" || *got.Spec.RunDeadline != 1.5 ||
		*got.Spec.Retry.Attempts != 4 || got.RunAt.Sub(got.CreatedAt).Round(time.Second) != time.Hour {
		t.Errorf("got %+v", got)
	}
}

func TestABatchIsAllOrNothing(t *testing.T) {
	w := newTown(t)
	keyed := func(key, cmd string) string {
		return `{"idempotency_key":"` + key + `",` + strings.Replace(hello, "echo", cmd, 1)[1:]
	}
	made := must[api.BatchResult](w, w.send("ada", "POST", "/v1/tasks:batch", `{"tasks":[`+keyed("a", "echo")+`,`+keyed("b", "echo")+`]}`), 201)
	p := must[api.Problem](w, w.send("ada", "POST", "/v1/tasks:batch", `{"tasks":[`+keyed("c", "echo")+`,`+keyed("b", "cat")+`]}`), 409)
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "/tasks/1/idempotency_key" || p.Errors[0].Task != made.Items[1].ID {
		t.Errorf("conflict: %+v", p)
	}
	again := must[api.BatchResult](w, w.send("ada", "POST", "/v1/tasks:batch", `{"tasks":[`+keyed("b", "echo")+`,`+keyed("d", "echo")+`]}`), 201)
	if again.Items[0].Result != api.ResultRepeated || again.Items[0].ID != made.Items[1].ID || again.Items[1].Result != api.ResultCreated {
		t.Errorf("mixed: %+v", again)
	}
	bad := must[api.Problem](w, w.send("ada", "POST", "/v1/tasks:batch", `{"tasks":[`+keyed("e", "echo")+`,{"queue":"nowhere",`+hello[1:]+`]}`), 422)
	if len(bad.Errors) != 1 || bad.Errors[0].Pointer != "/tasks/1/queue" {
		t.Errorf("no queue: %+v", bad)
	}
	if list := must[api.TaskPage](w, w.send("ada", "GET", "/v1/tasks", ""), 200); len(list.Items) != 3 {
		t.Errorf("%d tasks are there, want 3", len(list.Items))
	}
}

func TestPagesAreStableWhileTasksAreInserted(t *testing.T) {
	w := newTown(t)
	for range 7 {
		must[api.Task](w, w.send("ada", "POST", "/v1/tasks", hello), 201)
	}
	seen, next := map[string]bool{}, ""
	for page := 0; page == 0 || next != ""; page++ {
		path := "/v1/tasks?namespace=shop&limit=3"
		if next != "" {
			path += "&cursor=" + next
		}
		got := must[api.TaskPage](w, w.send("ada", "GET", path, ""), 200)
		for _, item := range got.Items {
			if seen[item.ID] {
				t.Errorf("task %s twice", item.ID)
			}
			seen[item.ID] = true
		}
		next = got.Next
		must[api.Task](w, w.send("ada", "POST", "/v1/tasks", hello), 201)
	}
	if len(seen) != 7 {
		t.Errorf("%d tasks seen, want 7", len(seen))
	}
	must[api.Problem](w, w.send("ada", "GET", "/v1/tasks?cursor=AAAA", ""), 400)
	must[api.TaskPage](w, w.send("ada", "GET", "/v1/tasks?state=queued&kind=command.run&label=a=b&queue=default&created_after=2020-01-01T00:00:00Z", ""), 200)
}

func TestCancelOfAQueuedTaskIsDoneAtOnceAndMayBeRepeated(t *testing.T) {
	w := newTown(t)
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", hello), 201)
	for range 2 {
		got := must[api.Task](w, w.send("bob", "POST", "/v1/tasks/"+made.ID+"/cancel", `{"note":"no"}`), 200)
		if got.State != api.StateCanceled || got.CancelBy != "bob" {
			t.Errorf("got %+v", got)
		}
	}
	events := must[api.EventPage](w, w.send("ada", "GET", "/v1/tasks/"+made.ID+"/events?limit=1", ""), 200)
	more := must[api.EventPage](w, w.send("ada", "GET", "/v1/tasks/"+made.ID+"/events?after="+events.Next, ""), 200)
	if len(events.Items) != 1 || len(more.Items) == 0 || more.Items[0].Position == events.Items[0].Position {
		t.Errorf("events %+v, then %+v", events, more)
	}
	must[api.Problem](w, w.send("ada", "GET", "/v1/tasks/00000000-0000-7000-8000-000000000000", ""), 404)
	must[api.Problem](w, w.send("ada", "POST", "/v1/tasks/00000000-0000-7000-8000-000000000000/cancel", ""), 404)
}

// claim takes the Attempt of the one queued Task and gives its labels to the pod.
func (w *town) claim() task.Attempt {
	w.Helper()
	r, err := w.store.Claim(w.Context(), "default", 1)
	if err != nil || len(r.Claims) != 1 {
		w.Fatalf("claim: %+v, %v", r, err)
	}
	a := r.Claims[0].Attempt
	w.city.labels = kube.PodLabels{TaskID: r.Claims[0].Task.ID, Attempt: a.ID, Fence: a.Fence}
	return a
}

func TestTheRunnerProtocolOverARealStore(t *testing.T) {
	w := newTown(t)
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", hello), 201)
	a := w.claim()
	ids := fmt.Sprintf(`{"attempt":%d,"fence":%d`, a.ID, a.Fence)
	must[api.Problem](w, w.send("pod-of-bank", "POST", "/v1/runner/start", ids+`}`), 403)
	must[api.Problem](w, w.send("ada", "POST", "/v1/runner/start", ids+`}`), 401)
	begun := must[api.StartAnswer](w, w.send("pod-of-shop", "POST", "/v1/runner/start", ids+`}`), 200)
	if begun.TaskID != made.ID || !bytes.Contains(begun.Params, []byte(`\\u0000`)) {
		t.Errorf("start: %+v %s", begun, begun.Params)
	}
	must[api.StartAnswer](w, w.send("pod-of-shop", "POST", "/v1/runner/start", ids+`}`), 200)
	in := ids + `,"pod_uid":"uid-pod-of-shop"`
	beat := must[api.HeartbeatAnswer](w, w.send(begun.SessionKey, "POST", "/v1/runner/heartbeat", in+`,"progress":{"done":1,"total":2}}`), 200)
	if beat.Cancel || beat.SecondsLeft < 3500 {
		t.Errorf("beat: %+v", beat)
	}
	must[api.Task](w, w.send("ada", "POST", "/v1/tasks/"+made.ID+"/cancel", ""), 202)
	if beat = must[api.HeartbeatAnswer](w, w.send(begun.SessionKey, "POST", "/v1/runner/heartbeat", in+`}`), 200); !beat.Cancel {
		t.Errorf("beat after cancel: %+v", beat)
	}
	finish := in + `,"outcome":"succeeded","message":"a\u0000b","result":{"n":"\ud800"},"log_tail":"` + "bGFzdCB3b3Jkcwo=" + `"}`
	for range 2 {
		must[struct{}](w, w.send(begun.SessionKey, "POST", "/v1/runner/finish", finish), 204)
	}
	if _, err := w.store.Finish(t.Context(), a.ID, a.Fence, task.Verdict{Stop: task.StopCancel, Outcome: task.OutcomeCanceled, Reason: task.ReasonCanceled, Started: true}, store.Ending{}); err != nil {
		t.Fatal(err)
	}
	got := must[api.Task](w, w.send("ada", "GET", "/v1/tasks/"+made.ID, ""), 200)
	if got.State != api.StateCanceled || got.Attempt == nil || got.Attempt.LateReport == nil || got.Attempt.LateReport.Message != "a\ufffdb" ||
		got.Attempt.Stop == nil || got.Progress == nil || got.Progress.Total != 2 {
		t.Errorf("got %+v, attempt %+v", got, got.Attempt)
	}
	must[api.Problem](w, w.send(begun.SessionKey, "POST", "/v1/runner/heartbeat", in+`}`), 409)
	must[api.Problem](w, w.send("pod-of-shop", "POST", "/v1/runner/start", ids+`}`), 409)
	log := w.send("ada", "GET", "/v1/tasks/"+made.ID+"/logs?attempt=1", "")
	if log.Code != 200 || log.Body.String() != "last words\n" || log.Header().Get("Slipway-Log-Source") != "kept" {
		t.Errorf("log: %d %s", log.Code, log.Body)
	}
	if attempts := must[api.AttemptList](w, w.send("ada", "GET", "/v1/tasks/"+made.ID+"/attempts", ""), 200); len(attempts.Items) != 1 {
		t.Errorf("attempts %+v", attempts)
	}
}
