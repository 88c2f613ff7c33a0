package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/client"
)

func (c *cli) queuesVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queues",
		Short: "List the queues; with --namespace, what that namespace may use of them and uses",
		Long: "List the queues, which takes a right on the whole cluster: all namespaces share them. With --namespace, list what\n" +
			"that namespace may use of each and what it uses, which takes a right there.",
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			if c.namespace != "" {
				limits, err := calls.Limits(cmd.Context(), c.namespace)
				if err != nil {
					return err
				}
				return c.print(limits, func(w io.Writer) error { return limitTable(w, limits.Items) })
			}
			queues, err := calls.Queues(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(api.QueueList{Items: queues}, func(w io.Writer) error { return queueTable(w, queues) })
		},
	}
	cmd.AddCommand(
		c.limitVerb(),
		c.queueVerb("pause NAME", "Let nothing of a queue begin; what runs goes on", (*client.Client).Pause),
		c.queueVerb("resume NAME", "End pause and drain of a queue", (*client.Client).Resume),
		c.queueVerb("drain NAME", "Pause a queue to shut down: it is done once nothing of it runs", (*client.Client).Drain),
	)
	return cmd
}

// queueVerb is one that changes how a queue stands.
func (c *cli) queueVerb(use, short string, change func(*client.Client, context.Context, string, string) (api.Queue, error)) *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			q, err := change(calls, cmd.Context(), args[0], note)
			if err != nil {
				return err
			}
			return c.print(q, func(w io.Writer) error { return queueTable(w, []api.Queue{q}) })
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why, for people; tasks that wait show it")
	return cmd
}

// limitVerb changes the limits of a queue.
func (c *cli) limitVerb() *cobra.Command {
	limits := []struct{ flag, field, about string }{
		{"cap", "cap", "most attempts at once"},
		{"ns-cap", "ns_cap", "most attempts of one namespace at once"},
		{"max-queued", "max_queued", "most tasks of one namespace that wait"},
		{"rate", "rate", "most launches a second; default is no limit"},
		{"burst", "burst", "launches at once after a pause, where there is a rate"},
	}
	said := make([]string, len(limits))
	cmd := &cobra.Command{
		Use:   "limit NAME",
		Short: "Change the limits of a queue; the word default sets one back",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			fields := map[string]any{}
			for i, l := range limits {
				number, err := strconv.ParseFloat(said[i], 64)
				switch {
				case !cmd.Flags().Changed(l.flag):
				case said[i] == "default":
					fields[l.field] = nil
				case err != nil:
					return usageError{fmt.Errorf("--%s %q is no number, and not the word default", l.flag, said[i])}
				default:
					fields[l.field] = number
				}
			}
			if len(fields) == 0 {
				return usageError{errors.New("say which limit to change")}
			}
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			q, err := calls.ChangeQueue(cmd.Context(), args[0], fields)
			if err != nil {
				return err
			}
			return c.print(q, func(w io.Writer) error { return queueTable(w, []api.Queue{q}) })
		},
	}
	for i, l := range limits {
		cmd.Flags().StringVar(&said[i], l.flag, "", l.about)
	}
	return cmd
}

func queueTable(w io.Writer, queues []api.Queue) error {
	if err := line(w, "NAME", "STATE", "RUNNING", "CAP", "PER NAMESPACE", "QUEUED", "MAX QUEUED", "RATE", "NOTE"); err != nil {
		return err
	}
	for _, q := range queues {
		state, rate := "open", "-"
		switch {
		case q.Draining:
			state = "draining"
		case q.Paused:
			state = "paused"
		}
		if q.Rate != nil {
			rate = strconv.FormatFloat(*q.Rate, 'f', -1, 64) + "/s"
		}
		if err := line(w, q.Name, state, whole(q.Running), whole(q.Cap), whole(q.NsCap), whole(q.Queued), whole(q.MaxQueued), rate, q.Note); err != nil {
			return err
		}
	}
	return nil
}

func limitTable(w io.Writer, limits []api.QueueLimit) error {
	if err := line(w, "QUEUE", "RUNNING", "MAY RUN", "OF ALL", "QUEUED", "MAX QUEUED"); err != nil {
		return err
	}
	for _, l := range limits {
		if err := line(w, l.Queue, whole(l.Running), whole(l.NsCap), whole(l.Cap), whole(l.Queued), whole(l.MaxQueued)); err != nil {
			return err
		}
	}
	return nil
}

func whole(n int32) string { return strconv.Itoa(int(n)) }
