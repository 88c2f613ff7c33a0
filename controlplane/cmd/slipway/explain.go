package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

// explanation is all that is known of why a Task is as it is.
type explanation struct {
	Task     api.Task      `json:"task"`
	Attempts []api.Attempt `json:"attempts"`
	Events   []api.Event   `json:"events"`
}

// rules says what each rule of the verdict means, by its number.
var rules = map[string]string{
	"0":  "a stop was stored before the end, so it decides",
	"1":  "the runner's report decides",
	"2":  "no report came; the termination message of the pod that had started decides",
	"3":  "the pod was deleted, evicted or preempted, or its node went away",
	"4":  "the pod's own deadline passed",
	"5":  "the kubelet could not run the container, or lost sight of it",
	"6":  "the container ran out of memory, whatever its exit code",
	"7":  "an exit code that the runner keeps for itself",
	"8":  "no report came; the exit of the container decides",
	"9":  "no report came; the container ended by itself",
	"10": "nothing of it was left in the cluster",
	"11": "it did not start in time",
}

func (c *cli) explainVerb() *cobra.Command {
	return c.completeTasks(&cobra.Command{
		Use:   "explain ID",
		Short: "Show why a task is as it is: each attempt, the rule that decided it, and the history",
		Args:  exactly(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return c.explain(cmd.Context(), args[0]) },
	}, isAny)
}

func (c *cli) explain(ctx context.Context, id string) error {
	calls, err := c.connect(ctx)
	if err != nil {
		return err
	}
	var e explanation
	if e.Task, err = calls.Get(ctx, id); err != nil {
		return err
	}
	if e.Attempts, err = calls.Attempts(ctx, id); err != nil {
		return err
	}
	for after := ""; ; {
		page, err := calls.Events(ctx, id, after)
		if err != nil {
			return err
		}
		e.Events = append(e.Events, page.Items...)
		if after = page.Next; after == "" || len(page.Items) == 0 {
			break
		}
	}
	return c.print(e, e.write)
}

func (e explanation) write(w io.Writer) error {
	t := e.Task
	lines := []string{fmt.Sprintf("%s %s: %s", t.Kind, t.ID, joined(", ", string(t.State), different(string(t.Phase), string(t.State)), t.Reason))}
	lines = append(lines, marked("", [][2]string{{"because", t.Message}, {"waits for", waiting(t)}, {"spent", spent(t)}, {"cancel asked by", t.CancelBy}, {"retry of", t.RetryOf}})...)
	for _, a := range e.Attempts {
		lines = append(lines, "", fmt.Sprintf("attempt %d: %s", a.Number, joined(", ", string(a.State), string(a.Outcome), a.Reason)))
		lines = append(lines, marked("  ", attemptInputs(a))...)
	}
	if len(e.Events) > 0 {
		lines = append(lines, "", "history")
	}
	for _, event := range e.Events {
		lines = append(lines, "  "+strings.TrimRight(strings.Join([]string{instant(event.At), attemptOf(event), event.Type, actor(event.Actor), data(event.Data)}, "\t"), "\t"))
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// attemptInputs are what the outcome of an Attempt was decided from, or what it waits for.
func attemptInputs(a api.Attempt) [][2]string {
	rows := [][2]string{{"decided by", decidedBy(a.Rule)}, {"message", a.Message}}
	if a.Waiting != nil {
		rows = append(rows, [2]string{"waits for", joined(": ", a.Waiting.Reason, a.Waiting.Note)})
	}
	if a.Stop != nil {
		rows = append(rows, [2]string{"asked to stop", joined(" ", instant(a.Stop.At), a.Stop.Reason, a.Stop.Note)})
	}
	if l := a.LateReport; l != nil {
		rows = append(rows, [2]string{"late report", joined(" ", instant(l.At), string(l.Outcome), l.Reason, l.Message)})
	}
	if a.ExitCode != nil {
		rows = append(rows, [2]string{"exit code", fmt.Sprint(*a.ExitCode)})
	}
	if a.Executor == "inline" {
		rows = append(rows, [2]string{"runs", "inline, in replica " + a.Replica})
	}
	if a.Job != nil {
		rows = append(rows, [2]string{"job", a.Job.Name})
	}
	if a.Pod != nil {
		rows = append(rows, [2]string{"pod", joined(" on node ", a.Pod.Name, a.Node)})
	}
	return append(rows, [2]string{"claimed", joined(" by ", instant(a.ClaimedAt), a.Replica)},
		[2]string{"launched", later(a.LaunchedAt, a.ClaimedAt)}, [2]string{"started", later(a.StartedAt, a.ClaimedAt)},
		[2]string{"last heartbeat", later(a.HeartbeatAt, a.ClaimedAt)}, [2]string{"finished", later(a.FinishedAt, a.ClaimedAt)})
}

// decidedBy is the rule, and what its number means.
func decidedBy(rule string) string {
	number, _, _ := strings.Cut(rule, " ")
	if meaning := rules[number]; meaning != "" {
		return rule + " (" + meaning + ")"
	}
	return rule
}

func later(t, from time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%.1fs after the claim", t.Sub(from).Seconds())
}

func attemptOf(e api.Event) string {
	if e.Attempt == 0 {
		return ""
	}
	return fmt.Sprintf("attempt %d", e.Attempt)
}

func actor(name string) string {
	if name == "" {
		return ""
	}
	return "by " + name
}

// data shows what an event says besides, as key=value.
func data(raw json.RawMessage) string {
	var fields map[string]any
	if json.Unmarshal(raw, &fields) != nil {
		return ""
	}
	var pairs []string
	for key, value := range fields {
		if value != nil && value != "" {
			pairs = append(pairs, fmt.Sprintf("%s=%v", key, value))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, " ")
}

// joined puts what is not empty together.
func joined(by string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), by)
}

// marked are the rows that say something, as aligned lines.
func marked(indent string, rows [][2]string) []string {
	var lines []string
	for _, row := range rows {
		if row[1] != "" {
			lines = append(lines, indent+row[0]+"\t"+row[1])
		}
	}
	return lines
}
