package main

import "github.com/spf13/cobra"

func (c *cli) cancelVerb() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Ask a task to stop",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			t, err := api.Cancel(cmd.Context(), args[0], note)
			if err != nil {
				return err
			}
			return c.printTask(t)
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why, for people; kept in the task's history")
	return c.completeTasks(cmd, isOpen)
}
