// Package checker judges a storm by what can be seen from outside: the recorder's file, the API server's audit log, what
// the clients of the storm wrote down, and the API's own answers as plain JSON. It shares no code with Slipway, so that
// a mistake there cannot be made here again.
//
// Allowed imports: the standard library.
package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// History is all that is known about a storm.
type History struct {
	Submits  []Submit
	Faults   []Fault
	Records  []Record
	Created  map[string]int // Jobs by "namespace/name": creates that the API server took
	Tasks    map[string]Task
	Attempts map[string][]Attempt // of Tasks with more than one
	Within   time.Duration        // how long was waited for the last Task to end
}

// Submit is one request that was answered with a Task, as its client wrote it down. A client that gets no answer sends
// the same again under the same key, so there is one for each key that was ever accepted.
type Submit struct {
	Key        string    `json:"key"`
	IDs        []string  `json:"ids"` // every id that was ever answered for the key
	Lane       string    `json:"lane,omitempty"`
	Ordered    bool      `json:"ordered"` // its lane is strict, and nothing lets it stand elsewhere than at the end
	Idempotent bool      `json:"idempotent"`
	Retry      bool      `json:"retry"` // a retry by hand, which has the name of the Task that it repeats
	Sent       time.Time `json:"sent"`
	Answered   time.Time `json:"answered"`
	Ended      string    `json:"ended,omitempty"` // a terminal state that an answer has shown
}

// Fault is one thing that was broken on purpose.
type Fault struct {
	Kind string    `json:"kind"`
	At   time.Time `json:"at"`
	Note string    `json:"note,omitempty"`
}

// Record is one line of the recorder.
type Record struct {
	At      time.Time `json:"at"`
	What    string    `json:"what"`
	Task    string    `json:"task"`
	Lane    string    `json:"lane"`
	Attempt int       `json:"attempt"`
	Fence   int64     `json:"fence"`
	Pod     string    `json:"pod"`
	Note    string    `json:"note"`
}

// Task is the part of a Task that the checker reads.
type Task struct {
	ID, Name, Lane, State, Phase, Outcome, Reason, Message string

	RetryOf  string    `json:"retry_of"`
	Made     int       `json:"attempts_made"`
	EndedAt  time.Time `json:"ended_at"`
	Attempt  *Attempt
	CancelAt time.Time `json:"cancel_at"`

	namespace string
}

func (t Task) ended() bool {
	return t.State == "succeeded" || t.State == "failed" || t.State == "canceled"
}

// Attempt is the part of an Attempt that the checker reads.
type Attempt struct {
	Number                                int
	Fence                                 int64
	State, Outcome, Reason, Rule, Replica string
	Job                                   struct{ Name string }
}

// Kind is what can be wrong.
type Kind string

// The kinds of findings, in the order of the closing line.
const (
	Overlap    Kind = "overlap"
	OrderBreak Kind = "order break"
	Lost       Kind = "lost"
	Doubled    Kind = "doubled"
	Stuck      Kind = "stuck"
)

// Finding is one thing that must not be.
type Finding struct {
	Kind  Kind
	Text  string
	Tasks []string // whose histories tell more
}

// Check finds everything that must not be.
func Check(h History) []Finding {
	runs := runsOf(h.Records)
	return slices.Concat(overlaps(h, runs), orderBreaks(h, runs), lost(h, runs), doubled(h, runs), stuck(h))
}

// run is one handler, from its first record to its last.
type run struct {
	task, lane, pod string
	attempt         int
	fence           int64
	begin, last     time.Time
	begins          int
	ends            int
	done            bool // it has said that its work is done
}

// runsOf puts records together, in the order of their begins.
func runsOf(records []Record) []*run {
	type key struct {
		task, pod string
		fence     int64
	}
	found := map[key]*run{}
	var all []*run
	for _, r := range records {
		k := key{r.Task, r.Pod, r.Fence}
		is := found[k]
		if is == nil {
			is = &run{task: r.Task, lane: r.Lane, pod: r.Pod, attempt: r.Attempt, fence: r.Fence, begin: r.At, last: r.At}
			found[k] = is
			all = append(all, is)
		}
		if r.At.After(is.last) {
			is.last = r.At
		}
		switch r.What {
		case "begin":
			is.begins++
		case "end":
			is.ends++
			is.done = is.done || r.Note == "done"
		}
	}
	slices.SortStableFunc(all, func(a, b *run) int { return a.begin.Compare(b.begin) })
	return all
}

// overlaps finds two handlers of one lane at work at once, a lower fence that began or acted after a higher one had
// begun, and a handler that acted after its Task had ended.
func overlaps(h History, runs []*run) (found []Finding) {
	lanes := map[string][]*run{}
	for _, r := range runs {
		if r.lane != "" {
			lanes[r.lane] = append(lanes[r.lane], r)
		}
		if t, known := h.Tasks[r.task]; known && t.ended() && r.last.After(t.EndedAt) {
			found = append(found, Finding{Overlap, fmt.Sprintf("task %s, fence %d: its handler acted %v after the task had ended", r.task, r.fence, r.last.Sub(t.EndedAt)), []string{r.task}})
		}
	}
	for _, lane := range sorted(lanes) {
		var latest, highest *run // by their last record, by their fence
		for _, r := range lanes[lane] {
			if latest != nil && !r.begin.After(latest.last) {
				found = append(found, Finding{Overlap, fmt.Sprintf("lane %s: task %s, fence %d, began %v before the last word of task %s, fence %d",
					lane, r.task, r.fence, latest.last.Sub(r.begin), latest.task, latest.fence), []string{latest.task, r.task}})
			}
			if highest != nil && r.fence < highest.fence {
				found = append(found, Finding{Overlap, fmt.Sprintf("lane %s: task %s began with fence %d after task %s with fence %d",
					lane, r.task, r.fence, highest.task, highest.fence), []string{highest.task, r.task}})
			}
			if latest == nil || r.last.After(latest.last) {
				latest = r
			}
			if highest == nil || r.fence > highest.fence {
				highest = r
			}
		}
	}
	return found
}

// orderBreaks finds Tasks of strict lanes that began, or were claimed, before one whose submit had been answered before
// theirs was sent.
func orderBreaks(h History, runs []*run) (found []Finding) {
	began := map[string]time.Time{}
	for _, r := range runs {
		if _, known := began[r.task]; !known {
			began[r.task] = r.begin
		}
	}
	lanes := map[string][]Submit{}
	for _, s := range h.Submits {
		if s.Ordered && s.Lane != "" && len(s.IDs) > 0 {
			lanes[s.Lane] = append(lanes[s.Lane], s)
		}
	}
	for _, lane := range sorted(lanes) {
		queue := lanes[lane]
		slices.SortFunc(queue, func(a, b Submit) int { return a.Sent.Compare(b.Sent) })
		for i, later := range queue {
			for _, earlier := range queue[:i] {
				if !earlier.Answered.Before(later.Sent) || earlier.IDs[0] == later.IDs[0] {
					continue
				}
				a, b := earlier.IDs[0], later.IDs[0]
				beganA, ranA := began[a]
				beganB, ranB := began[b]
				if ranA && ranB && beganB.Before(beganA) {
					found = append(found, Finding{OrderBreak, fmt.Sprintf("lane %s: task %s began before task %s, which had been accepted before it was sent", lane, b, a), []string{a, b}})
					continue
				}
				if fenceA, fenceB := h.firstFence(a), h.firstFence(b); fenceA > 0 && fenceB > 0 && fenceB < fenceA {
					found = append(found, Finding{OrderBreak, fmt.Sprintf("lane %s: task %s was claimed before task %s, which had been accepted before it was sent", lane, b, a), []string{a, b}})
				}
			}
		}
	}
	return found
}

// firstFence is the fence of a Task's first Attempt; 0 where it has none.
func (h History) firstFence(id string) int64 {
	if all := h.Attempts[id]; len(all) > 0 {
		return all[0].Fence
	}
	if t := h.Tasks[id]; t.Attempt != nil && t.Attempt.Number == 1 {
		return t.Attempt.Fence
	}
	return 0
}

// lastFence is the fence of a Task's last Attempt; 0 where it is not known: then there is only one.
func (h History) lastFence(id string) int64 {
	if all := h.Attempts[id]; len(all) > 0 {
		return all[len(all)-1].Fence
	}
	if t := h.Tasks[id]; t.Attempt != nil {
		return t.Attempt.Fence
	}
	return 0
}

// lost finds what was accepted and is not there, is called a success though its last handler never said that its work is
// done, has ended without a reason, or has left an end that was shown.
func lost(h History, runs []*run) (found []Finding) {
	done := map[string]bool{}
	for _, r := range runs {
		if last := h.lastFence(r.task); r.done && (last == 0 || last == r.fence) {
			done[r.task] = true
		}
	}
	for _, s := range h.Submits {
		for _, id := range s.IDs {
			t, known := h.Tasks[id]
			switch {
			case !known:
				found = append(found, Finding{Lost, fmt.Sprintf("task %s was accepted under key %s and is not there", id, s.Key), []string{id}})
			case t.State == "succeeded" && !done[id]:
				found = append(found, Finding{Lost, fmt.Sprintf("task %s succeeded, and its last handler never said that its work is done", id), []string{id}})
			case t.State != "succeeded" && t.ended() && t.Reason == "":
				found = append(found, Finding{Lost, fmt.Sprintf("task %s is %s without a reason", id, t.State), []string{id}})
			case s.Ended != "" && s.Ended != t.State:
				found = append(found, Finding{Lost, fmt.Sprintf("task %s was shown as %s and is %s", id, s.Ended, t.State), []string{id}})
			}
		}
	}
	return found
}

// stuck finds Tasks that have not ended.
func stuck(h History) (found []Finding) {
	for _, id := range sorted(h.Tasks) {
		if t := h.Tasks[id]; !t.ended() {
			found = append(found, Finding{Stuck, fmt.Sprintf("task %s is still %s (%s) %v after the storm", id, t.State, t.Phase, h.Within.Round(time.Second)), []string{id}})
		}
	}
	return found
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
