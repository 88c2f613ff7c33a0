package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/pkg/api"
)

// The forms of output.
const (
	asTable = "table"
	asJSON  = "json"
	asYAML  = "yaml"
)

func (c *cli) checkOutput() error {
	switch c.output {
	case asTable, asJSON, asYAML:
		return nil
	}
	return usageError{fmt.Errorf("unknown output %q: want table, json or yaml", c.output)}
}

// print writes v in the wanted form; as a table by the given function.
func (c *cli) print(v any, table func(w io.Writer) error) error {
	if c.output == asTable {
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		if err := table(w); err != nil {
			return err
		}
		return w.Flush()
	}
	raw, err := json.MarshalIndent(v, "", "  ")
	if err == nil && c.output == asYAML {
		raw, err = yaml.JSONToYAML(raw)
	}
	if err != nil {
		return fmt.Errorf("write as %s: %w", c.output, err)
	}
	_, err = fmt.Fprintln(c.out, strings.TrimRight(string(raw), "\n"))
	return err
}

// line writes one row of a table.
func line(w io.Writer, cells ...string) error {
	_, err := fmt.Fprintln(w, strings.Join(cells, "\t"))
	return err
}

// printTask writes one Task; the table is what a person wants to know of it.
func (c *cli) printTask(t api.Task) error {
	return c.print(t, func(w io.Writer) error { return pairs(w, taskRows(t)) })
}

// pairs writes names and values, without those that have none.
func pairs(w io.Writer, rows [][2]string) error {
	for _, row := range rows {
		if row[1] == "" {
			continue
		}
		if err := line(w, row[0], row[1]); err != nil {
			return err
		}
	}
	return nil
}

func taskRows(t api.Task) [][2]string {
	rows := [][2]string{
		{"id", t.ID},
		{"kind", t.Kind},
		{"namespace", t.Namespace},
		{"name", t.Name},
		{"lane", t.Lane},
		{"state", string(t.State)},
		{"phase", different(string(t.Phase), string(t.State))},
		{"waiting", waiting(t)},
		{"outcome", different(string(t.Outcome), string(t.State))},
		{"reason", t.Reason},
		{"message", t.Message},
		{"result", string(t.Result)},
		{"progress", progress(t)},
		{"attempts", strconv.Itoa(int(t.AttemptsMade))},
		{"spent", spent(t)},
		{"absorbed", some(t.Absorbed)},
		{"retry of", t.RetryOf},
		{"objects", objects(t.Objects)},
	}
	if a := t.Attempt; a != nil && a.Job != nil {
		rows = append(rows, [2]string{"job", a.Job.Name})
	}
	if a := t.Attempt; a != nil && a.Pod != nil {
		rows = append(rows, [2]string{"pod", a.Pod.Name})
	}
	return append(rows,
		[2]string{"created", instant(t.CreatedAt) + " by " + t.CreatedBy},
		[2]string{"started", instant(t.StartedAt)}, [2]string{"ended", instant(t.EndedAt)})
}

// some is a number that says nothing where it is zero.
func some(n int32) string {
	if n == 0 {
		return ""
	}
	return whole(n)
}

func objects(all []api.NamedObject) string {
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = strings.ToLower(o.Kind) + "/" + o.Name
	}
	return strings.Join(names, ", ")
}

// spent says what the Attempts cost of the two budgets, once they cost something.
func spent(t api.Task) string {
	of := func(n int32, budget *int32) string {
		if budget == nil {
			return whole(n)
		}
		return whole(n) + " of " + whole(*budget)
	}
	if t.Spent.Attempts+t.Spent.Lost == 0 {
		return ""
	}
	return of(t.Spent.Attempts, t.Spec.Retry.Attempts) + " attempts, " + of(t.Spent.Lost, t.Spec.Retry.Lost) + " losses"
}

func different(text, from string) string {
	if text == from {
		return ""
	}
	return text
}

func waiting(t api.Task) string {
	if t.Waiting == nil {
		return ""
	}
	text := t.Waiting.Reason
	if t.Waiting.Holder != "" {
		text += ", behind " + t.Waiting.Holder
	}
	if t.Waiting.Note != "" {
		text += ": " + t.Waiting.Note
	}
	return text
}

func progress(t api.Task) string {
	p := t.Progress
	if p == nil {
		return ""
	}
	text := strconv.FormatFloat(p.Done, 'f', -1, 64)
	if p.Total > 0 {
		text += "/" + strconv.FormatFloat(p.Total, 'f', -1, 64)
	}
	return strings.TrimSpace(text + " " + p.Message)
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}

// age is how long ago t was, in the two largest units.
func age(t, now time.Time) string {
	d := max(now.Sub(t), 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
