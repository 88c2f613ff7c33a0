package main

import "github.com/spf13/cobra"

func (c *cli) unholdVerb() *cobra.Command {
	return c.completeTasks(&cobra.Command{
		Use:   "unhold ID",
		Short: "Let a held task run",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			t, err := api.Unhold(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.printTask(t)
		},
	}, isQueued)
}
