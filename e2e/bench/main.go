package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"slipway.dev/slipway/controlplane/bench"
	"slipway.dev/slipway/e2e/bench/r2"
	"slipway.dev/slipway/e2e/bench/report"
)

// rigs are what can be measured; each adds its metrics to a report.
var rigs = map[string]func(ctx context.Context, r *report.Report) error{"r0": bench.R0, "r2": r2.R2}

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
	if len(args) == 0 {
		return fmt.Errorf("say which rigs: r0, r2")
	}
	r, err := report.New("e2e/bench/out")
	if err != nil {
		return err
	}
	for _, name := range args {
		rig, ok := rigs[name]
		if !ok {
			return fmt.Errorf("no rig %q", name)
		}
		if err := rig(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return r.Write(os.Stdout)
}
