package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/client"
)

func (c *cli) schedulesVerb() *cobra.Command {
	var all bool
	list := func(cmd *cobra.Command, _ []string) error {
		_, found, err := c.schedules(cmd.Context(), all, "")
		if err != nil {
			return err
		}
		return c.print(api.SchedulePage{Items: found}, func(w io.Writer) error { return scheduleTable(w, found, time.Now()) })
	}
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "List schedules, and make, change, preview and run them",
		Args:  exactly(0),
		RunE:  list,
	}
	sub := &cobra.Command{Use: "list", Short: "List schedules", Args: exactly(0), RunE: list}
	for _, v := range []*cobra.Command{cmd, sub} {
		v.Flags().BoolVarP(&all, "all-namespaces", "A", false, "of every namespace")
	}
	cmd.AddCommand(sub, c.scheduleGetVerb(), c.scheduleCreateVerb(), c.scheduleApplyVerb(), c.scheduleExportVerb(),
		c.scheduleSwitchVerb("pause", "Let a schedule fire no more; nothing is made up for later", (*client.Client).PauseSchedule),
		c.scheduleSwitchVerb("resume", "Let a paused schedule fire again, with your rights", (*client.Client).ResumeSchedule),
		c.scheduleRunVerb(), c.schedulePreviewVerb(), c.scheduleFiresVerb(), c.scheduleBackfillVerb(), c.scheduleDeleteVerb(), c.collisionsVerb())
	return cmd
}

// schedules connects and lists the schedules of the namespace, or of all.
func (c *cli) schedules(ctx context.Context, all bool, name string) (*client.Client, []api.Schedule, error) {
	calls, err := c.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	var p api.ListSchedulesParams
	if !all {
		namespace, err := c.inNamespace()
		if err != nil {
			return nil, nil, err
		}
		p.Namespace = &namespace
	}
	if name != "" {
		p.Name = &name
	}
	found, err := calls.Schedules(ctx, p)
	return calls, found, err
}

var anID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// schedule connects and finds one schedule by its name in the namespace, or by its id.
func (c *cli) schedule(ctx context.Context, name string) (*client.Client, api.Schedule, error) {
	if anID.MatchString(name) {
		calls, err := c.connect(ctx)
		if err != nil {
			return nil, api.Schedule{}, err
		}
		found, err := calls.Schedule(ctx, name)
		return calls, found, err
	}
	calls, found, err := c.schedules(ctx, false, name)
	if err != nil {
		return nil, api.Schedule{}, err
	}
	if len(found) == 0 {
		return nil, api.Schedule{}, fmt.Errorf("there is no schedule %s, or it is not yours to see", name)
	}
	return calls, found[0], nil
}

func (c *cli) scheduleGetVerb() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a schedule", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, s, err := c.schedule(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.printSchedule(s)
		},
	}
}

func (c *cli) printSchedule(s api.Schedule) error {
	return c.print(s, func(w io.Writer) error { return pairs(w, scheduleRows(s)) })
}

func (c *cli) scheduleCreateVerb() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "create -f FILE", Short: "Make a schedule as the API takes it", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted, err := c.readBundle(file)
			if err != nil {
				return usageError{err}
			}
			if len(wanted) != 1 {
				return usageError{fmt.Errorf("the file holds %d schedules; apply takes many", len(wanted))}
			}
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			made, err := calls.CreateSchedule(cmd.Context(), wanted[0])
			if err != nil {
				return err
			}
			return c.printSchedule(made)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with the schedule in YAML or JSON; - is the input")
	return cmd
}

func (c *cli) scheduleSwitchVerb(verb, short string, do func(*client.Client, context.Context, string) (api.Schedule, error)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, s, err := c.schedule(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if s, err = do(calls, cmd.Context(), s.ID); err != nil {
				return err
			}
			return c.printSchedule(s)
		},
	}
}

func (c *cli) scheduleRunVerb() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use: "run NAME", Short: "Run a schedule now, once; also a paused one", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, s, err := c.schedule(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			fire, err := calls.RunSchedule(cmd.Context(), s.ID)
			if err != nil {
				return err
			}
			if wait {
				return c.await(cmd.Context(), calls, fire.Task)
			}
			return c.print(fire, func(w io.Writer) error { return fireTable(w, []api.Fire{fire}) })
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end; the exit code is the outcome")
	return cmd
}

func (c *cli) schedulePreviewVerb() *cobra.Command {
	var ask api.PreviewSchedule
	var from string
	n := 10
	cmd := &cobra.Command{
		Use:   "preview [NAME]",
		Short: "Show when a schedule will fire, or when one that is not stored would",
		Example: "  slipway schedules preview nightly --from 2026-03-28T00:00:00Z\n" +
			"  slipway schedules preview --cron '30 2 * * *' --zone Europe/Berlin",
		Args: atMostOne(),
		RunE: func(cmd *cobra.Command, args []string) error {
			after, err := readInstant("from", from)
			if err != nil {
				return err
			}
			var p api.SchedulePreview
			switch {
			case len(args) == 1 && (ask.Cron != "" || ask.Every != ""):
				return usageError{errors.New("give a name or a rule, not both")}
			case len(args) == 1:
				calls, s, err := c.schedule(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if p, err = calls.Preview(cmd.Context(), s.ID, after, n); err != nil {
					return err
				}
			default:
				calls, err := c.connect(cmd.Context())
				if err != nil {
					return err
				}
				if ask.Namespace, err = c.inNamespace(); err != nil {
					return err
				}
				ask.From, ask.N = after, int32(n)
				if p, err = calls.PreviewRule(cmd.Context(), ask); err != nil {
					return err
				}
			}
			return c.print(p, func(w io.Writer) error { return comingTable(w, p) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&ask.Cron, "cron", "", "a cron expression")
	f.StringVar(&ask.Every, "every", "", "an interval, as 90m")
	f.StringVar(&ask.Zone, "zone", "", "a time zone, as Europe/Berlin; default UTC")
	f.StringVar(&from, "from", "", "after this instant, as 2026-03-28T00:00:00Z; default now")
	f.IntVar(&n, "count", n, "how many, at most 100")
	return cmd
}

func (c *cli) scheduleFiresVerb() *cobra.Command {
	var outcome string
	n := 20
	cmd := &cobra.Command{
		Use: "fires NAME", Short: "List what became of each instant of a schedule, and why", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, s, err := c.schedule(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := calls.Fires(cmd.Context(), s.ID, outcome, n)
			if err != nil {
				return err
			}
			return c.print(api.FirePage{Items: all}, func(w io.Writer) error { return fireTable(w, all) })
		},
	}
	cmd.Flags().StringVar(&outcome, "outcome", "", "only fired, missed, skipped, blacked_out, forbidden, gap or refused")
	cmd.Flags().IntVar(&n, "limit", n, "how many, the newest first")
	completeWords(cmd, "outcome", "fired", "missed", "skipped", "blacked_out", "forbidden", "gap", "refused")
	return cmd
}

func (c *cli) scheduleBackfillVerb() *cobra.Command {
	var from, to string
	var want api.Backfill
	cmd := &cobra.Command{
		Use:     "backfill NAME --from INSTANT --to INSTANT",
		Short:   "Make up for instants of a range that have not fired; a repeat makes none twice",
		Example: "  slipway schedules backfill nightly --from 2026-06-01T00:00:00Z --to 2026-06-08T00:00:00Z --overlap queue",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if want.From, err = readInstant("from", from); err != nil {
				return err
			}
			if want.To, err = readInstant("to", to); err != nil {
				return err
			}
			if want.From.IsZero() || want.To.IsZero() {
				return usageError{errors.New("a backfill needs --from and --to")}
			}
			calls, s, err := c.schedule(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			done, err := calls.BackfillSchedule(cmd.Context(), s.ID, want)
			if err != nil {
				return err
			}
			return c.print(api.FireList{Items: done}, func(w io.Writer) error { return fireTable(w, done) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "the first instant may be at it")
	f.StringVar(&to, "to", "", "the last instant is before it")
	f.Int32Var(&want.Cap, "cap", 0, "at most so many; default 100")
	f.StringVar(&want.Order, "order", "", "which are taken first, oldest or newest; default oldest")
	f.StringVar(&want.Overlap, "overlap", "", "forbid, allow or queue; default the schedule's own policy")
	completeWords(cmd, "order", "oldest", "newest")
	completeWords(cmd, "overlap", "forbid", "allow", "queue")
	return cmd
}

func (c *cli) scheduleDeleteVerb() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a schedule and its ledger; its tasks stay", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, s, err := c.schedule(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return calls.DeleteSchedule(cmd.Context(), s.ID)
		},
	}
}

func readInstant(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, usageError{fmt.Errorf("--%s %q is no instant: write 2026-03-28T00:00:00Z", flag, text)}
	}
	return at, nil
}
