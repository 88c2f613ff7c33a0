package main

import (
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

func (c *cli) listVerb() *cobra.Command {
	var p api.ListTasksParams
	var state, kind, queue, lane, cursor string
	var labels []string
	var most int32
	var everywhere bool
	var since time.Duration
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List tasks, newest first",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !everywhere {
				namespace, err := c.inNamespace()
				if err != nil {
					return err
				}
				given(&p.Namespace, namespace)
			}
			given(&p.State, api.State(state))
			given(&p.Kind, kind)
			given(&p.Queue, queue)
			given(&p.Lane, lane)
			given(&p.Cursor, cursor)
			if len(labels) > 0 {
				p.Label = &labels
			}
			p.Limit = &most
			p.CreatedAfter = ago(since)
			return c.list(cmd, p)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&everywhere, "all-namespaces", "A", false, "of all namespaces")
	f.StringVar(&state, "state", "", "queued, running, succeeded, failed or canceled")
	f.StringVar(&kind, "kind", "", "kind")
	f.StringVar(&queue, "queue", "", "queue")
	f.StringVar(&lane, "lane", "", "lane")
	f.StringArrayVarP(&labels, "label", "l", nil, "label as key=value; all must match")
	f.DurationVar(&since, "since", 0, "created at most so long ago, as 90m")
	f.Int32Var(&most, "limit", 50, "most tasks on the page")
	f.StringVar(&cursor, "cursor", "", "where to go on, as the page before says")
	c.completeKindFlag(cmd)
	completeWords(cmd, "state", "queued", "running", "succeeded", "failed", "canceled")
	return cmd
}

func given[T ~string](field **T, value T) {
	if value != "" {
		*field = &value
	}
}

// ago is the instant so long before now; nil for no time.
func ago(since time.Duration) *time.Time {
	if since <= 0 {
		return nil
	}
	from := time.Now().Add(-since).UTC().Truncate(time.Second)
	return &from
}

func (c *cli) list(cmd *cobra.Command, p api.ListTasksParams) error {
	calls, err := c.connect(cmd.Context())
	if err != nil {
		return err
	}
	page, err := calls.List(cmd.Context(), p)
	if err != nil {
		return err
	}
	return c.print(page, func(w io.Writer) error {
		if err := line(w, "ID", "NAMESPACE", "KIND", "NAME", "PHASE", "REASON", "ATTEMPTS", "AGE"); err != nil {
			return err
		}
		for _, t := range page.Items {
			err := line(w, t.ID, t.Namespace, t.Kind, t.Name, string(t.Phase), t.Reason, strconv.Itoa(int(t.AttemptsMade)), age(t.CreatedAt, time.Now()))
			if err != nil {
				return err
			}
		}
		if page.Next != "" {
			return line(w, "more: --cursor "+page.Next)
		}
		return nil
	})
}
