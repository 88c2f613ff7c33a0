// Command slipway is the command line of Slipway's API: one file per verb.
//
// Allowed imports: pkg/client, pkg/api, cobra, and ./cluster, which alone talks to Kubernetes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// Exit codes besides those of outcomes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// outcomeCodes are the exit codes of `wait` and `submit --wait`.
var outcomeCodes = map[api.Outcome]int{
	api.OutcomeSucceeded: 0, api.OutcomeFailed: 3, api.OutcomeRejected: 4, api.OutcomeTimedOut: 5,
	api.OutcomeLost: 6, api.OutcomeCanceled: 7,
}

// streams are what a terminal is to us.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// cli is what all verbs share.
type cli struct {
	streams
	reach
	namespace, output string
}

// outcomeError ends the process with the code of an outcome; the Task itself was printed.
type outcomeError struct{ code int }

func (e *outcomeError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// usageError is a mistake in the command line.
type usageError struct{ error }

// run is the program: args begins with the name that it was called by.
func run(ctx context.Context, args []string, s streams) int {
	root := newRoot(&cli{streams: s}, calledAs(args[0]))
	root.SetArgs(args[1:])
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	var outcome *outcomeError
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &outcome):
		return outcome.code
	}
	_, _ = fmt.Fprintln(s.err, "slipway:", err) // there is no other place to say it
	if errors.As(err, &usage) || strings.HasPrefix(err.Error(), "unknown command") {
		return exitUsage
	}
	return exitFailed
}

// calledAs is what a person types for us: kubectl finds a plugin by its file's name.
func calledAs(file string) string {
	if strings.HasPrefix(filepath.Base(file), "kubectl-") {
		return "kubectl slipway"
	}
	return "slipway"
}

func newRoot(c *cli, name string) *cobra.Command {
	root := &cobra.Command{
		Use:         "slipway",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:       "Submit and watch tasks of Slipway",
		Long: "Submit and watch tasks of Slipway.\n\n" +
			"The exit code of `wait` and `submit --wait` is the outcome: 0 succeeded, 3 failed, 4 rejected, 5 timed out,\n" +
			"6 lost, 7 canceled. 1 is an error, 2 a mistake in the command line.",
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return c.checkOutput() }, // before anything is asked
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := root.PersistentFlags()
	c.reachFlags(f)
	f.StringVarP(&c.namespace, "namespace", "n", "", "namespace; default that of the kubeconfig's context")
	f.StringVarP(&c.output, "output", "o", asTable, "table, json or yaml")
	completeWords(root, "output", asTable, asJSON, asYAML)
	root.AddCommand(c.submitVerb(), c.getVerb(), c.listVerb(), c.logsVerb(), c.cancelVerb(), c.waitVerb(), c.versionVerb(),
		c.retryVerb(), c.editVerb(), c.deleteVerb(), c.holdVerb(), c.unholdVerb(), c.explainVerb(), c.treeVerb(), c.whyVerb(),
		c.kindsVerb(), c.queuesVerb(), c.limitsVerb(), c.lanesVerb(), c.freezesVerb(), c.schedulesVerb(), c.calendarsVerb(), c.auditVerb(),
		c.namespaceVerb(), c.releaseVerb())
	return root
}

// exactly and atMostOne are cobra's argument checks with our exit code.
func exactly(n int) cobra.PositionalArgs { return asUsage(cobra.ExactArgs(n)) }
func atMostOne() cobra.PositionalArgs    { return asUsage(cobra.MaximumNArgs(1)) }

func asUsage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
