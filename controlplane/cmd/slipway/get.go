package main

import "github.com/spf13/cobra"

func (c *cli) getVerb() *cobra.Command {
	return c.completeTasks(&cobra.Command{
		Use:   "get ID",
		Short: "Show a task",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			t, err := api.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.printTask(t)
		},
	}, isAny)
}
