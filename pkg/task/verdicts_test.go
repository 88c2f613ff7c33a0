package task

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shape is what a cluster can hold of an Attempt: real Jobs and pods as controlplane/internal/kube shows them.
type shape struct {
	Name string
	Seen Seen
}

func shapes(t *testing.T) map[string]shape {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "shapes.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all := map[string]shape{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var s shape
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		if _, twice := all[s.Name]; twice {
			t.Errorf("two shapes are called %q", s.Name)
		}
		all[s.Name] = s
	}
	return all
}

// stances are the Attempts that a shape is judged for. A bare one has no runner inside: the gate was passed, nothing beats.
var stances = map[string]func() (Task, Attempt){
	"launched": func() (Task, Attempt) { return someTask(), launched() },
	"started":  func() (Task, Attempt) { return someTask(), started() },
	"silent": func() (Task, Attempt) {
		return someTask(), with(started(), func(a *Attempt) { a.ClaimedAt, a.StartedAt = at(-fence), at(-fence) })
	},
	"bare":     func() (Task, Attempt) { return unwrapped(), with(started(), func(a *Attempt) { a.Node = "node" }) },
	"gated":    func() (Task, Attempt) { return unwrapped(), launched() },
	"canceled": func() (Task, Attempt) { return someTask(), stopped(started(), StopCancel) },
	"overtime": func() (Task, Attempt) { return someTask(), stopped(started(), StopRunDeadline) },
	"ended": func() (Task, Attempt) {
		return someTask(), with(stopped(started(), StopEnded), func(a *Attempt) { a.StopNote = "a sidecar runs on" })
	},
	"reported": func() (Task, Attempt) { return someTask(), saying(started(), OutcomeSucceeded, "") },
}

func TestEveryShapeHasOneVerdictOrAStatedWait(t *testing.T) {
	all := shapes(t)
	check := func(shape, stance, want string) {
		t.Helper()
		s, known := all[shape]
		if !known {
			t.Errorf("no shape %q: make it in controlplane/internal/kube", shape)
			return
		}
		task, a := stances[stance]()
		d := Decide(task, a, s.Seen, at(10*time.Second))
		if got := verdictOf(d); got != want {
			t.Errorf("%s, %s: got %q (%s), want %q", shape, stance, got, d.Why, want)
		}
		if over, _ := Over(task.Spec, a, s.Seen, at(10*time.Second)); over != (d.Action == ActFinish) {
			t.Errorf("%s, %s: handed on %v, and decided %q", shape, stance, over, d.Action)
		}
		if d.Action != ActFinish && d.Action != ActAsk && d.Why == "" {
			t.Errorf("%s, %s: it does not say why", shape, stance)
		}
	}
	judged := map[string]bool{}
	for _, row := range verdictTable {
		judged[row.shape] = true
		check(row.shape, "launched", row.launched)
		check(row.shape, "started", row.started)
		check(row.shape, "silent", row.silent)
		check(row.shape, "bare", row.bare)
	}
	for _, row := range stanceTable {
		check(row.shape, row.stance, row.want)
	}
	for name := range all {
		if !judged[name] {
			t.Errorf("shape %q is not judged", name)
		}
	}
}

// verdictOf renders a Decision as the table does.
func verdictOf(d Decision) string {
	if d.Action == ActFinish {
		v := d.Verdict
		rule, _, _ := strings.Cut(v.Rule, " ")
		return strings.TrimSuffix(fmt.Sprintf("%s %s/%s", rule, v.Outcome, v.Reason), "/")
	}
	text := string(d.Action)
	if d.Stop != "" {
		text += " " + string(d.Stop)
	}
	if d.Wait != "" {
		text += " (" + string(d.Wait) + ")"
	}
	return text
}
