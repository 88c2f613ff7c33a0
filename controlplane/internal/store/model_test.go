package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// A model of composites and graphs, written from the rules alone: it shares no code with the store and asks it nothing.
// What is done to a Task changes that Task at once; settle then follows the rules until nothing changes.

type modelTask struct {
	id       string
	parent   *modelTask
	children []*modelTask
	needs    []*modelTask
	anyEnd   bool // it runs whatever the end of what it needs
	lane     string
	attempts int // that it may spend
	losses   int // attempts that are lost first
	failures int // attempts that fail then

	state, reason    string
	entered, stopped bool
	turn             int // when it entered its lane; -1: it is tried again
	spent, lost      int
	claimed          bool
}

func (t *modelTask) over() bool { return t.state != "queued" && t.state != "running" }

// world is a few trees that have nothing to do with those of other worlds.
type world struct {
	all   []*modelTask
	tops  []*modelTask
	turns int
}

// imagine makes a world. Everything waits only for what stands before it, so there are no circles but those that lanes
// make at run time.
func imagine(r *rand.Rand, name string) *world {
	w := &world{}
	add := func(parent *modelTask, lanes []string) *modelTask {
		t := &modelTask{id: uuidOf(r), parent: parent, lane: lanes[r.IntN(len(lanes))], attempts: 1 + r.IntN(2), state: "queued", anyEnd: r.IntN(2) == 0}
		if r.IntN(4) == 0 {
			t.failures = 1 + r.IntN(2)
		}
		if r.IntN(6) == 0 {
			t.losses = 1
		}
		for _, other := range w.all {
			if other != parent && r.IntN(4*len(w.all)) < 3 {
				t.needs = append(t.needs, other)
			}
		}
		w.all = append(w.all, t)
		return t
	}
	low := []string{"", "volume:" + name + "/1", "volume:" + name + "/2"}
	high := []string{"", "branch:" + name + "/a"}
	if r.IntN(8) == 0 { // the lane's holder waits for who waits for the lane
		first, behind, holder := add(nil, low), add(nil, high[1:]), add(nil, high[1:])
		behind.children, holder.children = []*modelTask{add(behind, low)}, []*modelTask{add(holder, low)}
		behind.needs, behind.children[0].needs, holder.needs, holder.children[0].needs = []*modelTask{first}, nil, nil, []*modelTask{behind}
		w.tops = append(w.tops, first, behind, holder)
	}
	for range 1 + r.IntN(4) {
		if r.IntN(2) == 0 {
			w.tops = append(w.tops, add(nil, low))
			continue
		}
		parent := add(nil, high)
		w.tops = append(w.tops, parent)
		for range 1 + r.IntN(5) {
			parent.children = append(parent.children, add(parent, low))
		}
	}
	return w
}

func uuidOf(r *rand.Rand) string {
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", r.Uint32(), r.Uint32()&0xffff, r.Uint32()&0xfff, r.Uint32()&0xfff, r.Uint64()&0xffffffffffff)
}

func (t *modelTask) end(state, reason string) { t.state, t.reason = state, reason }

// cancel is a wish: who waits ends at once, who runs is asked to stop.
func (t *modelTask) cancel() {
	switch t.state {
	case "queued":
		t.end("canceled", "cancel")
	case "running":
		t.stopped = true
	}
}

// settle follows the rules until nothing changes.
func (w *world) settle() {
	w.turns++
	for w.step() {
	}
}

func (w *world) step() bool {
	for _, t := range w.all {
		switch p := t.parent; {
		case t.over():
		case p != nil && (p.over() || p.stopped) && !t.stopped:
			t.cancel()
			return true
		case t.state == "running" && len(t.children) > 0:
			if t.closes() {
				return true
			}
		case t.state == "queued" && !t.entered && (p == nil || p.state != "queued"):
			if t.opens(w.turns) {
				return true
			}
		}
	}
	return false
}

// closes ends a parent after its last child.
func (t *modelTask) closes() bool {
	bad := false
	for _, c := range t.children {
		if !c.over() {
			return false
		}
		bad = bad || c.state != "succeeded"
	}
	switch {
	case t.stopped:
		t.end("canceled", "cancel")
	case bad:
		t.end("failed", "child_failed")
	default:
		t.end("succeeded", "")
	}
	return true
}

// opens lets a Task into its lane, or fails it with what it needs.
func (t *modelTask) opens(turn int) bool {
	for _, n := range t.needs {
		if n.over() && n.state != "succeeded" && !t.anyEnd {
			t.end("failed", "dependency_failed")
			return true
		}
	}
	for _, n := range t.needs {
		if !n.over() {
			return false
		}
	}
	t.entered, t.turn = true, turn
	return true
}

// ready are the sets of Tasks of which one each is claimed next: of a lane that nobody holds, those that came first.
func (w *world) ready() [][]*modelTask {
	lanes, held := map[string][]*modelTask{}, map[string]bool{}
	var out [][]*modelTask
	for _, t := range w.all {
		switch {
		case t.lane != "" && t.state == "running":
			held[t.lane] = true
		case t.state != "queued" || !t.entered:
		case t.lane == "":
			out = append(out, []*modelTask{t})
		default:
			lanes[t.lane] = append(lanes[t.lane], t)
		}
	}
	for lane, waiting := range lanes {
		if held[lane] {
			continue
		}
		first := slices.MinFunc(waiting, func(a, b *modelTask) int { return a.turn - b.turn }).turn
		out = append(out, slices.DeleteFunc(waiting, func(t *modelTask) bool { return t.turn != first }))
	}
	return out
}

// finish ends one try and says how: lost, failed, succeeded or canceled.
func (t *modelTask) finish() string {
	switch {
	case t.stopped:
		t.end("canceled", "cancel")
		return "canceled"
	case t.lost < t.losses:
		t.lost++
		t.state, t.turn = "queued", -1
		return "lost"
	case t.spent < t.failures:
		t.spent++
		if t.spent < t.attempts {
			t.state, t.turn = "queued", -1
		} else {
			t.end("failed", "exit_code")
		}
		return "failed"
	}
	t.end("succeeded", "")
	return "succeeded"
}

// expire ends whoever still waits for a first try.
func (w *world) expire() {
	for _, t := range w.all {
		if t.state == "queued" && !t.claimed {
			t.end("failed", "queue_deadline")
		}
	}
}
