// Command slipway is the command line of Slipway's API: one file per verb.
//
// Allowed imports: pkg/client, pkg/api, cobra.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
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
	server, token, tokenFile, namespace, output string
}

// outcomeError ends the process with the code of an outcome; the Task itself was printed.
type outcomeError struct{ code int }

func (e *outcomeError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// usageError is a mistake in the command line.
type usageError struct{ error }

func run(ctx context.Context, args []string, s streams) int {
	root := newRoot(&cli{streams: s}) //nolint:contextcheck // cobra hands the context to the verbs
	root.SetArgs(args)
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

func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "slipway",
		Short: "Submit and watch tasks of Slipway",
		Long: "Submit and watch tasks of Slipway.\n\n" +
			"The exit code of `wait` and `submit --wait` is the outcome: 0 succeeded, 3 failed, 4 rejected, 5 timed out,\n" +
			"6 lost, 7 canceled. 1 is an error, 2 a mistake in the command line.",
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return c.checkOutput() }, // before anything is asked
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := root.PersistentFlags()
	f.StringVar(&c.server, "server", os.Getenv("SLIPWAY_SERVER"), "URL of the control plane (SLIPWAY_SERVER)")
	f.StringVar(&c.token, "token", "", "bearer token (SLIPWAY_TOKEN), as of `kubectl create token NAME --audience slipway`")
	f.StringVar(&c.tokenFile, "token-file", "", "file with the bearer token, read again for each request")
	f.StringVarP(&c.namespace, "namespace", "n", "", "namespace; default for submit, and filter for list")
	f.StringVarP(&c.output, "output", "o", "table", "table, json or yaml")
	root.AddCommand(c.submitVerb(), c.getVerb(), c.listVerb(), c.logsVerb(), c.cancelVerb(), c.waitVerb(), c.versionVerb())
	return root
}

// connect makes the client.
func (c *cli) connect() (*client.Client, error) {
	if c.server == "" {
		return nil, usageError{errors.New("say where the control plane is: --server or SLIPWAY_SERVER")}
	}
	made, err := client.New(client.Config{Server: c.server, Token: c.bearer()})
	if err != nil {
		return nil, usageError{err}
	}
	return made, nil
}

// bearer is where the token comes from; nil where there is none.
func (c *cli) bearer() func(context.Context) (string, error) {
	switch {
	case c.token != "":
		return client.StaticToken(c.token)
	case c.tokenFile != "":
		return func(context.Context) (string, error) {
			raw, err := os.ReadFile(c.tokenFile)
			return strings.TrimSpace(string(raw)), err
		}
	case os.Getenv("SLIPWAY_TOKEN") != "":
		return client.StaticToken(os.Getenv("SLIPWAY_TOKEN"))
	}
	return nil
}

// exactly is cobra's argument check with our exit code.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.ExactArgs(n)(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
