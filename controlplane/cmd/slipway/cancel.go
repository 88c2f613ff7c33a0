package main

import (
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

func (c *cli) cancelVerb() *cobra.Command {
	var note string
	var which selecting
	cmd := &cobra.Command{
		Use:   "cancel [ID]",
		Short: "Ask a task to stop, or all that match",
		Long:  "Ask a task to stop.\n\nInstead of an id, flags say which queued and running ones of the namespace. Without --yes they are only shown.",
		Args:  which.oneOrMany,
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 0 {
				filter, err := which.filter(c, time.Now())
				if err != nil {
					return err
				}
				return which.run(c, "cancel", func(dryRun bool, expected *int32, selection, key string) (api.ManyResult, error) {
					ask := api.CancelTasks{Filter: filter, DryRun: dryRun, ExpectedCount: expected, Selection: selection, Note: note}
					return calls.CancelMany(cmd.Context(), ask, key)
				})
			}
			t, err := calls.Cancel(cmd.Context(), args[0], note)
			if err != nil {
				return err
			}
			return c.printTask(t)
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why, for people; kept in the task's history")
	which.flags(c, cmd, "queued", "running")
	return c.completeTasks(cmd, isOpen)
}
