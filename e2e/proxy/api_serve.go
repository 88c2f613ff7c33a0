package proxy

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// serve passes one request on, unless a fault says otherwise.
func (p *API) serve(w http.ResponseWriter, r *http.Request) {
	p.working.RLock()
	defer p.working.RUnlock()
	call := callOf(r)
	p.faults.ask(call)
	if !p.hold(r.Context(), call) {
		return
	}
	if f := p.faults.draw(call, APISever, APICutBefore, APIReply, APIExpiredEvent); f != nil && p.instead(w, r, f) {
		return
	}
	answer, err := p.forward(r)
	if err != nil {
		panic(http.ErrAbortHandler) // the server cannot be reached, nor can it through us
	}
	defer answer.Body.Close()
	f := p.faults.draw(call, APICutAfter, APIHalfBody)
	if f != nil && f.Action == APICutAfter {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	switch {
	case f != nil:
		half(w, answer.Body)
		panic(http.ErrAbortHandler)
	case call.Verb == "watch" && answer.StatusCode == http.StatusOK:
		p.watch(w, r, call, answer)
	default:
		if err := flow(w, answer.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// hold keeps a request as long as a fault wants; false means that the client has gone.
func (p *API) hold(ctx context.Context, call APICall) bool {
	if f := p.faults.draw(call, APIDelay); f != nil && !sleep(ctx, f.For, f.gone) {
		return false
	}
	f := p.faults.draw(call, APISilentRequests)
	return f == nil || sleep(ctx, 0, f.gone)
}

// sleep waits for d (0: without end) or until gone; false means that ctx was done first.
func sleep(ctx context.Context, d time.Duration, gone <-chan struct{}) bool {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return true
	case <-gone:
		return true
	case <-ctx.Done():
		return false
	}
}

// instead does what a fault does in the server's place; false means that it is none for this request.
func (p *API) instead(w http.ResponseWriter, r *http.Request, f *fault) bool {
	answer := f.Answer
	switch f.Action {
	case APISever:
		reset(r)
		panic(http.ErrAbortHandler)
	case APICutBefore:
		panic(http.ErrAbortHandler)
	case APIExpiredEvent:
		expired := APIStatus(http.StatusGone, "Expired", 0)
		answer = APIAnswer{Status: http.StatusOK, Header: expired.Header, Body: `{"type":"ERROR","object":` + expired.Body + "}\n"}
	default:
	}
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.Status)
	_, _ = io.WriteString(w, answer.Body) // whether the client still listens is its own business
	return true
}

// hop are the headers that mean one connection.
var hop = []string{"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// forward asks the server.
func (p *API) forward(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = p.upstream.Scheme, p.upstream.Host, p.upstream.Host, ""
	if r.ContentLength == 0 {
		out.Body = nil // so that an idle connection that has died is replaced
	}
	for _, name := range hop {
		out.Header.Del(name)
	}
	answer, err := p.client.RoundTrip(out)
	if err == nil {
		for _, name := range hop {
			answer.Header.Del(name)
		}
	}
	return answer, err
}

// half passes the first half of what comes first.
func half(w http.ResponseWriter, body io.Reader) {
	first := make([]byte, 32<<10)
	n, _ := body.Read(first) // nothing is half of nothing
	_, _ = w.Write(first[:n/2])
	_ = http.NewResponseController(w).Flush() // the client may have gone
}

// flow passes a body on as it comes.
func flow(w http.ResponseWriter, body io.Reader) error {
	control, part := http.NewResponseController(w), make([]byte, 32<<10)
	for {
		n, err := body.Read(part)
		if n > 0 {
			if _, err := w.Write(part[:n]); err != nil {
				return err
			}
			if err := control.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// callOf reads /api/v1/… or /apis/GROUP/VERSION/…: what is namespaced has namespaces/NAME in front.
func callOf(r *http.Request) APICall {
	path := strings.FieldsFunc(r.URL.Path, func(c rune) bool { return c == '/' })
	root := map[string]int{"api": 2, "apis": 3}
	if len(path) == 0 || root[path[0]] == 0 || len(path) <= root[path[0]] {
		return APICall{Verb: strings.ToLower(r.Method), Resource: r.URL.Path}
	}
	path = path[root[path[0]]:]
	if len(path) > 2 && path[0] == "namespaces" {
		path = path[2:]
	}
	call := APICall{Resource: strings.Join(slices.Delete(slices.Clone(path), min(1, len(path)), min(2, len(path))), "/")}
	named := len(path) > 1
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "" && r.URL.Query().Get("watch") != "false":
		call.Verb = "watch"
	case r.Method == http.MethodGet && !named:
		call.Verb = "list"
	case r.Method == http.MethodDelete && !named:
		call.Verb = "deletecollection"
	default:
		call.Verb = map[string]string{http.MethodPost: "create", http.MethodPut: "update"}[r.Method]
	}
	if call.Verb == "" {
		call.Verb = strings.ToLower(r.Method)
	}
	return call
}
