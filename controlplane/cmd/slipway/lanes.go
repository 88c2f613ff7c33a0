package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"
)

func (c *cli) lanesVerb() *cobra.Command {
	return &cobra.Command{
		Use:     "lanes KEY",
		Short:   "Show what stands in a lane, and why its head waits",
		Example: "  slipway lanes volume:shop/data",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			l, err := calls.Lane(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			rows := [][2]string{
				{"key", l.Key},
				{"queue", l.Queue},
				{"namespace", l.Namespace},
				{"kind", l.Kind},
				{"holder", l.Holder},
				{"head", l.Head},
				{"queued", whole(l.Queued)},
				{"fence", strconv.FormatInt(l.Fence, 10)},
			}
			if l.Waiting != nil {
				rows = append(rows, [2]string{"waits for", joined(": ", l.Waiting.Reason, l.Waiting.Note)})
			}
			return c.print(l, func(w io.Writer) error { return pairs(w, rows) })
		},
	}
}
