package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	taskID    = "0190a0b0-0000-7000-8000-000000000001"
	endedID   = "0190a0b0-0000-7000-8000-000000000002"
	absentID  = "0190a0b0-0000-7000-8000-00000000ffff"
	secretKey = "0123456789abcdef0123456789abcdef"
	good      = `{"kind":"command.run","namespace":"shop","params":{"command":["true"]}}`
)

// backend plays everything below the edge. Tokens are names; rights are a list of texts as Access writes them.
type backend struct {
	mu     sync.Mutex
	rights map[string][]string // user → accesses; "*" is all
	fail   error               // from the store
	done   []Accepted          // what Repeated knows; nil: nothing
	result api.BatchItemResult // what Submit answers; created where empty

	submitted []Submission
	against   func(task.Task) (map[string]string, error)
	claims    func(namespace, selector string) ([]string, error)
	filters   []Filter
	audits    []AuditFilter
	reports   []Report
	beats     []Beat
	canceled  []string
	tried     []task.Task
	takes     func(task.Task) error
	edits     []string
	changes   []Change
	origins   []Origin

	log      io.ReadCloser
	logErr   error
	attempts []task.Attempt
	task     task.Task
	carries  error

	children   []Listed // of the ended Task
	unforeseen error

	many   []Picked // what Pick finds; nil: one Task
	change func(*task.Task)
	pins   map[string][]Picked
	refuse []error // of the Submits to come

	storage  map[string]int64 // limits
	use      map[string]int64
	useErr   error
	measured []string
	reserved []ReservationView

	cancelErr error
	editErr   error
	queue     QueueView
	freezes   []FreezeView
	checked   []string
	switched  map[string]Switched
}

var errForTest = errors.New("pq: relation \"hunter2\" does not exist")

func (b *backend) User(_ context.Context, token string) (auth.Identity, error) {
	if _, known := b.rights[token]; !known {
		return auth.Identity{}, auth.ErrNoIdentity
	}
	return auth.Identity{User: token}, nil
}

func (b *backend) Runner(_ context.Context, token string) (auth.Identity, error) {
	if token != "pod" {
		return auth.Identity{}, auth.ErrNoIdentity
	}
	return auth.Identity{User: "runner", Namespace: "shop", PodName: "p", PodUID: "u", Node: "n"}, nil
}

func (b *backend) May(_ context.Context, id auth.Identity, a auth.Access) error {
	if all := b.rights[id.User]; slices.Contains(all, "*") || slices.Contains(all, a.String()) {
		return nil
	}
	return &auth.ForbiddenError{Access: a}
}

func (b *backend) Submit(_ context.Context, s Submission) ([]Accepted, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return nil, b.fail
	}
	if len(b.refuse) > 0 {
		err := b.refuse[0]
		b.refuse = b.refuse[1:]
		return nil, err
	}
	b.submitted = append(b.submitted, s)
	out := make([]Accepted, len(s.Items))
	for i, item := range s.Items {
		t := item.Task
		t.ID, t.State, t.CreatedAt, t.Seq = taskID, task.Queued, time.Unix(1, 0), 1
		out[i] = Accepted{Task: t, Result: api.ResultCreated}
		if b.result != "" {
			out[i].Result = b.result
		}
	}
	return out, nil
}

// Against says what a test wants it to say.
func (b *backend) Against(_ context.Context, t task.Task) (map[string]string, error) {
	if b.against == nil {
		return nil, nil
	}
	return b.against(t)
}

func (b *backend) Claims(_ context.Context, namespace, selector string) ([]string, error) {
	if b.claims == nil {
		return nil, nil
	}
	return b.claims(namespace, selector)
}

func (b *backend) Takes(_ context.Context, t task.Task) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tried = append(b.tried, t)
	if b.takes == nil {
		return nil
	}
	return b.takes(t)
}

func (b *backend) Repeated(context.Context, Submission) ([]Accepted, bool, error) {
	return b.done, b.done != nil, b.fail
}

func (b *backend) Find(_ context.Context, id string) (task.Task, View, error) {
	if id == endedID {
		t := b.task
		t.ID, t.State, t.Outcome, t.Children = endedID, task.Failed, task.OutcomeFailed, len(b.children)
		return t, View{Children: b.children}, b.fail
	}
	if id != b.task.ID {
		return task.Task{}, View{}, task.ErrNotFound
	}
	return b.task, View{}, b.fail
}

func (b *backend) Foresee(context.Context, task.Task, View) (task.Forecast, error) {
	return task.Forecast{P50: 1500 * time.Millisecond, P90: 4 * time.Second, Ahead: 3, Samples: 20}, errors.Join(b.fail, b.unforeseen)
}

func (b *backend) List(_ context.Context, f Filter) (Page, error) {
	b.filters = append(b.filters, f)
	return Page{Items: []Listed{{Task: b.task}}, Next: "more"}, b.fail
}

// Pick plays a store that holds the one ended Task for every filter.
func (b *backend) Pick(_ context.Context, f Filter, rule PickRule, _ int) ([]Picked, error) {
	b.filters = append(b.filters, f)
	if b.many != nil {
		return b.many, b.fail
	}
	id := endedID
	if rule == PickOpen {
		id = taskID
	}
	return []Picked{{ID: id, Namespace: "shop", Kind: "command.run"}}, b.fail
}

func (b *backend) Load(_ context.Context, ids []string) ([]task.Task, error) {
	out := make([]task.Task, len(ids))
	for i, id := range ids {
		out[i] = b.task
		out[i].ID, out[i].State = id, task.Failed
		if b.change != nil {
			b.change(&out[i])
		}
	}
	return out, b.fail
}

func (b *backend) Pinned(_ context.Context, p Pin) ([]Picked, bool, error) {
	all, ok := b.pins[p.Key]
	return all, ok, b.fail
}

func (b *backend) Keep(_ context.Context, p Pin, all []Picked) ([]Picked, error) {
	b.pins[p.Key] = all
	return all, b.fail
}

func (b *backend) Attempts(context.Context, string) ([]task.Attempt, error) {
	return b.attempts, b.fail
}

func (b *backend) Events(context.Context, string, string, int) ([]task.Event, error) {
	return []task.Event{{Position: "1-2", TaskID: taskID, Type: "created", At: time.Unix(1, 0)}}, b.fail
}

func (b *backend) Cancel(_ context.Context, id, by, note string) (task.Task, error) {
	if b.fail != nil || b.cancelErr != nil {
		return task.Task{}, errors.Join(b.fail, b.cancelErr)
	}
	b.canceled = append(b.canceled, id+" by "+by+": "+note)
	return b.task, nil
}

func (b *backend) edit(ctx context.Context, what string) error {
	b.edits, b.origins = append(b.edits, what), append(b.origins, OriginOf(ctx))
	return errors.Join(b.fail, b.editErr)
}

func (b *backend) Hold(ctx context.Context, id, by, reason string) error {
	return b.edit(ctx, "hold "+id+" by "+by+": "+reason)
}

func (b *backend) Unhold(ctx context.Context, id, by string) error {
	return b.edit(ctx, "unhold "+id+" by "+by)
}

func (b *backend) Change(ctx context.Context, id, by string, c Change) error {
	b.changes = append(b.changes, c)
	return b.edit(ctx, "change "+id+" by "+by)
}

func (b *backend) Delete(ctx context.Context, id, by string) error {
	return b.edit(ctx, "delete "+id+" by "+by)
}

func (b *backend) Queues(context.Context) ([]QueueView, error) { return []QueueView{b.queue}, b.fail }

func (b *backend) ChangeQueue(ctx context.Context, c QueueChange) error {
	c.Do(&b.queue)
	return b.edit(ctx, c.Verb+" "+c.Name+" by "+c.By)
}

func (b *backend) KindSwitches(context.Context) (map[string]Switched, error) {
	return b.switched, b.fail
}

func (b *backend) SwitchKind(ctx context.Context, kind string, to Switched) error {
	if to.Percent == 0 {
		to.Percent = 100
	}
	b.switched[kind] = to
	return b.edit(ctx, "switch "+kind+" by "+to.By)
}

func (b *backend) Lane(_ context.Context, key string) (LaneView, error) {
	return LaneView{Key: key, Queue: "default", Namespace: "shop", Kind: "volume.resize", Head: taskID, Queued: 1, Wait: task.WaitHeld}, b.fail
}

func (b *backend) Limits(context.Context, string) ([]LimitView, error) {
	return []LimitView{{Queue: "default", Cap: 5, NamespaceCap: 4, MaxQueued: 3, Queued: 2, Running: 1}}, b.fail
}

func (b *backend) StorageLimits(_ context.Context, namespaces []string) (map[string]StorageBound, error) {
	out := map[string]StorageBound{}
	for _, namespace := range namespaces {
		if bytes, limited := b.storage[namespace]; limited {
			out[namespace] = StorageBound{Bytes: bytes, At: time.Unix(1, 0)}
		}
	}
	return out, b.fail
}

func (b *backend) Reservations(context.Context, string) ([]ReservationView, error) {
	return b.reserved, b.fail
}

func (b *backend) SetStorageLimit(ctx context.Context, namespace string, bytes *int64, by string) error {
	if delete(b.storage, namespace); bytes != nil {
		b.storage[namespace] = *bytes
	}
	return b.edit(ctx, "limit "+namespace+" by "+by)
}

func (b *backend) StorageUse(_ context.Context, namespace string) (map[string]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.measured = append(b.measured, namespace)
	return b.use, b.useErr
}

func (b *backend) CheckLanes(_ context.Context, after string, limit int) (CheckView, error) {
	b.checked = append(b.checked, fmt.Sprint(after, " ", limit))
	return CheckView{Checked: 2, Next: "volume:shop/b", Differences: []DifferenceView{
		{Lane: "volume:shop/a", Field: "head"}, {Lane: "volume:shop/a", Field: "rank"}, {Lane: "volume:shop/b", Field: "row"},
	}}, b.fail
}

func (b *backend) RepairLane(ctx context.Context, key, by string) ([]DifferenceView, error) {
	return []DifferenceView{{Lane: key, Field: "head", Repaired: true}}, b.edit(ctx, "repair "+key+" by "+by)
}

func (b *backend) ForceRelease(ctx context.Context, key, by, reason string) (Released, error) {
	return Released{TaskID: taskID, State: task.Queued, Outcome: task.OutcomeLost, Reason: task.ReasonForceReleased, Number: 1, Fence: 9},
		b.edit(ctx, "force-release "+key+" by "+by+": "+reason)
}

func (b *backend) Freezes(context.Context) ([]FreezeView, error) { return b.freezes, b.fail }

func (b *backend) Freeze(ctx context.Context, f FreezeView, d time.Duration) (FreezeView, error) {
	f.ID, f.ExpiresAt = 8, time.Unix(1, 0).Add(d)
	return f, b.edit(ctx, "freeze "+f.Namespace+"/"+f.Queue+" by "+f.Actor+": "+f.Reason)
}

func (b *backend) Thaw(ctx context.Context, id int64, by string) error {
	return b.edit(ctx, fmt.Sprint("thaw ", id, " by ", by))
}

func (b *backend) Audit(_ context.Context, f AuditFilter) (ChangePage, error) {
	b.audits = append(b.audits, f)
	return ChangePage{Next: "more", Items: []Changed{{
		At: time.Unix(1, 0), Actor: "ada", Verb: "cancel", Resource: "tasks", Name: taskID, Namespace: "shop", After: json.RawMessage(`{"state":"running"}`),
	}}}, b.fail
}

func (b *backend) Open(context.Context, task.Attempt, LogRequest) (LogStream, error) {
	return LogStream{Body: b.log, Source: "live"}, b.logErr
}

func (b *backend) Carries(context.Context, auth.Identity, int64, int64) error { return b.carries }

func (b *backend) Start(_ context.Context, s Start) (task.Task, task.Attempt, error) {
	return b.task, task.Attempt{ID: s.Attempt, Number: 1, Fence: s.Fence}, b.fail
}

func (b *backend) Beat(_ context.Context, beat Beat) (BeatAnswer, error) {
	b.beats = append(b.beats, beat)
	return BeatAnswer{Cancel: true, Left: 90 * time.Second}, b.fail
}

func (b *backend) Report(_ context.Context, r Report) error {
	b.reports = append(b.reports, r)
	return b.fail
}

// What the ClusterRoles slipway-viewer and slipway-operator give, as a RoleBinding gives it.
var (
	viewerRole = []string{
		"get tasks.slipway.dev", "list tasks.slipway.dev", "get tasks/log.slipway.dev", "get lanes.slipway.dev", "get limits.slipway.dev", "get freezes.slipway.dev", "list freezes.slipway.dev",
		"get schedules.slipway.dev", "get schedules.slipway.dev nightly", "list schedules.slipway.dev", "get calendars.slipway.dev holidays", "list calendars.slipway.dev",
	}
	operatorRole = []string{
		"create tasks.slipway.dev", "patch tasks.slipway.dev", "create tasks/cancel.slipway.dev", "create tasks/retry.slipway.dev",
		"use kinds.slipway.dev command.run",
		"create schedules.slipway.dev", "patch schedules.slipway.dev nightly", "delete schedules.slipway.dev nightly", "create schedules/run.slipway.dev nightly",
		"update calendars.slipway.dev holidays", "delete calendars.slipway.dev holidays",
	}
)

func roleIn(namespace string, role ...string) []string {
	var all []string
	for _, access := range role {
		all = append(all, access+" in namespace "+namespace)
	}
	return all
}

// rig is the edge over a backend.
type rig struct {
	testing.TB
	*backend
	times    *timetable
	server   *http.Server
	kinds    *kinds.Registry
	logged   *strings.Builder
	ready    error
	degraded string
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{TB: t, kinds: kinds.BuiltIn(), logged: &strings.Builder{}, times: newTimetable(), backend: &backend{
		rights: map[string][]string{
			"admin":  {"*"},
			"nobody": {},
			"viewer": roleIn("shop", viewerRole...),
			// An operator names no program: that takes the right to create Jobs.
			"operator":         append(roleIn("shop", viewerRole...), roleIn("shop", operatorRole...)...),
			"auditor":          roleIn("shop", "list audit.slipway.dev"),
			"operator of bank": append(roleIn("bank", viewerRole...), append(roleIn("bank", operatorRole...), "create jobs.batch in namespace bank")...),
		},
		task: task.Task{
			ID: taskID, Kind: "command.run", Namespace: "shop", Mode: task.Parallel, Queue: "default", Class: task.Normal,
			State: task.Running, Params: json.RawMessage(`{"command":["true"]}`), Spec: task.DefaultSpec(), CreatedAt: time.Unix(1, 0),
		},
		attempts: []task.Attempt{{ID: 7, Number: 1, State: task.Started, ClaimedAt: time.Unix(1, 0)}},
		queue:    QueueView{Name: "default", Cap: 5, NamespaceCap: 4, MaxQueued: 3, Rate: 2, Burst: 6},
		freezes:  []FreezeView{{ID: 7, Namespace: "shop", Actor: "ada", Reason: "moving"}, {ID: 6, Namespace: "bank"}, {ID: 5, Queue: "default"}},
		switched: map[string]Switched{}, storage: map[string]int64{},
		pins: map[string][]Picked{},
		log:  io.NopCloser(strings.NewReader("hello\n")),
	}}
	r.paced(Pace{})
	return r
}

// paced makes the edge anew, with a bound for each caller.
func (r *rig) paced(p Pace) {
	r.Helper()
	b := r.backend
	server, err := New(Config{
		Gate: b, Submitter: b, Finder: b, Picker: b, History: b, Canceler: b, Holder: b, Editor: b, Queues: b, Switches: b, Standing: b, Storage: b, Freezer: b, Lanes: b, Audit: b, Logs: b, Runners: b, Pods: b, Cluster: b, Kinds: r.kinds,
		Schedules: r.times, Calendars: r.times, Timer: r.times,
		SessionKey: []byte(secretKey), Ready: func(context.Context) (string, error) { return r.degraded, r.ready },
		Pace:    p,
		Version: api.Version{Version: "test", API: "v1"},
		Log:     loggerInto(r.logged),
	})
	if err != nil {
		r.Fatal(err)
	}
	r.server = server
}

// request is one call; headers are pairs.
type request struct {
	method, path, token, body string
	headers                   []string
}

func (r *rig) send(q request) *httptest.ResponseRecorder {
	r.Helper()
	body := io.Reader(http.NoBody)
	if q.body != "" {
		body = strings.NewReader(q.body)
	}
	in := httptest.NewRequest(q.method, q.path, body)
	if q.token != "" {
		in.Header.Set("Authorization", "Bearer "+q.token)
	}
	if q.body != "" {
		in.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(q.headers); i += 2 {
		in.Header.Set(q.headers[i], q.headers[i+1])
	}
	w := httptest.NewRecorder()
	r.server.Handler.ServeHTTP(w, in)
	return w
}

// problem checks that an answer is a problem of that status and returns it.
func (r *rig) problem(w *httptest.ResponseRecorder, status int) api.Problem {
	r.Helper()
	var p api.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != status || p.Status != status ||
		w.Header().Get("Content-Type") != "application/problem+json" || p.Title == "" || p.RequestID == "" ||
		!strings.HasPrefix(p.Type, "urn:slipway:problem:") {
		r.Errorf("want a problem with status %d, got %d %s", status, w.Code, w.Body)
	}
	return p
}

func pointers(p api.Problem) string {
	all := make([]string, len(p.Errors))
	for i, f := range p.Errors {
		all[i] = f.Pointer
	}
	return strings.Join(all, " ")
}

func sessionToken(attempt, fence int64, pod string) string {
	return auth.Session{Attempt: attempt, Fence: fence, PodUID: pod}.Key([]byte(secretKey))
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("read %s: %v", w.Body, err)
	}
	return v
}
