package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"slipway.dev/slipway/controlplane/bench"
	"slipway.dev/slipway/e2e/bench/r1"
	"slipway.dev/slipway/e2e/bench/r2"
	"slipway.dev/slipway/e2e/bench/report"
)

// rigs are what can be measured; each adds its figures to a report.
var rigs = map[string]func(ctx context.Context, r *report.Report) error{"r0": bench.R0, "r1": r1.R1, "r2": r2.R2}

// out is where samples, figures and verdicts are kept.
const out = "e2e/bench/out"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("say which rigs: r0, r1, r2; or check")
	case len(args) == 1 && args[0] == "check":
		return report.Check(out, os.Stdout)
	}
	for _, name := range args {
		if rigs[name] == nil {
			return fmt.Errorf("no rig %q", name)
		}
	}
	r, err := report.New(out)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range args {
		if err := rigs[name](ctx, r); err != nil { // what was measured until then is shown all the same
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	errs = append(errs, r.Save())
	return errors.Join(append(errs, report.Check(out, os.Stdout))...)
}
