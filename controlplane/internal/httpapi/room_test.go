package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func resize(namespace, pvc, size string) string {
	return fmt.Sprintf(`{"kind":"volume.resize","namespace":%q,"params":{"pvc":%q,"size":%q}}`, namespace, pvc, size)
}

func TestTheClaimsAreReadOnceForEachNamespaceWithALimitAndForNoOther(t *testing.T) {
	r := newRig(t)
	r.storage["shop"], r.use = 100<<30, map[string]int64{"data": 1 << 30}
	group := `{"kind":"group","namespace":"free","children":[` + resize("shop", "c", "2Gi") + `,` + resize("free", "d", "3Gi") + `]}`
	if w := r.send(batch(resize("shop", "a", "1Gi"), resize("shop", "b", "1024Mi"), resize("free", "a", "1Ei"), good, group)); w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if fmt.Sprint(r.measured) != "[shop]" {
		t.Errorf("the claims of %v were read", r.measured)
	}
	items := r.submitted[0].Items
	for i, want := range []task.Growth{{Claim: "a", Bytes: 1 << 30}, {Claim: "b", Bytes: 1 << 30}, {Claim: "a", Bytes: 1 << 60}} {
		limited := items[i].Task.Namespace == "shop"
		if g := items[i].Growth; g == nil || *g != want || (items[i].Storage != nil) != limited || limited && items[i].Storage.Claims["data"] != 1<<30 {
			t.Errorf("item %d: %+v %+v", i, items[i].Growth, items[i].Storage)
		}
	}
	if c := items[4].Children; items[3].Growth != nil || c[0].Storage == nil || c[0].Growth.Bytes != 2<<30 || c[1].Storage != nil || c[1].Growth.Bytes != 3<<30 {
		t.Errorf("the group: %+v", c)
	}
}

func TestAResizeThatCannotBeHeldAgainstItsLimitIsNotTaken(t *testing.T) {
	for what, tc := range map[string]struct {
		err    error
		status int
	}{
		"the cluster is away":             {task.ErrUnavailable, 503},
		"the claims are not ours to read": {errForTest, 422},
	} {
		r := newRig(t)
		r.storage["shop"], r.useErr = 100, tc.err
		for _, q := range []request{submit(resize("shop", "a", "1")), batch(resize("shop", "a", "1")), dry(resize("shop", "a", "1"))} {
			w := r.send(q)
			p := r.problem(w, tc.status)
			if tc.status == 422 && (len(p.Errors) != 1 || !strings.HasSuffix(p.Errors[0].Pointer, "/params/size")) || tc.status == 503 && w.Header().Get("Retry-After") == "" {
				t.Errorf("%s, %s: %+v", what, q.path, p)
			}
		}
		if w := r.send(submit(resize("free", "a", "1"))); w.Code != 201 {
			t.Errorf("%s: a namespace without a limit: %d", what, w.Code)
		}
		r.done = []Accepted{{Task: task.Task{ID: taskID}, Result: api.ResultRepeated}}
		if w := r.send(submit(resize("shop", "a", "1"), "Idempotency-Key", "k")); w.Code != http.StatusOK {
			t.Errorf("%s: a repeat: %d %s", what, w.Code, w.Body)
		}
	}
}

func TestOfManyRetriesThoseWithoutRoomAreRefusedAndTheOthersRun(t *testing.T) {
	r := newRig(t)
	r.many = someEnded(3, "shop")
	r.change = func(old *task.Task) {
		old.Kind, old.Params, old.Mode = "volume.resize", []byte(`{"pvc":"a","size":"1Gi"}`), task.Strict
		old.Lane, old.Queue, old.Spec = "volume:shop/a", "volume", task.DefaultSpec()
	}
	r.storage["shop"], r.use = 1, map[string]int64{}
	r.refuse = []error{&RefusedError{Items: []ItemError{{Item: 1, Pointer: "/params/size", Reason: "asks for more"}}}}
	done := decode[api.ManyResult](t, r.send(retryMany(`{"filter":{"kind":"volume.resize"},"expected_count":3}`, "")))
	refused := 0
	for _, item := range done.Items {
		if item.Result == api.ManyRefused {
			refused++
			if item.ID != r.many[1].ID || item.Reason != "/params/size: asks for more" {
				t.Errorf("%+v", item)
			}
		}
	}
	if refused != 1 || len(done.Items) != 3 || len(r.submitted) != 1 || len(r.submitted[0].Items) != 2 || r.submitted[0].Items[0].Storage == nil {
		t.Errorf("%+v", done.Items)
	}
	r.useErr = errForTest
	done = decode[api.ManyResult](t, r.send(retryMany(`{"filter":{"kind":"volume.resize"},"expected_count":3}`, "")))
	for _, item := range done.Items {
		if item.Result != api.ManyRefused || !strings.Contains(item.Reason, "cannot be held against the limit") {
			t.Errorf("unreadable: %+v", item)
		}
	}
}

func TestTheLimitOfStorageIsSetAndShownWithWhatIsKnown(t *testing.T) {
	r := newRig(t)
	set := func(body string) request {
		return request{method: "PUT", path: "/v1/limits/shop", token: "admin", body: body}
	}
	get := request{method: "GET", path: "/v1/limits/shop", token: "admin"}
	if l := decode[api.LimitList](t, r.send(get)); l.Storage != nil || len(r.measured) != 0 {
		t.Errorf("without a limit: %+v, read %v", l.Storage, r.measured)
	}
	r.use = map[string]int64{"a": 1 << 30, "b": 2 << 30}
	r.reserved = []ReservationView{{taskID, "a", 3 << 30}, {endedID, "a", 2 << 30}, {absentID, "b", 1 << 30}}
	l := decode[api.LimitList](t, r.send(set(`{"storage":"10240Mi"}`)))
	if s := l.Storage; s == nil || s.Limit != "10Gi" || s.InUse != "3Gi" || s.Reserved != "2Gi" || s.Open != 3 || len(s.Tasks) != 3 ||
		s.Tasks[0] != (api.StorageReservation{Task: taskID, Pvc: "a", Size: "3Gi"}) || s.Note != "" {
		t.Errorf("%+v", s)
	}
	for what, err := range map[string]error{"has no cluster": ErrNoCluster, "cannot be reached": task.ErrUnavailable, "enabling": errForTest} {
		r.useErr = err
		if s := decode[api.LimitList](t, r.send(get)).Storage; s == nil || s.Limit != "10Gi" || s.InUse != "" || s.Reserved != "" || !strings.Contains(s.Note, what) {
			t.Errorf("%s: %+v", what, s)
		}
	}
	if l := decode[api.LimitList](t, r.send(set(`{"storage":null}`))); l.Storage != nil {
		t.Errorf("taken away: %+v", l.Storage)
	}
	if l := decode[api.LimitList](t, r.send(set(`{"storage":"0"}`))); l.Storage == nil || l.Storage.Limit != "0" {
		t.Errorf("nothing at all: %+v", l.Storage)
	}
	for body, status := range map[string]int{
		`{}`: 400, `{"storage":5}`: 400, `{"storage":""}`: 400, `{"storage":"1Gi","x":1}`: 400, `{"storage":"-1Gi"}`: 422, `{"storage":"2Ei"}`: 422,
		`{"storage":"lots"}`: 422, `{"storage":"1e999999999"}`: 422,
	} {
		if p := r.problem(r.send(set(body)), status); status == 422 && pointers(p) != "/storage" {
			t.Errorf("%s: %+v", body, p)
		}
	}
}
