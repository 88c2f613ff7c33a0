package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

func (c *cli) freezesVerb() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "freezes",
		Short: "List the freezes that hold for a namespace",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			namespace := ""
			if !all {
				if namespace, err = c.inNamespace(); err != nil {
					return err
				}
			}
			found, err := calls.Freezes(cmd.Context(), namespace)
			if err != nil {
				return err
			}
			return c.print(api.FreezeList{Items: found}, func(w io.Writer) error { return freezeTable(w, found, time.Now()) })
		},
	}
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "of every namespace")
	cmd.AddCommand(c.freezeVerb(), c.thawVerb())
	return cmd
}

func (c *cli) freezeVerb() *cobra.Command {
	var all bool
	var want api.CreateFreeze
	var lasting time.Duration
	cmd := &cobra.Command{
		Use:   "create --reason WHY --for DURATION",
		Short: "Let nothing begin in a namespace, in a queue or at all, for a while; what runs goes on",
		Example: "  slipway freezes create -n shop --reason 'storage is being moved' --for 2h\n" +
			"  slipway freezes create -A --queue backup --reason 'the bucket is full' --for 30m",
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if want.Reason == "" || lasting <= 0 {
				return usageError{errors.New("a freeze needs --reason and --for")}
			}
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			if !all {
				if want.Namespace, err = c.inNamespace(); err != nil {
					return err
				}
			}
			want.Seconds = lasting.Seconds()
			made, err := calls.Freeze(cmd.Context(), want)
			if err != nil {
				return err
			}
			return c.print(made, func(w io.Writer) error { return freezeTable(w, []api.Freeze{made}, time.Now()) })
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&all, "all-namespaces", "A", false, "in every namespace")
	f.StringVar(&want.Queue, "queue", "", "for this queue alone")
	f.StringVar(&want.Reason, "reason", "", "why, for people; tasks that wait show it")
	f.DurationVar(&lasting, "for", 0, "how long, as 90m; at most 720h")
	return cmd
}

func (c *cli) thawVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "end ID",
		Short: "End a freeze before its time",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return usageError{fmt.Errorf("%q is no number of a freeze", args[0])}
			}
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			return calls.Thaw(cmd.Context(), id)
		},
	}
}

func freezeTable(w io.Writer, all []api.Freeze, now time.Time) error {
	if err := line(w, "ID", "NAMESPACE", "QUEUE", "BY", "ENDS IN", "REASON"); err != nil {
		return err
	}
	for _, f := range all {
		if err := line(w, strconv.FormatInt(f.ID, 10), every(f.Namespace), every(f.Queue), f.Actor, age(now, f.ExpiresAt), f.Reason); err != nil {
			return err
		}
	}
	return nil
}

func every(name string) string {
	if name == "" {
		return "all"
	}
	return name
}
