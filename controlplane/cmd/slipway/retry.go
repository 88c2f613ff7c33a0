package main

import (
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

func (c *cli) retryVerb() *cobra.Command {
	var key string
	var wait, all bool
	var which selecting
	cmd := &cobra.Command{
		Use:   "retry [ID]",
		Short: "Submit an ended task again, as a new one, or all that match",
		Long: "Submit an ended task again, as a new one.\n\n" +
			"Instead of an id, flags say which: failed ones of the namespace unless --state says otherwise, each at most once. Without\n" +
			"--yes they are only shown.",
		Args: which.oneOrMany,
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
				return which.run(c, "retry", func(dryRun bool, expected *int32, selection, key string) (api.ManyResult, error) {
					return calls.RetryMany(cmd.Context(), api.RetryTasks{Filter: filter, DryRun: dryRun, ExpectedCount: expected, Selection: selection}, key)
				})
			}
			again := calls.Retry
			if all {
				again = calls.RetryAll
			}
			made, err := again(cmd.Context(), args[0], key)
			if err != nil {
				return err
			}
			if !wait {
				return c.printTask(made.Task)
			}
			return c.await(cmd.Context(), calls, made.Task.ID)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "idempotency key: sending the same again gives the same task")
	cmd.Flags().BoolVar(&all, "all", false, "of a composite task also the children that succeeded")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end; the exit code is the outcome")
	which.flags(c, cmd, "failed", "canceled", "succeeded")
	return c.completeTasks(cmd, isEnded)
}
