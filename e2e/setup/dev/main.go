// Command dev installs what `make dev` needs besides Go, where it is not there: PostgreSQL.
//
// Allowed imports: e2e/packages, e2e/postgres.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"slipway.dev/slipway/e2e/packages"
	"slipway.dev/slipway/e2e/postgres"
)

func main() {
	_, err := postgres.Binaries()
	if errors.Is(err, postgres.ErrNotInstalled) {
		err = packages.Ensure(context.Background(), os.Stdout, postgres.Needs...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "set up:", err)
		os.Exit(1)
	}
}
