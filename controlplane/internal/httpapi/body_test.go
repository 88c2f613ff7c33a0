package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// endless is a body that never ends.
type endless struct{ sent atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.sent.Add(int64(len(p)))
	return len(p), nil
}

func TestAnEndlessBodyIsCutAtTheLimit(t *testing.T) {
	r := newRig(t)
	url := serve(t, r)
	body := &endless{}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/tasks", body)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer admin")
	q.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return // the server had closed the connection before the client looked for its answer
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d", answer.StatusCode)
	}
	if sent := body.sent.Load(); sent > 16<<20 {
		t.Errorf("%d bytes were taken", sent)
	}
}

func TestABodyIsNotReadBeforeTheCallerIsKnown(t *testing.T) {
	r := newRig(t)
	url := serve(t, r)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// The body is announced and never comes.
	if _, err := fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 500000\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %d", answer.StatusCode)
	}
}

func TestTheServerBoundsHowLongAClientMayTake(t *testing.T) {
	s := newRig(t).server
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
		t.Errorf("unbounded: %+v", s)
	}
}

func TestAZipBombIsNotOpened(t *testing.T) {
	r := newRig(t)
	w := r.send(submit("\x1f\x8b"+strings.Repeat("\x00", 1000), "Content-Encoding", "gzip"))
	r.problem(w, http.StatusUnsupportedMediaType)
	if rest, err := io.ReadAll(w.Body); err != nil || len(rest) > 1000 {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
}

// deadlines is an answer that notes until when it may be written.
type deadlines struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.until = t
	return nil
}

// hush is a log that is quiet for an hour and then ends.
type hush struct{}

func (hush) Read([]byte) (int, error) {
	time.Sleep(time.Hour)
	return 0, io.EOF
}

func (hush) Close() error { return nil }

func TestALogThatWasQuietForLongStillEndsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		answer := logAnswer{ctx: t.Context(), going: t.Context(), log: LogStream{Body: hush{}}}
		if err := answer.VisitGetLogsResponse(w); err != nil || w.Body.Len() > 0 || !w.until.After(time.Now()) {
			t.Errorf("%v, %q, to be written until %v at %v", err, w.Body, w.until, time.Now())
		}
	})
}
