package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

func (c *cli) lanesVerb() *cobra.Command {
	cmd := &cobra.Command{
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
			return c.print(l, func(w io.Writer) error { return laneTable(w, l) })
		},
	}
	cmd.AddCommand(c.checkLanesVerb(), c.forceReleaseVerb())
	return cmd
}

func laneTable(w io.Writer, l api.LaneState) error {
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
	for _, p := range l.Line {
		words := []string{p.Task, p.Kind, string(p.Class)}
		if p.Held {
			words = append(words, "held")
		}
		if p.Absorbed > 0 {
			words = append(words, "absorbed "+whole(p.Absorbed))
		}
		rows = append(rows, [2]string{whole(p.Position), strings.Join(words, " ")})
	}
	return pairs(w, rows)
}

func (c *cli) checkLanesVerb() *cobra.Command {
	var repair bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Rebuild from the tasks what every lane must show, and compare",
		Long: "Rebuild from the tasks what every lane must show, and compare, some hundred lanes at a time and without a lock.\n" +
			"Nothing is to be found: the exit code is 1 where a lane differs and was not repaired.",
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			whole := api.LaneCheck{Differences: []api.LaneDifference{}}
			for ask := (api.CheckLanes{Repair: repair}); ; ask.After = whole.Next {
				some, err := calls.CheckLanes(cmd.Context(), ask)
				if err != nil {
					return err
				}
				whole.Checked, whole.Next = whole.Checked+some.Checked, some.Next
				whole.Differences = append(whole.Differences, some.Differences...)
				if some.Next == "" || some.Next == ask.After {
					break
				}
			}
			if err := c.print(whole, func(w io.Writer) error { return checkTable(w, whole) }); err != nil {
				return err
			}
			for _, d := range whole.Differences {
				if !d.Repaired {
					return errors.New("lanes differ from what their tasks say; --repair sets them right")
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "set right what differs; audited")
	return cmd
}

func checkTable(w io.Writer, c api.LaneCheck) error {
	if err := line(w, fmt.Sprintf("%d lanes checked, %d differences", c.Checked, len(c.Differences))); err != nil || len(c.Differences) == 0 {
		return err
	}
	if err := line(w, "LANE", "FIELD", "SHOWS", "MUST SHOW", "REPAIRED"); err != nil {
		return err
	}
	for _, d := range c.Differences {
		if err := line(w, d.Lane, d.Field, d.Shown, d.Derived, strconv.FormatBool(d.Repaired)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) forceReleaseVerb() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "force-release KEY --reason WHY",
		Short: "Take a lane from its holder without proof that it has stopped",
		Long: "End the attempt that holds a lane, though nothing has proven that it has stopped. What still runs of it runs beside\n" +
			"the next holder: be sure that its node is off, or that it cannot do harm. Its fence stores nothing any more.",
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return usageError{errors.New("say why with --reason")}
			}
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			done, err := calls.ForceRelease(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.print(done, func(w io.Writer) error {
				return pairs(w, [][2]string{
					{"task", done.Task},
					{"state", string(done.State)},
					{"attempt", whole(done.Attempt)},
					{"ended as", joined("/", string(done.Outcome), done.Reason)},
					{"may still run", strings.Join(done.MayStillRun, ", ")},
				})
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why it can do no harm, for people; audited")
	return cmd
}
