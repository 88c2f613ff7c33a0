package proxy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// APIAction is what a fault does.
type APIAction string

// The actions. Those that name events are for watches that are open, too.
const (
	APISilentConnections APIAction = "api_silent_connections" // nothing passes in either direction and nothing is closed; Match does not apply
	APIDeadConnections   APIAction = "api_dead_connections"   // those that are open pass nothing any more, for ever; new ones do. Match does not apply
	APISilentRequests    APIAction = "api_silent_requests"    // not answered, not closed, also watches that are open; connections answer pings
	APIDelay             APIAction = "api_delay"              // forwarded after For
	APICutBefore         APIAction = "api_cut_before"         // reset without being forwarded
	APICutAfter          APIAction = "api_cut_after"          // reset once the server has answered
	APIHalfBody          APIAction = "api_half_body"          // reset amid the answer's body
	APISever             APIAction = "api_sever"              // the whole connection is reset, before forwarding
	APIReply             APIAction = "api_reply"              // Answer is given in the server's place
	APIExpiredEvent      APIAction = "api_expired_event"      // a watch: 200, and its first event is an ERROR of code 410
	APIDelayedEvent      APIAction = "api_delayed_event"      // a watch: each event reaches the client after For
	APIOlderEvent        APIAction = "api_older_event"        // a watch: after an event an older one of any object comes again as MODIFIED
	APIEndedWatch        APIAction = "api_ended_watch"        // a watch ends cleanly after For
)

// APICall is a kind of request.
type APICall struct {
	Verb     string // get, list, watch, create, update, patch, delete, deletecollection
	Resource string // in the plural, with the subresource: pods/log
}

// APIMatch says which requests a fault is for; empty fields match all.
type APIMatch struct{ Verbs, Resources []string }

func (m APIMatch) matches(c APICall) bool {
	return (len(m.Verbs) == 0 || slices.Contains(m.Verbs, c.Verb)) && (len(m.Resources) == 0 || slices.Contains(m.Resources, c.Resource))
}

// APIFault is one kind of trouble.
type APIFault struct {
	Match  APIMatch
	Action APIAction
	Times  int           // it happens that often, then no more; 0: no bound
	Share  float64       // that it happens where it could; 0: always
	For    time.Duration // APIDelay, APIDelayedEvent, APIEndedWatch
	Answer APIAnswer     // APIReply
}

// APIAnswer stands for the server's.
type APIAnswer struct {
	Status int
	Header http.Header
	Body   string
}

// APIStatus is an answer as the API server writes it; after is its Retry-After in seconds, 0: none.
func APIStatus(code int, reason string, after int) APIAnswer {
	status := map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": "answered by a fault: " + reason, "reason": reason, "code": code,
	}
	a := APIAnswer{Status: code, Header: http.Header{"Content-Type": {"application/json"}}}
	if after > 0 {
		status["details"] = map[string]any{"retryAfterSeconds": after}
		a.Header.Set("Retry-After", strconv.Itoa(after))
	}
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // strings and numbers alone: it cannot fail
	}
	a.Body = string(body)
	return a
}

// faults are those that may happen now.
type faults struct {
	mu       sync.Mutex
	all      []*fault
	chance   *rand.Rand
	counts   map[string]int
	requests map[APICall]int
	changed  chan struct{} // closed at the next change of all
}

// fault is one that was added.
type fault struct {
	APIFault
	left int
	gone chan struct{} // closed once it is taken away
}

func newFaults(seed uint64) *faults {
	return &faults{
		chance: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}, requests: map[APICall]int{}, changed: make(chan struct{}),
	}
}

func (s *faults) add(f APIFault) (remove func()) {
	added := &fault{APIFault: f, left: f.Times, gone: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, added)
	s.change()
	return func() { s.remove(added) }
}

func (s *faults) remove(f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.all, f); i >= 0 {
		s.all = slices.Delete(s.all, i, i+1)
		close(f.gone)
		s.change()
	}
}

func (s *faults) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.all {
		close(f.gone)
	}
	s.all = nil
	s.change()
}

func (s *faults) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// draw gives the first fault of these actions that happens to c now; nil: none.
func (s *faults) draw(c APICall, actions ...APIAction) *fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.all {
		if !slices.Contains(actions, f.Action) || !f.Match.matches(c) || f.Times > 0 && f.left == 0 {
			continue
		}
		if f.Share > 0 && s.chance.Float64() >= f.Share {
			continue
		}
		f.left--
		s.counts[f.name()]++
		return f
	}
	return nil
}

// standing gives the first fault of an action that concerns c, without counting it, and what is closed at the next change.
func (s *faults) standing(c APICall, action APIAction) (*fault, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.all {
		if f.Action == action && f.Match.matches(c) {
			return f, s.changed
		}
	}
	return nil, s.changed
}

func (f *fault) name() string {
	if f.Action == APIReply {
		return fmt.Sprintf("%s_%d", APIReply, f.Answer.Status)
	}
	return string(f.Action)
}

func (s *faults) count(a APIAction, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[string(a)] += n
}

func (s *faults) ask(c APICall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[c]++
}

func (s *faults) snapshot() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

func (s *faults) asked() map[APICall]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.requests)
}

// pick draws a number below n.
func (s *faults) pick(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chance.IntN(n)
}
