package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/httpapi"
	"slipway.dev/slipway/pkg/api"
)

const eachTemplate = `{"kind":"volume.snapshot.each","params":{"selector":"app=shop","rule":"default","spread":0}}`

func TestAFireSnapshotsEachVolumeThatItsSelectorMatchesThen(t *testing.T) {
	w := newClocked(t, "2026-06-01T10:00:00Z")
	made := must[api.Schedule](w.town, w.send("ada", "POST", "/v1/schedules",
		`{"namespace":"shop","name":"s","every":"1h","overlap":"allow","template":`+eachTemplate+`}`), 201) // before there is a volume
	run := func() api.Fire {
		return must[api.Fire](w.town, w.send("ada", "POST", "/v1/schedules/"+made.ID+"/run", ""), 201)
	}
	p := must[api.Problem](w.town, w.send("ada", "POST", "/v1/schedules/"+made.ID+"/run", ""), http.StatusConflict)
	if !strings.Contains(p.Detail, "matches no bound PersistentVolumeClaim of namespace shop") {
		t.Errorf("without a volume: %+v", p)
	}
	w.city.claims.Store("shop app=shop", []string{"a", "b"})
	task := func(id string) api.Task {
		return must[api.Task](w.town, w.send("ada", "GET", "/v1/tasks/"+id, ""), 200)
	}
	parent := task(run().Task)
	if parent.Children == nil || parent.Children.Count != 2 || parent.Children.Items[0].Kind != "volume.snapshot" || parent.Children.Items[1].Lane != "volume:shop/b" {
		t.Fatalf("%+v", parent.Children)
	}
	w.city.claims.Store("shop app=shop", []string{"a", "b", "c"})
	w.advance(time.Hour)
	w.fire()
	now := must[api.Schedule](w.town, w.send("ada", "GET", "/v1/schedules/"+made.ID, ""), 200)
	if got := task(now.LastTask); got.ID == parent.ID || got.Children == nil || got.Children.Count != 3 {
		t.Errorf("by the clock: %+v", got)
	}
}

func TestASubmitSnapshotsEachVolumeThatItsSelectorMatches(t *testing.T) {
	w := newTown(t)
	body := `{"namespace":"shop",` + eachTemplate[1:]
	if p := must[api.Problem](w, w.send("ada", "POST", "/v1/tasks", body), http.StatusUnprocessableEntity); p.Errors[0].Pointer != "/params/selector" {
		t.Errorf("%+v", p)
	}
	w.city.claims.Store("shop app=shop", []string{"a", "b"})
	made := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", body, "Idempotency-Key", "k"), 201)
	w.city.claims.Store("shop app=shop", []string(nil))
	if again := must[api.Task](w, w.send("ada", "POST", "/v1/tasks", body, "Idempotency-Key", "k"), 200); again.ID != made.ID || again.Children.Count != 2 {
		t.Errorf("the repeat is %+v", again)
	}
}

func TestARunByHandOfAScheduleThatIsChangedMeanwhileIsRefused(t *testing.T) {
	w := newClocked(t, "2026-06-01T10:00:00Z")
	made := must[api.Schedule](w.town, w.send("ada", "POST", "/v1/schedules", `{"namespace":"shop","name":"s","every":"1h","overlap":"allow","template":`+eachTemplate+`}`), 201)
	w.city.claims.Store("shop app=shop", []string{"a"})
	read, err := w.times.Schedule(t.Context(), made.ID)
	if err != nil {
		t.Fatal(err)
	}
	must[api.Schedule](w.town, w.send("bob", "PATCH", "/v1/schedules/"+made.ID, `{"template":{"params":{"selector":"app=bank"}}}`), 200)
	w.city.claims.Store("shop app=bank", []string{"b"})
	fires, err := w.times.FireByHand(t.Context(), made.ID, httpapi.Hand{By: "ada", Revision: read.Revision}) // for what ada was let
	if err != nil || len(fires) != 1 || fires[0].Outcome != "refused" || fires[0].Task != "" || !strings.Contains(fires[0].Why, "changed meanwhile") {
		t.Errorf("%+v %v", fires, err)
	}
	must[api.Fire](w.town, w.send("ada", "POST", "/v1/schedules/"+made.ID+"/run", ""), 201)
}
