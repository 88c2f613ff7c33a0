// Command setup installs and builds what the tests need and says what it is doing: Debian packages, Kubernetes from its
// modules, the images. It may be repeated at any time, and does nothing where all is there.
//
// Allowed imports: the rig's own parts (e2e/...).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/images/archive"
	"slipway.dev/slipway/e2e/packages"
	"slipway.dev/slipway/e2e/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context) error {
	// The race detector links against the C library; the examples of the API are in Python and for curl.
	needs := append([]packages.Need{
		{File: "gcc", Package: "gcc"},
		{File: "/usr/include/stdlib.h", Package: "libc6-dev"},
		{File: "python3", Package: "python3"},
		{File: "curl", Package: "curl"},
		{File: "jq", Package: "jq"},
	}, postgres.Needs...)
	needs = append(needs, local.Needs...)
	if err := packages.Ensure(ctx, os.Stdout, needs...); err != nil {
		return err
	}
	if _, err := local.Build(ctx, os.Stdout); err != nil {
		return err
	}
	_, err := archive.Build(ctx, archive.Options{Log: os.Stdout})
	return err
}
