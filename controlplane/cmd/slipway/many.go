package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.dev/slipway/pkg/api"
)

// selecting are the flags of a verb that takes one Task or all that match.
type selecting struct {
	state, kind, queue, lane, reason string
	labels                           []string
	endedSince, endedUntil           time.Duration
	everywhere, preview, yes         bool
	expect                           int32

	own *pflag.FlagSet
}

// flags adds them to a verb.
func (s *selecting) flags(c *cli, cmd *cobra.Command, states ...string) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.StringVar(&s.state, "state", "", "all in this state")
	f.StringVar(&s.reason, "reason", "", "all with this reason, as exit_code or evicted")
	f.StringVar(&s.kind, "kind", "", "all of this kind")
	f.StringVar(&s.queue, "queue", "", "all of this queue")
	f.StringVar(&s.lane, "lane", "", "all of this lane")
	f.StringArrayVarP(&s.labels, "label", "l", nil, "all with this label, key=value; several must all match")
	f.DurationVar(&s.endedSince, "ended-since", 0, "all that ended at most so long ago, as 90m")
	f.DurationVar(&s.endedUntil, "ended-until", 0, "all that ended at least so long ago")
	f.BoolVarP(&s.everywhere, "all-namespaces", "A", false, "of all namespaces")
	f.BoolVar(&s.preview, "preview", false, "show what matches and do nothing; so it is without --yes")
	f.BoolVar(&s.yes, "yes", false, "do it")
	f.Int32Var(&s.expect, "expect", -1, "with --yes: only if exactly so many match")
	s.own = f
	cmd.Flags().AddFlagSet(f)
	cmd.MarkFlagsMutuallyExclusive("preview", "yes")
	c.completeKindFlag(cmd)
	completeWords(cmd, "state", states...)
}

// oneOrMany checks that a verb names one Task, or which.
func (s *selecting) oneOrMany(cmd *cobra.Command, args []string) error {
	if err := atMostOne()(cmd, args); err != nil {
		return err
	}
	chooses := false
	s.own.VisitAll(func(f *pflag.Flag) { chooses = chooses || f.Changed })
	switch {
	case len(args) == 0 && !chooses:
		return usageError{errors.New("name a task, or say by flags which ones")}
	case len(args) == 1 && chooses:
		return usageError{errors.New("name a task, or say by flags which ones, not both")}
	}
	return nil
}

func (s *selecting) filter(c *cli, now time.Time) (api.TaskFilter, error) {
	f := api.TaskFilter{State: api.State(s.state), Reason: s.reason, Kind: s.kind, Queue: s.queue, Lane: s.lane}
	if !s.everywhere {
		namespace, err := c.inNamespace()
		if err != nil {
			return f, err
		}
		f.Namespace = namespace
	}
	if err := addLabels(&f.Labels, s.labels); err != nil {
		return f, usageError{err}
	}
	if s.endedSince > 0 {
		f.EndedAfter = now.Add(-s.endedSince).UTC().Truncate(time.Second)
	}
	if s.endedUntil > 0 {
		f.EndedBefore = now.Add(-s.endedUntil).UTC().Truncate(time.Second)
	}
	return f, nil
}

// change is one request about many Tasks.
type change func(dryRun bool, expected *int32, selection, key string) (api.ManyResult, error)

// run shows what matches, and with --yes does it: exactly to those that were counted.
func (s *selecting) run(c *cli, verb string, do change) error {
	shown, err := do(true, nil, "", "")
	if err != nil {
		return err
	}
	if s.expect >= 0 && s.expect != shown.Count {
		return fmt.Errorf("%d tasks match, not %d", shown.Count, s.expect)
	}
	if !s.yes {
		return c.print(shown, func(w io.Writer) error { return previewTable(w, shown, verb) })
	}
	done, err := do(false, &shown.Count, shown.Selection, rand.Text())
	if err != nil {
		return err
	}
	return c.print(done, func(w io.Writer) error { return manyTable(w, done) })
}

func previewTable(w io.Writer, shown api.ManyResult, verb string) error {
	if err := line(w, "ID", "NAMESPACE", "KIND", "NAME", "STATE", "REASON", "ATTEMPTS", "AGE"); err != nil {
		return err
	}
	for _, t := range shown.Sample {
		err := line(w, t.ID, t.Namespace, t.Kind, t.Name, string(t.State), t.Reason, strconv.Itoa(int(t.AttemptsMade)), age(t.CreatedAt, time.Now()))
		if err != nil {
			return err
		}
	}
	for _, item := range shown.Items {
		if err := line(w, item.ID+" would be refused: "+item.Reason); err != nil {
			return err
		}
	}
	return line(w, fmt.Sprintf("%d tasks match. To %s them: --yes --expect %d", shown.Count, verb, shown.Count))
}

func manyTable(w io.Writer, done api.ManyResult) error {
	if err := line(w, "ID", "RESULT", "NEW TASK", "REASON"); err != nil {
		return err
	}
	for _, item := range done.Items {
		if err := line(w, item.ID, string(item.Result), item.Task, item.Reason); err != nil {
			return err
		}
	}
	return nil
}
