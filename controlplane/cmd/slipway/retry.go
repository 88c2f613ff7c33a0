package main

import "github.com/spf13/cobra"

func (c *cli) retryVerb() *cobra.Command {
	var key string
	var wait bool
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Submit an ended task again, as a new one",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			made, err := api.Retry(cmd.Context(), args[0], key)
			if err != nil {
				return err
			}
			if !wait {
				return c.printTask(made.Task)
			}
			return c.await(cmd.Context(), api, made.Task.ID)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "idempotency key: sending the same again gives the same task")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end; the exit code is the outcome")
	return c.completeTasks(cmd, isEnded)
}
