package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func resizeOf(pvc, size string) string {
	return fmt.Sprintf(`{"kind":"volume.resize","namespace":"shop","params":{"pvc":%q,"size":%q}}`, pvc, size)
}

func TestARequestThatPassesTheLimitOfStorageIsRefusedWithTheNumbers(t *testing.T) {
	w := newTown(t)
	first := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", resizeOf("a", "1Ti")), 201) // nobody reads claims without a limit
	must[api.Task](w, w.send("ada", "POST", "/v1/tasks/"+first.ID+"/cancel", ""), 200)
	w.city.use.Store("shop", map[string]int64{"a": 2 << 30, "b": 1 << 30})
	must[api.LimitList](w, w.send("olga", "PUT", "/v1/limits/shop", `{"storage":"10Gi"}`), 200)
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", resizeOf("a", "5Gi"), "Idempotency-Key", "k"), 201)
	refused := func(what string, p api.Problem, pointer string) {
		t.Helper()
		want := "asks for 5Gi more than namespace shop has room for within its limit of storage: the limit is 10Gi, in use are 3Gi, tasks have reserved 3Gi more"
		if len(p.Errors) != 1 || p.Errors[0].Pointer != pointer || p.Errors[0].Reason != want {
			t.Errorf("%s: %+v", what, p)
		}
	}
	refused("a submit", must[api.Problem](w, w.send("ada", "POST", "/v1/tasks", resizeOf("b", "6Gi")), 422), "/params/size")
	refused("a dry run", must[api.Problem](w, w.send("ada", "POST", "/v1/tasks?dry_run=true", resizeOf("b", "6Gi")), 422), "/params/size")
	refused("a batch", must[api.Problem](w, w.send("ada", "POST", "/v1/tasks:batch", `{"tasks":[`+resizeOf("a", "1Gi")+`,`+resizeOf("b", "6Gi")+`]}`), 422), "/tasks/1/params/size")
	refused("a child", must[api.Problem](w, w.send("ada", "POST", "/v1/tasks", `{"kind":"group","namespace":"shop","children":[`+resizeOf("b", "6Gi")+`]}`), 422), "/children/0/params/size")
	refused("a retry", must[api.Problem](w, w.send("ada", "POST", "/v1/tasks/"+w.ended("b", "6Gi")+"/retry", ""), 422), "/params/size")
	shown := must[api.LimitList](w, w.send("ada", "GET", "/v1/limits/shop", ""), 200).Storage
	if shown == nil || shown.Limit != "10Gi" || shown.InUse != "3Gi" || shown.Reserved != "3Gi" || shown.Open != 1 || shown.Tasks[0].Task != made.ID {
		t.Errorf("%+v", shown)
	}
	w.city.use.Store("shop", task.ErrUnavailable)
	if a := w.send("ada", "POST", "/v1/tasks", resizeOf("b", "2Gi")); a.Code != 503 || a.Header().Get("Retry-After") == "" {
		t.Errorf("the cluster is away: %d %s", a.Code, a.Body)
	}
	if again := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", resizeOf("a", "5Gi"), "Idempotency-Key", "k"), 200); again.ID != made.ID {
		t.Errorf("a repeat is %s", again.ID)
	}
	must[api.Task](w, w.send("ada", "POST", "/v1/tasks", hello), 201)
	must[api.Task](w, w.send("ada", "POST", "/v1/tasks/"+made.ID+"/cancel", ""), 200)
	w.city.use.Store("shop", map[string]int64{"a": 2 << 30, "b": 1 << 30})
	must[api.Task](w, w.send("ada", "POST", "/v1/tasks", resizeOf("b", "8192Mi")), 201)
}

// ended gives a resize that was taken in without a limit and canceled.
func (w *town) ended(pvc, size string) string {
	w.Helper()
	was := must[api.LimitList](w, w.send("olga", "GET", "/v1/limits/shop", ""), 200).Storage.Limit
	must[api.LimitList](w, w.send("olga", "PUT", "/v1/limits/shop", `{"storage":null}`), 200)
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", resizeOf(pvc, size)), 201)
	must[api.Task](w, w.send("ada", "POST", "/v1/tasks/"+made.ID+"/cancel", ""), 200)
	must[api.LimitList](w, w.send("olga", "PUT", "/v1/limits/shop", `{"storage":"`+was+`"}`), 200)
	return made.ID
}

func TestAFireThatPassesTheLimitOfStorageIsRefusedInItsLedger(t *testing.T) {
	w := newClocked(t, "2026-06-01T10:00:00Z")
	made := must[api.Schedule](w.town, w.send("ada", "POST", "/v1/schedules",
		`{"namespace":"shop","name":"s","every":"1h","overlap":"allow","template":{"kind":"volume.resize","params":{"pvc":"a","size":"6Gi"}}}`), 201)
	w.city.use.Store("shop", map[string]int64{"a": 2 << 30})
	must[api.LimitList](w.town, w.send("olga", "PUT", "/v1/limits/shop", `{"storage":"5Gi"}`), 200)
	const why = "/params/size: asks for 4Gi more than namespace shop has room for"
	p := must[api.Problem](w.town, w.send("ada", "POST", "/v1/schedules/"+made.ID+"/run", ""), 409)
	if !strings.Contains(p.Detail, why) {
		t.Errorf("by hand: %+v", p)
	}
	w.advance(time.Hour)
	w.fire()
	fires := must[api.FirePage](w.town, w.send("ada", "GET", "/v1/schedules/"+made.ID+"/fires", ""), 200)
	if len(fires.Items) != 2 || fires.Items[0].Outcome != "refused" || !strings.HasPrefix(fires.Items[0].Why, why) {
		t.Errorf("by the clock: %+v", fires.Items)
	}
	must[api.LimitList](w.town, w.send("olga", "PUT", "/v1/limits/shop", `{"storage":"6Gi"}`), 200)
	w.advance(time.Hour)
	w.fire()
	if now := must[api.Schedule](w.town, w.send("ada", "GET", "/v1/schedules/"+made.ID, ""), 200); now.LastTask == "" {
		t.Error("it did not fire once there was room")
	}
}
