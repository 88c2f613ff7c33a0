package main

import "github.com/spf13/cobra"

func (c *cli) holdVerb() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "hold ID",
		Short: "Keep a queued task from running; those behind it in its lane wait too",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			t, err := api.Hold(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.printTask(t)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for people; whoever waits sees it")
	return c.completeTasks(cmd, isQueued)
}
