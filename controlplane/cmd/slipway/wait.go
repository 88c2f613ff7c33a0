package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/client"
)

func (c *cli) waitVerb() *cobra.Command {
	return c.completeTasks(&cobra.Command{
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
	}, isAny)
}

// await waits, shows a person how far the Task is, prints it and ends with the code of its outcome.
func (c *cli) await(ctx context.Context, calls *client.Client, id string) error {
	seen, over := func(api.Task) {}, func() {}
	if onTerminal(c.err) && c.output == asTable {
		b := bar{to: c.err, now: time.Now}
		seen, over = b.draw, b.clear
	}
	t, err := calls.Watch(ctx, id, seen)
	over()
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
