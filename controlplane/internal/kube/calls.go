package kube

import (
	"net/http"
	"strings"
	"sync"
)

// Call is a kind of request: `create jobs`, `patch pods`, `dryrun pods`, `list jobs`, `watch pods`, `get pods/log`.
type Call struct{ Verb, Resource string }

// calls counts requests as they leave.
type calls struct {
	mu    sync.Mutex
	count map[Call]int64
}

func newCalls() *calls { return &calls{count: map[Call]int64{}} }

func (c *calls) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		call := callOf(r)
		c.mu.Lock()
		c.count[call]++
		c.mu.Unlock()
		return next.RoundTrip(r)
	})
}

func (c *calls) snapshot() map[Call]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[Call]int64, len(c.count))
	for call, n := range c.count {
		all[call] = n
	}
	return all
}

// callOf reads verb and resource from a request: /api/v1/… or /apis/GROUP/VERSION/…, with namespaces/NS before what is
// namespaced, then RESOURCE[/NAME[/SUBRESOURCE]].
func callOf(r *http.Request) Call {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	skip := 2 // api, v1
	if len(parts) > 0 && parts[0] == "apis" {
		skip = 3
	}
	parts = parts[min(skip, len(parts)):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return Call{Verb: strings.ToLower(r.Method), Resource: "other"}
	}
	call := Call{Resource: parts[0]}
	if len(parts) > 2 {
		call.Resource += "/" + parts[2]
	}
	named := len(parts) > 1
	switch query := r.URL.Query(); {
	case query.Get("dryRun") != "":
		call.Verb = "dryrun"
	case query.Get("watch") != "":
		call.Verb = "watch"
	case r.Method == http.MethodPost:
		call.Verb = "create"
	case r.Method == http.MethodGet && !named:
		call.Verb = "list"
	default:
		call.Verb = strings.ToLower(r.Method)
	}
	return call
}
