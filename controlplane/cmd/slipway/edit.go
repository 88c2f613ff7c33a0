package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/client"
)

func (c *cli) editVerb() *cobra.Command {
	var class, runAt string
	cmd := &cobra.Command{
		Use:   "edit ID",
		Short: "Change how urgent a queued task is, or when it may run",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			change := client.Change{Class: class}
			switch at, err := time.Parse(time.RFC3339, runAt); {
			case runAt == "now":
				change.Now = true
			case runAt != "" && err != nil:
				return usageError{fmt.Errorf("--run-at %q is neither now nor an instant as 2026-11-30T18:00:00Z", runAt)}
			case runAt != "":
				change.RunAt = at
			case class == "":
				return usageError{fmt.Errorf("say what to change: --class or --run-at")}
			}
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			t, err := calls.Change(cmd.Context(), args[0], change)
			if err != nil {
				return err
			}
			return c.printTask(t)
		},
	}
	cmd.Flags().StringVar(&class, "class", "", "critical, high, normal or low")
	cmd.Flags().StringVar(&runAt, "run-at", "", "not before this instant, as 2026-11-30T18:00:00Z; now lets it run at once")
	completeWords(cmd, "class", "critical", "high", "normal", "low")
	return c.completeTasks(cmd, isQueued)
}
