package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/client"
)

func (c *cli) logsVerb() *cobra.Command {
	var attempt, tail int32
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Show the log of a task's newest attempt",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var p api.GetLogsParams
			if attempt > 0 {
				p.Attempt = &attempt
			}
			if tail > 0 {
				p.Tail = &tail
			}
			if follow {
				p.Follow = &follow
			}
			return c.logs(cmd.Context(), args[0], p)
		},
	}
	f := cmd.Flags()
	f.Int32Var(&attempt, "attempt", 0, "number of the attempt, from 1; default the newest")
	f.Int32Var(&tail, "tail", 0, "only so many lines from the end; default all")
	f.BoolVarP(&follow, "follow", "f", false, "wait for the start, and stay until the end")
	return c.completeTasks(cmd, isAny)
}

func (c *cli) logs(ctx context.Context, id string, p api.GetLogsParams) error {
	calls, err := c.connect(ctx)
	if err != nil {
		return err
	}
	log, err := openLog(ctx, calls, id, p)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // it was only read
	if _, err := io.Copy(c.out, log); err != nil && ctx.Err() == nil {
		return fmt.Errorf("read the log: %w", err)
	}
	return nil
}

// openLog opens a log; a follower waits for it to begin.
func openLog(ctx context.Context, calls *client.Client, id string, p api.GetLogsParams) (*client.Log, error) {
	for {
		log, err := calls.Logs(ctx, id, p)
		var no *client.Error
		if err == nil || p.Follow == nil || !errors.As(err, &no) || !strings.HasSuffix(no.Type, ":not_started") && !strings.HasSuffix(no.Type, ":not_kept_yet") {
			return log, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
