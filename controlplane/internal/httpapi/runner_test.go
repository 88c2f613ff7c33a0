package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func runner(verb, body string) request {
	q := request{method: "POST", path: "/v1/runner/" + verb, body: body, token: sessionToken(7, 9, "u")}
	if verb == "start" {
		q.token = "pod"
	}
	return q
}

func TestStartHandsOverTheWorkAndAKeyForTheRest(t *testing.T) {
	r := newRig(t)
	w := r.send(runner("start", `{"attempt":7,"fence":9,"of_a_later_version":true}`))
	got := decode[api.StartAnswer](t, w)
	if w.Code != 200 || got.TaskID != taskID || got.SessionKey != sessionToken(7, 9, "u") || got.HeartbeatSeconds != 10 ||
		got.FenceAfterSeconds != 600 || got.RunSeconds != 3600 || got.GraceSeconds != 30 || got.AttemptNumber != 1 ||
		string(got.Params) != `{"command":["true"]}` {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestTheRunnerProtocolRefuses(t *testing.T) {
	const beat, finish = `{"attempt":7,"fence":9,"pod_uid":"u"}`, `{"attempt":7,"fence":9,"pod_uid":"u","outcome":"failed"}`
	for _, tc := range []struct {
		name, verb, body string
		carries, fail    error
		status           int
		kind             string
	}{
		{"a pod of another attempt", "start", `{"attempt":7,"fence":9}`, task.ErrNotFound, nil, 403, "wrong_pod"},
		{"a start when the cluster is away", "start", `{"attempt":7,"fence":9}`, task.ErrUnavailable, nil, 503, "unavailable"},
		{"a stale start", "start", `{"attempt":7,"fence":9}`, nil, task.ErrStale, 409, "stale"},
		{"the second pod", "start", `{"attempt":7,"fence":9}`, nil, fmt.Errorf("start: %w", task.ErrOtherPod), 409, "other_pod"},
		{"a stale beat", "heartbeat", beat, nil, task.ErrStale, 409, "stale"},
		{"a stale report", "finish", finish, nil, task.ErrStale, 409, "stale"},
		{"a beat when the database is away", "heartbeat", beat, nil, task.ErrUnavailable, 503, "unavailable"},
		{"another attempt's key", "heartbeat", `{"attempt":8,"fence":9,"pod_uid":"u"}`, nil, nil, 401, "no_identity"},
		{"another fence's key", "finish", `{"attempt":7,"fence":10,"pod_uid":"u","outcome":"failed"}`, nil, nil, 401, "no_identity"},
		{"another pod's key", "heartbeat", `{"attempt":7,"fence":9,"pod_uid":"v"}`, nil, nil, 401, "no_identity"},
		{"an unknown outcome", "finish", `{"attempt":7,"fence":9,"pod_uid":"u","outcome":"fine"}`, nil, nil, 400, "bad_request"},
		{"no fence", "heartbeat", `{"attempt":7,"pod_uid":"u"}`, nil, nil, 400, "bad_request"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.carries, r.fail = tc.carries, tc.fail
			if p := r.problem(r.send(runner(tc.verb, tc.body)), tc.status); p.Type != "urn:slipway:problem:"+tc.kind {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func TestAHeartbeatCarriesProgressAndCancel(t *testing.T) {
	r := newRig(t)
	w := r.send(runner("heartbeat", `{"attempt":7,"fence":9,"pod_uid":"u","progress":{"done":3,"total":10,"message":"copying"}}`))
	got := decode[api.HeartbeatAnswer](t, w)
	if w.Code != 200 || !got.Cancel || got.SecondsLeft != 90 || string(r.beats[0].Progress) != `{"done":3,"message":"copying","total":10}` {
		t.Errorf("got %d %s, stored %s", w.Code, w.Body, r.beats[0].Progress)
	}
	r.send(runner("heartbeat", `{"attempt":7,"fence":9,"pod_uid":"u"}`))
	if r.beats[1].Progress != nil {
		t.Errorf("no progress was stored as %s", r.beats[1].Progress)
	}
}

func TestAHeartbeatIsHeldOnlyWhereItAsks(t *testing.T) {
	r := newRig(t)
	r.send(runner("heartbeat", `{"attempt":7,"fence":9,"pod_uid":"u"}`))
	r.send(runner("heartbeat", `{"attempt":7,"fence":9,"pod_uid":"u","hold_seconds":0.001}`))
	if r.beats[0].Hold != nil || r.beats[1].Hold == nil {
		t.Fatalf("held: %v without asking, %v with", r.beats[0].Hold != nil, r.beats[1].Hold != nil)
	}
	<-r.beats[1].Hold
	for _, hold := range []string{"-1", "31", `"1"`} {
		r.problem(r.send(runner("heartbeat", `{"attempt":7,"fence":9,"pod_uid":"u","hold_seconds":`+hold+`}`)), 400)
	}
}

func TestNoHeartbeatIsHeldWhereTheFenceTimeIsShort(t *testing.T) {
	r := newRig(t)
	for fence, hold := range map[task.Seconds]float64{600: 10, 60: 10, 59: 0} {
		r.task.Spec.FenceAfter = fence
		got := decode[api.StartAnswer](t, r.send(runner("start", `{"attempt":7,"fence":9}`)))
		if got.HoldSeconds != hold {
			t.Errorf("with a fence time of %v a heartbeat may be held for %v s, want %v", fence, got.HoldSeconds, hold)
		}
	}
}

func TestAReportIsKeptWhateverItsTextsAre(t *testing.T) {
	r := newRig(t)
	tail := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 100<<10) + "the end\x00\xff"))
	message, err := json.Marshal(strings.Repeat("🚢", 260_000)) // 1 MB
	if err != nil {
		t.Fatal(err)
	}
	w := r.send(runner("finish", `{"attempt":7,"fence":9,"pod_uid":"u","outcome":"failed","reason":"bad \u0000 reason","message":`+string(message)+
		`,"exit_code":3,"retry_after":1.5,"result":{"a":"\u0000","n":12345678901234567890},"log_tail":"`+tail+`","later":1}`))
	if w.Code != 204 || w.Body.Len() != 0 {
		t.Fatalf("got %d %.300s", w.Code, w.Body)
	}
	got := r.reports[0]
	if got.Report.Outcome != task.OutcomeFailed || got.Report.Reason != "bad___reason" || *got.Report.ExitCode != 3 ||
		got.Report.RetryAfter != 1.5 || string(got.Report.Result) != "{\"a\":\"\ufffd\",\"n\":12345678901234567890}" {
		t.Errorf("stored %+v", got.Report)
	}
	if m := got.Report.Message; len(m) > maxMessage || !strings.HasSuffix(m, cutMark) || !utf8.ValidString(m) {
		t.Errorf("message of %d bytes ends %q", len(m), m[len(m)-20:])
	}
	if len(got.Tail) != maxTail || !strings.HasSuffix(string(got.Tail), "the end\x00\xff") {
		t.Errorf("tail of %d bytes", len(got.Tail))
	}
}

func TestATooLargeResultIsLeftOutWithANote(t *testing.T) {
	r := newRig(t)
	w := r.send(runner("finish", `{"attempt":7,"fence":9,"pod_uid":"u","outcome":"succeeded","result":"`+strings.Repeat("x", 70<<10)+`"}`))
	if got := r.reports[0].Report; w.Code != 204 || got.Result != nil || !strings.Contains(got.Message, "result left out") {
		t.Errorf("got %d, stored %+v", w.Code, got)
	}
	r.send(runner("finish", `{"attempt":7,"fence":9,"pod_uid":"u","outcome":"succeeded","result":null}`))
	if got := r.reports[1].Report; got.Result != nil || got.Message != "" {
		t.Errorf("no result was stored as %+v", got)
	}
}
