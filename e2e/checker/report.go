package checker

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// Bounds are what a storm must have been to prove anything.
type Bounds struct {
	Tasks, Lanes, Each int      // at least so many Tasks, lanes, faults of each kind
	Kinds              []string // of faults
}

// Scaled are the bounds of a storm of so many minutes: in ten of them 3,000 Tasks and each fault 20 times, and always 40
// lanes.
func Scaled(minutes float64, kinds []string) Bounds {
	return Bounds{Tasks: int(300 * minutes), Lanes: 40, Each: int(2 * minutes), Kinds: kinds}
}

// Report prints one line per kind of fault and the closing line, and gives everything that is wrong, in words.
func Report(w io.Writer, h History, b Bounds, seed uint64) (wrong []string) {
	count := map[string]int{}
	for _, f := range h.Faults {
		count[f.Kind]++
	}
	for _, kind := range b.Kinds {
		if count[kind] < b.Each {
			wrong = append(wrong, fmt.Sprintf("fault %s came %d times, not %d", kind, count[kind], b.Each))
		}
	}
	for _, kind := range sorted(count) {
		_, _ = fmt.Fprintf(w, "fault %-32s %d\n", kind, count[kind])
	}
	tasks, lanes := accepted(h)
	if tasks < b.Tasks {
		wrong = append(wrong, fmt.Sprintf("%d tasks, not %d", tasks, b.Tasks))
	}
	if lanes < b.Lanes {
		wrong = append(wrong, fmt.Sprintf("%d lanes, not %d", lanes, b.Lanes))
	}
	number := map[Kind]int{}
	for _, f := range Check(h) {
		number[f.Kind]++
		wrong = append(wrong, string(f.Kind)+": "+f.Text)
	}
	_, _ = fmt.Fprintf(w, "chaos: tasks=%d lanes=%d faults=%d overlaps=%d order_breaks=%d lost=%d doubled=%d stuck=%d seed=%d\n",
		tasks, lanes, len(h.Faults), number[Overlap], number[OrderBreak], number[Lost], number[Doubled], number[Stuck], seed)
	return wrong
}

// accepted counts the Tasks, and the lanes in which a handler was at work.
func accepted(h History) (tasks, lanes int) {
	ids, keys := map[string]bool{}, map[string]bool{}
	for _, s := range h.Submits {
		for _, id := range s.IDs {
			ids[id] = true
		}
	}
	for _, r := range h.Records {
		if r.Lane != "" {
			keys[r.Lane] = true
		}
	}
	return len(ids), len(keys)
}

// Explain prints the histories of the Tasks of the first findings: what the recorder, the clients and the API say.
func (a API) Explain(ctx context.Context, w io.Writer, h History) {
	const most = 20
	shown := map[string]bool{}
	for _, f := range Check(h) {
		for _, id := range f.Tasks {
			if shown[id] || len(shown) >= most {
				continue
			}
			shown[id] = true
			a.explain(ctx, w, h, id)
		}
	}
}

func (a API) explain(ctx context.Context, w io.Writer, h History, id string) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	say("\ntask %s", id)
	for _, s := range h.Submits {
		if slices.Contains(s.IDs, id) {
			say("  submit   %s .. %s key %s lane %s ordered %v idempotent %v", clock(s.Sent), clock(s.Answered), s.Key, s.Lane, s.Ordered, s.Idempotent)
		}
	}
	for _, r := range runsOf(h.Records) {
		if r.task == id {
			say("  handler  %s .. %s attempt %d fence %d pod %s begins %d ends %d", clock(r.begin), clock(r.last), r.attempt, r.fence, r.pod, r.begins, r.ends)
		}
	}
	namespace := h.Tasks[id].namespace
	for _, path := range []string{"", "/attempts", "/events?limit=500"} {
		say("  %s", a.raw(ctx, namespace, "/v1/tasks/"+id+path))
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
