package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/client"
)

// Bounds of what a shell's completion asks for: a person waits for it with a finger on the key.
const (
	completeWithin = 3 * time.Second
	completeMost   = int32(50)
)

func isEnded(t api.Task) bool  { return client.Ended(t) }
func isOpen(t api.Task) bool   { return !client.Ended(t) }
func isQueued(t api.Task) bool { return t.State == api.StateQueued }
func isAny(api.Task) bool      { return true }

// completeTasks lets a shell complete the id of a Task that a verb can take.
func (c *cli) completeTasks(cmd *cobra.Command, fits func(api.Task) bool) *cobra.Command {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		found, err := c.newest(ctx)
		if err != nil { // there is nowhere to say it
			return nil, cobra.ShellCompDirectiveError
		}
		var ids []string
		for _, t := range found {
			if fits(t) {
				ids = append(ids, cobra.CompletionWithDesc(t.ID, t.Kind+" "+string(t.Phase)+" "+t.Name))
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
	return cmd
}

// newest reads the newest Tasks of the namespace.
func (c *cli) newest(ctx context.Context) ([]api.Task, error) {
	calls, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	most := completeMost
	params := api.ListTasksParams{Limit: &most}
	namespace, err := c.inNamespace()
	if err != nil {
		return nil, err
	}
	given(&params.Namespace, namespace)
	page, err := calls.List(ctx, params)
	return page.Items, err
}

// completeWords lets a shell complete a flag that takes one of a few words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag: a mistake of ours, seen by every test
	}
}
