package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

func (c *cli) kindsVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kinds [NAME]",
		Short: "List what can be run, or show one kind with its defaults",
		Args:  atMostOne(),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			kinds, err := calls.Kinds(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return c.print(api.KindList{Items: kinds}, func(w io.Writer) error { return kindTable(w, kinds) })
			}
			at := slices.IndexFunc(kinds, func(k api.Kind) bool { return k.Name == args[0] })
			if at < 0 {
				return fmt.Errorf("there is no kind %s", args[0])
			}
			return c.printKind(kinds[at])
		},
		ValidArgsFunction: c.completeKinds,
	}
	cmd.AddCommand(
		c.kindSwitchVerb("off", "Let no task of a kind begin; they are accepted and kept"),
		c.kindSwitchVerb("inline", "Run what may of a kind in the control plane's own process"), c.kindOnVerb())
	return cmd
}

// kindSwitchVerb switches a kind to an executor.
func (c *cli) kindSwitchVerb(executor, short string) *cobra.Command {
	to := api.ChangeKind{Executor: executor}
	cmd := &cobra.Command{
		Use:   executor + " NAME",
		Short: short,
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("percent") && (to.Percent < 1 || to.Percent > 100) {
				return usageError{fmt.Errorf("--percent %d is no number from 1 to 100", to.Percent)}
			}
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			k, err := calls.Switch(cmd.Context(), args[0], to)
			if err != nil {
				return err
			}
			return c.printKind(k)
		},
		ValidArgsFunction: c.completeKinds,
	}
	cmd.Flags().StringVar(&to.Reason, "reason", "", "why, for people; tasks that wait show it")
	cmd.Flags().Int32Var(&to.Percent, "percent", 0, "of how many lanes in a hundred, always the same ones; all of them without")
	return cmd
}

func (c *cli) kindOnVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "on NAME",
		Short: "Let a kind run as its default says",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			k, err := calls.SwitchBack(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.printKind(k)
		},
		ValidArgsFunction: c.completeKinds,
	}
}

func kindTable(w io.Writer, kinds []api.Kind) error {
	if err := line(w, "NAME", "EXECUTOR", "QUEUE", "LANE", "MODE", "ON CONFLICT", "ATTEMPTS", "RUN DEADLINE", "DESCRIPTION"); err != nil {
		return err
	}
	for _, k := range kinds {
		err := line(w, k.Name, k.Executor, k.Queue, orDash(k.Lane), string(k.Mode), string(k.OnConflict),
			orDash(number(k.Spec.Retry.Attempts)), orDash(seconds(k.Spec.RunDeadline)), k.Description)
		if err != nil {
			return err
		}
	}
	return nil
}

// printKind shows a kind with every default that a submit may change.
func (c *cli) printKind(k api.Kind) error {
	s := k.Spec
	rows := [][2]string{
		{"name", k.Name},
		{"description", k.Description},
		{"executor", k.Executor},
		{"queue", k.Queue},
		{"lane", k.Lane},
		{"objects", objects(k.Objects)},
		{"mode", string(k.Mode)},
		{"on conflict", string(k.OnConflict)},
		{"supersedes", strings.Join(k.Supersedes, ", ")},
		{"any image", yes(k.AnyImage)},
		{"may run inline", yes(k.InlineOk)},
		{"image", s.Image},
		{"service account", s.ServiceAccount},
		{"idempotent", yesOrNo(s.Idempotent)},
		{"attempts", number(s.Retry.Attempts)},
		{"lost budget", number(s.Retry.Lost)},
		{"back-off", joined(", at most ", seconds(s.Retry.Backoff), seconds(s.Retry.Cap))},
		{"run deadline", seconds(s.RunDeadline)},
		{"start deadline", joined(", waiting for room ", seconds(s.StartDeadline), seconds(s.CapacityDeadline))},
		{"queue deadline", seconds(s.QueueDeadline)},
		{"grace", seconds(s.Grace)},
		{"fence after", seconds(s.FenceAfter)},
	}
	if k.Free {
		rows = append(rows, [2]string{"needs", "create jobs.batch in the namespace: its caller says what runs"})
	}
	if len(k.Secrets) > 0 {
		needs := "each a secretRef; needs create jobs.batch in the namespace, or get of the Secret"
		rows = append(rows, [2]string{"secrets", strings.Join(k.Secrets, ", ") + ": " + needs})
	}
	if sw := k.Switched; sw != nil {
		rows = append(rows, [2]string{"switched", joined(": ", fmt.Sprintf("to %s for %d%% of the lanes, %s by %s", sw.Executor, sw.Percent, instant(sw.At), sw.By), sw.Reason)})
	}
	return c.print(k, func(w io.Writer) error { return pairs(w, rows) })
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

func yesOrNo(is *bool) string {
	if is == nil {
		return ""
	}
	return map[bool]string{true: "yes", false: "no"}[*is]
}

func number(n *int32) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(int(*n))
}

// seconds writes a duration as a person would; none, and zero for no bound, are empty.
func seconds(s *float64) string {
	if s == nil || *s == 0 {
		return ""
	}
	text := time.Duration(*s * float64(time.Second)).String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

func (c *cli) completeKinds(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	calls, err := c.connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	kinds, err := calls.Kinds(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, k := range kinds {
		names = append(names, cobra.CompletionWithDesc(k.Name, k.Description))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeKindFlag lets a shell complete --kind.
func (c *cli) completeKindFlag(cmd *cobra.Command) {
	complete := func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return c.completeKinds(cmd, nil, typed)
	}
	if err := cmd.RegisterFlagCompletionFunc("kind", complete); err != nil {
		panic(err) // no such flag: a mistake of ours, seen by every test
	}
}
