package httpapi

import (
	"testing"

	"slipway.dev/slipway/pkg/api"
)

func TestALimitOfAQueueIsKeptSetBackOrZero(t *testing.T) {
	was := QueueView{Name: "default", Cap: 5, NamespaceCap: 4, MaxQueued: 3, Rate: 2, Burst: 6}
	for body, change := range map[string]func(*QueueView){
		`{"cap":0}`:                    func(q *QueueView) { q.Cap = 0 },
		`{"cap":null}`:                 func(q *QueueView) { q.Cap = 50 },
		`{"ns_cap":null,"rate":null}`:  func(q *QueueView) { q.NamespaceCap, q.Rate = 20, 0 },
		`{"rate":0.5,"burst":null}`:    func(q *QueueView) { q.Rate, q.Burst = 0.5, 1 },
		`{"max_queued":0,"ns_cap":99}`: func(q *QueueView) { q.MaxQueued, q.NamespaceCap = 0, 99 },
		`{"max_queued":null}`:          func(q *QueueView) { q.MaxQueued = 10_000 },
	} {
		r := newRig(t)
		w := r.send(request{method: "PATCH", path: "/v1/queues/default", token: "admin", body: body})
		want := was
		change(&want)
		if w.Code != 200 || r.queue != want {
			t.Errorf("%s: got %d %+v, want %+v", body, w.Code, r.queue, want)
		}
	}
	for _, body := range []string{`{}`, `{"rate":0}`, `{"rate":-1}`, `{"cap":-1}`, `{"cap":1.5}`, `{"paused":true}`, `{"burst":0}`, `{"cap":"1"}`} {
		r := newRig(t)
		r.problem(r.send(request{method: "PATCH", path: "/v1/queues/default", token: "admin", body: body}), 400)
		if r.queue != was {
			t.Errorf("%s: changed to %+v", body, r.queue)
		}
	}
}

func TestWhoMaySeeAQueueMayNotThereforeChangeIt(t *testing.T) {
	r := newRig(t)
	r.rights["seer"] = []string{"get queues.slipway.dev default in all namespaces"}
	if w := r.send(request{method: "GET", path: "/v1/queues/default", token: "seer"}); w.Code != 200 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	p := r.problem(r.send(request{method: "POST", path: "/v1/queues/default/pause", token: "seer"}), 403)
	if p.Detail != "not allowed to patch queues.slipway.dev default in all namespaces" {
		t.Errorf("detail %q", p.Detail)
	}
	r.problem(r.send(request{method: "GET", path: "/v1/queues/none", token: "admin"}), 404)
	r.problem(r.send(request{method: "GET", path: "/v1/lanes", token: "admin"}), 400)
	r.problem(r.send(request{method: "GET", path: "/v1/lanes?key=volume:bank/a", token: "viewer"}), 404)
}

func TestAKindShowsItsDefaultsAndItsSwitch(t *testing.T) {
	r := newRig(t)
	kinds := decode[api.KindList](t, r.send(request{method: "GET", path: "/v1/kinds", token: "nobody"}))
	if len(kinds.Items) == 0 || kinds.Items[0].Name == "" || kinds.Items[0].Executor != "job" || *kinds.Items[0].Spec.Retry.Attempts != 1 ||
		*kinds.Items[0].Spec.RunDeadline != 3600 || len(kinds.Items[0].Params) == 0 {
		t.Errorf("kinds %+v", kinds)
	}
	off := decode[api.Kind](t, r.send(request{method: "PATCH", path: "/v1/kinds/command.run", token: "admin", body: `{"executor":"off","reason":"broken"}`}))
	if off.Executor != "off" || off.Switched == nil || off.Switched.By != "admin" || off.Switched.Reason != "broken" {
		t.Errorf("off: %+v", off)
	}
	back := decode[api.Kind](t, r.send(request{method: "PATCH", path: "/v1/kinds/command.run", token: "admin", body: `{"executor":null}`}))
	if back.Executor != "job" || back.Switched != nil {
		t.Errorf("back: %+v", back)
	}
	for _, body := range []string{`{}`, `{"executor":"outside"}`, `{"executor":""}`, `{"executor":"off","percent":0}`, `{"executor":"off","percent":101}`} {
		r.problem(r.send(request{method: "PATCH", path: "/v1/kinds/command.run", token: "admin", body: body}), 400)
	}
	for body, field := range map[string]string{`{"executor":"inline"}`: "/executor", `{"executor":null,"percent":50}`: "/percent"} {
		p := r.problem(r.send(request{method: "PATCH", path: "/v1/kinds/command.run", token: "admin", body: body}), 422)
		if len(p.Errors) != 1 || p.Errors[0].Pointer != field {
			t.Errorf("%s: %+v", body, p)
		}
	}
	r.kinds.AllowInline("command.run")
	part := decode[api.Kind](t, r.send(request{method: "PATCH", path: "/v1/kinds/command.run", token: "admin", body: `{"executor":"inline","percent":25}`}))
	if !part.InlineOk || part.Executor != "job" || part.Switched == nil || part.Switched.Executor != "inline" || part.Switched.Percent != 25 {
		t.Errorf("in part: %+v", part)
	}
	r.problem(r.send(request{method: "PATCH", path: "/v1/kinds/none", token: "admin", body: `{"executor":"off"}`}), 404)
}
