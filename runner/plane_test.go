package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// controlPlane answers one runner over real HTTP and writes down what it was told.
type controlPlane struct {
	*httptest.Server
	t      *testing.T
	grant  map[string]any
	refuse int  // status of every start; 0: granted
	stale  bool // every report is refused: the lane has been handed on
	beat   func(n int, body map[string]any) (status int, answer string)

	mu       sync.Mutex
	beats    int
	finished []map[string]any
	ended    chan struct{} // one for each finish
	begun    chan struct{} // one for each start
}

func newControlPlane(t *testing.T, params any) *controlPlane {
	t.Helper()
	p := &controlPlane{
		t: t, grant: map[string]any{
			"task_id": "0c5c", "kind": "command.run", "namespace": "demo", "params": params, "session_key": "sesame",
			"run_seconds": 60, "grace_seconds": 20, "heartbeat_seconds": 10, "fence_after_seconds": 60, "attempt_number": 2,
		},
		ended: make(chan struct{}, 10), begun: make(chan struct{}, 10),
	}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	return p
}

func (p *controlPlane) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	raw, _ := io.ReadAll(r.Body)
	var body map[string]any
	if err := json.Unmarshal(raw, &body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	switch r.URL.Path {
	case "/v1/runner/start":
		if p.refuse != 0 {
			w.WriteHeader(p.refuse)
			return
		}
		_, _ = io.WriteString(w, asJSON(p.t, p.grant))
		p.begun <- struct{}{}
	case "/v1/runner/heartbeat":
		p.beats++
		status, answer := http.StatusOK, `{"cancel":false,"seconds_left":60}`
		if p.beat != nil {
			status, answer = p.beat(p.beats, body)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	case "/v1/runner/finish":
		p.finished = append(p.finished, body)
		status := http.StatusNoContent
		if p.stale {
			status = http.StatusConflict
		}
		w.WriteHeader(status)
		p.ended <- struct{}{}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// last gives the report that was taken last.
func (p *controlPlane) last(t *testing.T) map[string]any {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.finished) == 0 {
		t.Fatal("nothing was reported")
	}
	return p.finished[len(p.finished)-1]
}

// asJSON writes a value for a comparison.
func asJSON(t *testing.T, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
