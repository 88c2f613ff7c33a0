package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (c *cli) deleteVerb() *cobra.Command {
	return c.completeTasks(&cobra.Command{
		Use:   "delete ID",
		Short: "Delete an ended task with its attempts, history and kept logs",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			if err := calls.Delete(cmd.Context(), args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.err, "deleted", args[0])
			return err
		},
	}, isEnded)
}
