package main

import (
	"context"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/client"
)

func (c *cli) waitVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a task has ended; the exit code is the outcome",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			return c.await(cmd.Context(), api, args[0])
		},
	}
}

// await waits, prints the Task and ends with the code of its outcome.
func (c *cli) await(ctx context.Context, calls *client.Client, id string) error {
	t, err := calls.Wait(ctx, id)
	if err != nil {
		return err
	}
	if err := c.printTask(t); err != nil {
		return err
	}
	if code := exitCode(t); code != exitDone {
		return &outcomeError{code: code}
	}
	return nil
}

func exitCode(t api.Task) int {
	if t.State == api.StateSucceeded {
		return exitDone
	}
	outcome := t.Outcome
	if outcome == "" || outcome == api.OutcomeSucceeded { // it ended without an attempt, or against its word
		outcome = api.Outcome(t.State)
	}
	if code, ok := outcomeCodes[outcome]; ok {
		return code
	}
	return exitFailed
}
