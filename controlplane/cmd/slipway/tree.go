package main

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

func (c *cli) treeVerb() *cobra.Command {
	return c.completeTasks(&cobra.Command{
		Use:   "tree ID",
		Short: "Show a composite task with its children: states, progress, and what runs after what",
		Args:  exactly(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return c.tree(cmd.Context(), args[0]) },
	}, isAny)
}

func (c *cli) tree(ctx context.Context, id string) error {
	calls, err := c.connect(ctx)
	if err != nil {
		return err
	}
	t, err := calls.Get(ctx, id)
	if err != nil {
		return err
	}
	return c.print(t, func(w io.Writer) error { return writeTree(w, t) })
}

// writeTree writes the parent, and its children by number; `after` names siblings by theirs, others by their ids.
func writeTree(w io.Writer, t api.Task) error {
	if err := line(w, "TASK", "KIND", "LANE", "STATE", "REASON", "PROGRESS", "AFTER", "ID"); err != nil {
		return err
	}
	edges := after(t.After, t.RunIf, nil)
	if err := row(w, ownName(t.Name), t.Kind, t.Lane, shownState(t.State, t.Phase), why(t.Reason, t.Waiting), percent(t.Progress), edges, t.ID); err != nil {
		return err
	}
	if t.Children == nil {
		return nil
	}
	numbers := map[string]string{}
	for i, c := range t.Children.Items {
		numbers[c.ID] = "#" + strconv.Itoa(i+1)
	}
	for i, c := range t.Children.Items {
		branch := "├─ "
		if i == len(t.Children.Items)-1 {
			branch = "└─ "
		}
		if err := row(w, branch+joined(" ", numbers[c.ID], c.Name), c.Kind, c.Lane, shownState(c.State, c.Phase), why(c.Reason, c.Waiting),
			percent(c.Progress), after(c.After, c.RunIf, numbers), c.ID); err != nil {
			return err
		}
	}
	return nil
}

// row is a line whose empty cells say so.
func row(w io.Writer, cells ...string) error {
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
	}
	return line(w, cells...)
}

func ownName(name string) string {
	if name == "" {
		return "."
	}
	return name
}

func shownState(s api.State, p api.Phase) string {
	return joined(", ", string(s), different(string(p), string(s)))
}

// why is the reason of an end, or what is waited for.
func why(reason string, w *api.Waiting) string {
	if w == nil {
		return reason
	}
	return joined(": ", w.Reason, w.Note)
}

func percent(p *api.Progress) string {
	if p == nil {
		return ""
	}
	if p.Total <= 0 {
		return p.Message
	}
	return joined(" ", strconv.FormatFloat(100*p.Done/p.Total, 'f', 0, 64)+"%", p.Message)
}

func after(ids []string, runIf api.RunIf, numbers map[string]string) string {
	if len(ids) == 0 {
		return ""
	}
	names := slices.Clone(ids)
	for i, id := range names {
		if n, sibling := numbers[id]; sibling {
			names[i] = n
		}
	}
	text := strings.Join(names, ", ")
	if runIf == api.RunIfAllFinished {
		text += " (whatever their end)"
	}
	return text
}
