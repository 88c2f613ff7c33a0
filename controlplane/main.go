// Command controlplane is Slipway's control plane: `serve` answers the API and runs the loops, `migrate` brings the
// database to this binary's schema, `dev` needs neither a cluster nor a database. It is configured by its environment; `help` explains each variable.
//
// Allowed imports: controlplane/internal/app, controlplane/internal/dev.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"slipway.dev/slipway/controlplane/internal/app"
	"slipway.dev/slipway/controlplane/internal/dev"
)

// version is set by the linker in released binaries.
var version string

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

const usage = `Slipway's control plane.

  controlplane serve     answer the API and run the loops until SIGTERM
  controlplane migrate   bring the database to this binary's schema
  controlplane dev       try it: no cluster, a private PostgreSQL, commands run in this process; Ctrl-C removes it all
  controlplane version   say what this binary is
  controlplane help      print this

Environment, with defaults:

`

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // said why
	exitUsage  = 2
)

func run(args, environ []string, out, errOut io.Writer) int {
	verb := "help"
	if len(args) > 0 {
		verb = args[0]
	}
	for _, arg := range args {
		if arg == "-h" || arg == "--help" {
			verb = "help"
		}
	}
	if verb != "help" && len(args) > 1 {
		return complain(errOut, exitUsage, fmt.Errorf("%s takes no arguments; see controlplane help", verb))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	var err error
	switch verb {
	case "serve":
		err = serve(ctx, environ, errOut)
	case "migrate":
		err = migrate(ctx, environ, errOut)
	case "dev":
		err = dev.Run(ctx, environ, app.Version(version), out, errOut)
	case "version":
		v := app.Version(version)
		_, err = fmt.Fprintf(out, "slipway %s %s %s\n", v.Version, v.Commit, v.Go)
	case "help":
		if _, err = io.WriteString(out, usage); err == nil {
			err = app.Help(out)
		}
	default:
		return complain(errOut, exitUsage, fmt.Errorf("unknown command %q; see controlplane help", verb))
	}
	if err != nil {
		return complain(errOut, exitFailed, err)
	}
	return exitDone
}

func complain(w io.Writer, code int, err error) int {
	_, _ = fmt.Fprintf(w, "controlplane: %v\n", err) // there is no other place to say it
	return code
}

// collectAt is by how many percent the heap grows before its garbage is collected; GOGC sets another. A replica holds much
// of the cluster and makes little garbage: half of Go's usual 100 saves a quarter of its memory for 1 % of a processor.
const collectAt = 50

func serve(ctx context.Context, environ []string, errOut io.Writer) error {
	c, err := app.ReadConfig(environ)
	if err != nil {
		return fmt.Errorf("the configuration is wrong:\n%w", err)
	}
	if !slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, "GOGC=") }) {
		debug.SetGCPercent(collectAt)
	}
	return app.Run(ctx, c, app.Version(version), app.Logger(errOut, c.LogLevel))
}

func migrate(ctx context.Context, environ []string, errOut io.Writer) error {
	c, err := app.ReadMigrateConfig(environ)
	if err != nil {
		return fmt.Errorf("the configuration is wrong:\n%w", err)
	}
	return app.Migrate(ctx, c, app.Logger(errOut, c.LogLevel))
}
