package app

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/api"
)

// ownTown is a town that knows the kinds of upkeep, and has its schedules.
func ownTown(t *testing.T) (*town, plane) {
	t.Helper()
	s := pgtest.New(t)
	all, err := kinds.WithBuiltIn(kinds.Upkeep("ops")...)
	if err != nil {
		t.Fatal(err)
	}
	p := plane{config: Config{Upkeep: "ops"}, log: quiet, store: s, kinds: all}
	for range 2 { // two starts
		if err := p.ensureUpkeep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return townOver(t, s, all), p
}

func (w *town) own(name string) api.Schedule {
	w.Helper()
	page := must[api.SchedulePage](w, w.send("ada", "GET", "/v1/schedules?namespace=ops&name="+name, ""), 200)
	if len(page.Items) != 1 {
		w.Fatalf("%d schedules %s", len(page.Items), name)
	}
	return page.Items[0]
}

func TestUpkeepIsMadeOfOrdinarySchedulesThatAreOnByDefault(t *testing.T) {
	w, p := ownTown(t)
	all := must[api.SchedulePage](w, w.send("ada", "GET", "/v1/schedules", ""), 200)
	if len(all.Items) != 2 {
		t.Fatalf("%d schedules after two starts", len(all.Items))
	}
	for _, s := range all.Items {
		if !s.Enabled || !s.Healthy || s.NextAt.IsZero() || s.ExpectSuccessWithin == 0 {
			t.Errorf("%s: %+v", s.Name, s)
		}
	}
	retention := w.own("slipway-retention")
	w.city.denied.Store("mallory", true)
	must[api.Problem](w, w.send("mallory", "POST", "/v1/schedules/"+retention.ID+"/run", ""), 404)
	fire := must[api.Fire](w, w.send("ada", "POST", "/v1/schedules/"+retention.ID+"/run", ""), 201) // by nobody's rights but its own
	made := must[api.Task](w, w.send("ada", "GET", "/v1/tasks/"+fire.Task, ""), 200)
	if made.Kind != kinds.Retention || made.Queue != "maintenance" || made.CreatedBy != "schedule:ops/slipway-retention" {
		t.Errorf("its task: %+v", made)
	}
	must[api.Schedule](w, w.send("ada", "PATCH", "/v1/schedules/"+retention.ID, `{"template":{"params":{"succeeded":3600}},"enabled":false}`), 200)
	if err := p.ensureUpkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := w.own("slipway-retention"); now.Enabled || now.ChangedBy != "ada" || !strings.Contains(string(now.Template.Params), "3600") {
		t.Errorf("the next start has changed it: %+v", now)
	}
	must[struct{}](w, w.send("ada", "DELETE", "/v1/schedules/"+retention.ID, ""), 204)
	if err := p.ensureUpkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.own("slipway-retention")
}

func TestUpkeepCanBeAskedForInItsOwnNamespaceAloneAndNotAsAJob(t *testing.T) {
	w, _ := ownTown(t)
	for body, pointer := range map[string]string{
		`{"kind":"slipway.retention","namespace":"shop"}`:                              "/namespace",
		`{"kind":"slipway.retention","namespace":"ops","params":{"succeeded":0}}`:      "/params/succeeded",
		`{"kind":"slipway.retention","namespace":"ops","params":{"events":1e300}}`:     "/params/events",
		`{"kind":"slipway.retention","namespace":"ops","params":{"colour":1}}`:         "/params/colour",
		`{"kind":"slipway.retention","namespace":"ops","spec":{"run_deadline":3600}}`:  "/spec/run_deadline",
		`{"kind":"slipway.check","namespace":"ops","params":{"repair":"yes"}}`:         "/params/repair",
		`{"kind":"slipway.check","namespace":"ops","lane":"volume:ops/a","params":{}}`: "/lane",
	} {
		if p := must[api.Problem](w, w.send("ada", "POST", "/v1/tasks", body), 422); len(p.Errors) == 0 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v", body, p)
		}
	}
	must[api.Problem](w, w.send("ada", "PATCH", "/v1/kinds/slipway.retention", `{"executor":"job"}`), 422)
	must[api.Kind](w, w.send("ada", "PATCH", "/v1/kinds/slipway.retention", `{"executor":"off"}`), 200)
}

// A control plane without a cluster runs its upkeep as one with a cluster does.
func TestTheControlPlaneRunsItsOwnUpkeep(t *testing.T) {
	url := pgtest.URL(t)
	s := pgtest.Open(t, store.Config{URL: url, Replica: "looks on"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	at := make(chan string, 1)
	go func() {
		ended <- RunLocal(ctx, Local{DatabaseURL: url, Listen: "127.0.0.1:0", Token: "t", Ready: func(a string) { at <- a }}, api.Version{}, quiet)
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	address := <-at
	call := func(method, path string, want int, into any) bool {
		t.Helper()
		q, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer t")
		q.Close = true
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		if a.StatusCode != want {
			return false
		}
		return json.NewDecoder(a.Body).Decode(into) == nil
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for began := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("waited a minute for %s", what)
			}
		}
	}
	if err := pgtest.Exec(ctx, url, `INSERT INTO slipway.lanes (key, queue, namespace, kind, fence, head) VALUES ('volume:ops/wrong', 'volume', 'ops', 'x', 1, 42)`); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{"slipway-retention": `"idle_lanes_looked_at":true`, "slipway-check": `"repaired":`} {
		var page api.SchedulePage
		until(name, func() bool {
			return call("GET", "/v1/schedules?namespace=slipway-system&name="+name, 200, &page) && len(page.Items) == 1
		})
		var fire api.Fire
		if !call("POST", "/v1/schedules/"+page.Items[0].ID+"/run", 201, &fire) {
			t.Fatalf("%s does not run", name)
		}
		var made api.Task
		until(name+" to end", func() bool {
			return call("GET", "/v1/tasks/"+fire.Task, 200, &made) && made.State != "queued" && made.State != "running"
		})
		if made.State != api.StateSucceeded || !strings.Contains(strings.ReplaceAll(string(made.Result), " ", ""), says) {
			t.Errorf("%s: %s %s %s", name, made.State, made.Message, made.Result)
		}
	}
	if c, err := s.CheckLanes(ctx, "", 100); err != nil || len(c.Differences) > 0 {
		t.Errorf("lanes after the check: %+v, %v", c, err)
	}
}
