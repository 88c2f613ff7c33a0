package httpapi

import (
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func TestAFreezeSaysWhereWhyAndForHowLong(t *testing.T) {
	r := newRig(t)
	made := decode[api.Freeze](t, r.send(request{method: "POST", path: "/v1/freezes", token: "admin", body: `{"queue":"default","reason":"moving","seconds":90}`}))
	if made.ID != 8 || made.Actor != "admin" || made.Reason != "moving" || made.ExpiresAt.Unix() != 91 || !slices.Contains(r.edits, "freeze /default by admin: moving") {
		t.Errorf("made %+v by %v", made, r.edits)
	}
	for body, status := range map[string]int{
		`{}`: 400, `{"seconds":60}`: 400, `{"reason":"","seconds":60}`: 400, `{"reason":"x"}`: 400, `{"reason":"x","seconds":0}`: 400,
		`{"reason":"x","seconds":2592001}`: 400, `{"reason":"x","seconds":60,"actor":"eve"}`: 400, `{"reason":"x","seconds":60,"namespace":"A"}`: 400,
		`{"reason":"x","seconds":60,"queue":"none"}`: 422,
	} {
		r.problem(r.send(request{method: "POST", path: "/v1/freezes", token: "admin", body: body}), status)
	}
	if len(r.edits) != 1 {
		t.Errorf("bad ones were stored: %v", r.edits)
	}
}

func TestANamespaceSeesTheFreezesThatHoldForIt(t *testing.T) {
	r := newRig(t)
	ids := func(path, token string) (all []int64) {
		for _, f := range decode[api.FreezeList](t, r.send(request{method: "GET", path: path, token: token})).Items {
			all = append(all, f.ID)
		}
		return all
	}
	if got := ids("/v1/freezes?namespace=shop", "viewer"); !slices.Equal(got, []int64{7, 5}) {
		t.Errorf("of shop: %v", got)
	}
	if got := ids("/v1/freezes", "admin"); !slices.Equal(got, []int64{7, 6, 5}) {
		t.Errorf("all: %v", got)
	}
	r.problem(r.send(request{method: "GET", path: "/v1/freezes", token: "viewer"}), 403)
	r.problem(r.send(request{method: "DELETE", path: "/v1/freezes/6", token: "viewer"}), 404) // of another namespace
	r.problem(r.send(request{method: "DELETE", path: "/v1/freezes/99", token: "admin"}), 404)
	r.problem(r.send(request{method: "DELETE", path: "/v1/freezes/x", token: "admin"}), 400)
	r.rights["shopkeeper"] = roleIn("shop", "get freezes.slipway.dev", "create freezes.slipway.dev", "delete freezes.slipway.dev")
	if w := r.send(request{method: "DELETE", path: "/v1/freezes/7", token: "shopkeeper"}); w.Code != 204 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	r.problem(r.send(request{method: "DELETE", path: "/v1/freezes/5", token: "shopkeeper"}), 404) // it holds everywhere
	r.problem(r.send(request{method: "POST", path: "/v1/freezes", token: "shopkeeper", body: `{"reason":"x","seconds":60}`}), 403)
}

func TestACheckOfLanesRepairsOnlyWhenToldTo(t *testing.T) {
	r := newRig(t)
	look := decode[api.LaneCheck](t, r.send(request{method: "POST", path: "/v1/lanes:check", token: "admin"}))
	if look.Checked != 2 || look.Next != "volume:shop/b" || len(look.Differences) != 3 || len(r.edits) != 0 || r.checked[0] != " 500" {
		t.Errorf("look %+v, asked %v, changed %v", look, r.checked, r.edits)
	}
	done := decode[api.LaneCheck](t, r.send(request{method: "POST", path: "/v1/lanes:check", token: "admin", body: `{"repair":true,"after":"a","limit":3}`}))
	if len(done.Differences) != 2 || !done.Differences[1].Repaired || r.checked[1] != "a 3" ||
		strings.Join(r.edits, ", ") != "repair volume:shop/a by admin, repair volume:shop/b by admin" {
		t.Errorf("done %+v, asked %v, changed %v", done, r.checked, r.edits)
	}
	r.rights["seer"] = []string{"list lanes.slipway.dev in all namespaces"}
	if w := r.send(request{method: "POST", path: "/v1/lanes:check", token: "seer"}); w.Code != 200 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	r.problem(r.send(request{method: "POST", path: "/v1/lanes:check", token: "seer", body: `{"repair":true}`}), 403)
}

func TestALaneIsTakenByForceOnlyWithAReasonAndFromAHolder(t *testing.T) {
	r := newRig(t)
	const path = "/v1/lanes:force-release"
	done := decode[api.ForceReleased](t, r.send(request{method: "POST", path: path, token: "admin", body: `{"key":"volume:shop/a","reason":"its node burns"}`}))
	if done.Task != taskID || done.Reason != "force_released" || done.Fence != 9 || done.MayStillRun == nil ||
		r.edits[0] != "force-release volume:shop/a by admin: its node burns" {
		t.Errorf("done %+v, changed %v", done, r.edits)
	}
	for _, body := range []string{`{}`, `{"key":"volume:shop/a"}`, `{"key":"volume:shop/a","reason":""}`, `{"key":"a","reason":"x"}`} {
		r.problem(r.send(request{method: "POST", path: path, token: "admin", body: body}), 400)
	}
	r.editErr = &HinderedError{Reason: "not_held"}
	r.problem(r.send(request{method: "POST", path: path, token: "admin", body: `{"key":"volume:shop/a","reason":"x"}`}), 409)
	r.editErr = &HinderedError{Task: taskID, State: task.Running, Reason: "composite"}
	if p := r.problem(r.send(request{method: "POST", path: path, token: "admin", body: `{"key":"volume:shop/a","reason":"x"}`}), 409); p.Task != taskID {
		t.Errorf("%+v", p)
	}
}
