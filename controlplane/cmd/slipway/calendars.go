package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

func (c *cli) calendarsVerb() *cobra.Command {
	var all bool
	list := func(cmd *cobra.Command, _ []string) error {
		calls, err := c.connect(cmd.Context())
		if err != nil {
			return err
		}
		namespace, err := c.orAll(all)
		if err != nil {
			return err
		}
		found, err := calls.Calendars(cmd.Context(), namespace)
		if err != nil {
			return err
		}
		return c.print(api.CalendarList{Items: found}, func(w io.Writer) error { return calendarTable(w, found) })
	}
	cmd := &cobra.Command{
		Use: "calendars", Short: "List the calendars of times in which nothing fires, and change them", Args: exactly(0), RunE: list,
	}
	sub := &cobra.Command{Use: "list", Short: "List calendars", Args: exactly(0), RunE: list}
	cmd.AddCommand(sub, c.calendarGetVerb(&all), c.calendarSetVerb(&all), c.calendarDeleteVerb(&all))
	cmd.PersistentFlags().BoolVarP(&all, "all-namespaces", "A", false, "of all namespaces together, instead of one")
	return cmd
}

// orAll is the namespace in use, or none for what is of all of them.
func (c *cli) orAll(all bool) (string, error) {
	if all {
		return "", nil
	}
	return c.inNamespace()
}

func (c *cli) calendarGetVerb(all *bool) *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a calendar", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			namespace, err := c.orAll(*all)
			if err != nil {
				return err
			}
			found, err := calls.Calendar(cmd.Context(), namespace, args[0])
			if err != nil {
				return err
			}
			return c.printCalendar(found)
		},
	}
}

func (c *cli) calendarSetVerb(all *bool) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "set NAME -f FILE",
		Short:   "Make a calendar, or make it what the file says",
		Example: "  slipway calendars set freeze -f - <<< 'windows: [{from: 2026-12-24T00:00:00Z, to: 2026-12-27T00:00:00Z}]'",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := c.readCalendar(file)
			if err != nil {
				return usageError{err}
			}
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			namespace, err := c.orAll(*all)
			if err != nil {
				return err
			}
			now, err := calls.SetCalendar(cmd.Context(), namespace, args[0], want)
			if err != nil {
				return err
			}
			return c.printCalendar(now)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with windows, for_all and note in YAML or JSON; - is the input")
	return cmd
}

func (c *cli) readCalendar(file string) (want api.SetCalendar, err error) {
	const what = "the calendar"
	raw, err := c.readInput(file, what)
	if err != nil {
		return want, err
	}
	if _, err := decodeStrict(raw, &want); err != nil {
		return want, fmt.Errorf("read %s: %w", what, err)
	}
	return want, nil
}

func (c *cli) calendarDeleteVerb(all *bool) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a calendar that no schedule names", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			namespace, err := c.orAll(*all)
			if err != nil {
				return err
			}
			return calls.DeleteCalendar(cmd.Context(), namespace, args[0])
		},
	}
}

func (c *cli) printCalendar(one api.Calendar) error {
	return c.print(one, func(w io.Writer) error { return calendarTable(w, []api.Calendar{one}) })
}

func calendarTable(w io.Writer, all []api.Calendar) error {
	if err := line(w, "NAMESPACE", "NAME", "HOLDS FOR", "WINDOW", "NOTE"); err != nil {
		return err
	}
	for _, c := range all {
		holds := "who names it"
		if c.ForAll {
			holds = "all"
		}
		for i, b := range c.Windows {
			cells := []string{every(c.Namespace), c.Name, holds, windowText(b), c.Note}
			if i > 0 {
				cells = []string{"", "", "", windowText(b), ""}
			}
			if err := line(w, cells...); err != nil {
				return err
			}
		}
		if len(c.Windows) == 0 {
			if err := line(w, every(c.Namespace), c.Name, holds, "-", c.Note); err != nil {
				return err
			}
		}
	}
	return nil
}

func windowText(b api.Blackout) string {
	name := b.Name
	if name != "" {
		name += ": "
	}
	if b.Cron != "" {
		return name + b.Cron + " " + b.Zone + " for " + (time.Duration(b.For) * time.Second).String()
	}
	return name + instant(b.From) + " to " + instant(b.To)
}

func (c *cli) collisionsVerb() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "collisions", Short: "List the minutes of the coming day in which several schedules fire, the fullest first", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			namespace, err := c.orAll(all)
			if err != nil {
				return err
			}
			found, err := calls.Collisions(cmd.Context(), namespace)
			if err != nil {
				return err
			}
			return c.print(api.CollisionList{Items: found}, func(w io.Writer) error {
				if err := line(w, "MINUTE", "SCHEDULES", "WHICH"); err != nil {
					return err
				}
				for _, one := range found {
					which := strings.Join(one.Schedules, " ")
					if left := int(one.Count) - len(one.Schedules); left > 0 {
						which += fmt.Sprintf(" and %d more", left)
					}
					if err := line(w, instant(one.Minute), strconv.Itoa(int(one.Count)), which); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "of every namespace")
	return cmd
}
