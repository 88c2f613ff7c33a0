package httpapi

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestACallerIsPacedAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.paced(Pace{Rate: 0.5, Burst: 3})
		get := func(token string) (int, string) {
			w := r.send(request{method: "GET", path: "/v1/tasks/" + taskID, token: token})
			if w.Code == 429 {
				if p := r.problem(w, 429); p.Type != "urn:slipway:problem:rate_limited" {
					t.Errorf("problem %+v", p)
				}
			}
			return w.Code, w.Header().Get("Retry-After")
		}
		for range 3 {
			if code, _ := get("admin"); code != 200 {
				t.Fatalf("got %d within the burst", code)
			}
		}
		if code, after := get("admin"); code != 429 || after != "2" {
			t.Fatalf("got %d, Retry-After %q", code, after)
		}
		if code, _ := get("viewer"); code != 200 {
			t.Errorf("another caller got %d", code)
		}
		if w := r.send(request{method: "POST", path: "/v1/runner/heartbeat", token: sessionToken(7, 9, "u"), body: `{"attempt":7,"fence":9,"pod_uid":"u"}`}); w.Code != 200 {
			t.Errorf("a runner got %d", w.Code)
		}
		time.Sleep(2 * time.Second)
		if code, _ := get("admin"); code != 200 {
			t.Errorf("got %d after Retry-After", code)
		}
	})
}

func TestPacingIsBoundedHoweverManyCallersThereAre(t *testing.T) {
	p := newPacer(Pace{Rate: 1, Burst: 2})
	p.most = 10
	now := time.Unix(1000, 0)
	for n := range 10 {
		p.take(fmt.Sprint(n), now)
	}
	let := 0
	for n := range 100 {
		if p.take(fmt.Sprint("late-", n), now) == 0 {
			let++
		}
	}
	if let != 2 || len(p.buckets) > 11 {
		t.Errorf("%d of those beyond were let through, want the burst of 2; %d buckets", let, len(p.buckets))
	}
	if p.take("0", now) != 0 || p.take("0", now) == 0 {
		t.Error("an early caller lost or gained by the late ones")
	}
	now = now.Add(time.Minute)
	if p.take("new", now) != 0 || len(p.buckets) != 1 {
		t.Errorf("%d buckets after a pause, want that of the newcomer", len(p.buckets))
	}
}
