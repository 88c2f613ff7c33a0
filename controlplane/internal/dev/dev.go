// Package dev is a control plane to try and to work on: a private PostgreSQL from the host's binaries, no cluster, commands
// run in the process itself, reachable on the loopback interface alone and by one token that nobody else knows. Nothing of
// it is left when it ends.
//
// Allowed imports: controlplane/internal/app, pkg/api, e2e/postgres, standard library.
package dev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"slipway.dev/slipway/controlplane/internal/app"
	"slipway.dev/slipway/e2e/postgres"
	"slipway.dev/slipway/pkg/api"
)

// database is one that every server has from its making on.
const database = "postgres"

// Run serves until ctx is done, then removes what it made. Of the environment it reads SLIPWAY_LISTEN, a loopback address
// (default 127.0.0.1:8080, or a free port where that is taken), and SLIPWAY_LOG_LEVEL (default warn).
func Run(ctx context.Context, environ []string, version api.Version, out, errOut io.Writer) (err error) {
	began := time.Now()
	listen, err := address(ctx, variable(environ, "LISTEN"))
	if err != nil {
		return err
	}
	level := variable(environ, "LOG_LEVEL")
	if level == "" {
		level = "warn"
	}
	log := app.Logger(errOut, level)
	server, err := postgres.Start(ctx, postgres.Options{Settings: map[string]string{"shared_buffers": "32MB", "max_connections": "40"}})
	if err != nil {
		return fmt.Errorf("start a private PostgreSQL: %w", err)
	}
	defer func() { err = errors.Join(err, server.Stop(postgres.Fast)) }()
	url := server.URL(database)
	if err := app.Migrate(ctx, app.MigrateConfig{DatabaseURL: url, StartWait: time.Minute}, log); err != nil {
		return err
	}
	token := rand.Text()
	return app.RunLocal(ctx, app.Local{
		DatabaseURL: url, Listen: listen, Token: token,
		Ready: func(at string) { _, _ = fmt.Fprintf(out, welcome, time.Since(began).Seconds(), at, token) }, // there is no other place to say it
	}, version, log)
}

const welcome = `Slipway is up after %.1f s, for you alone: http://%[2]s. No cluster; what you run, runs on this machine as you.
Ctrl-C removes everything, the database too. In another terminal:

  export SLIPWAY_SERVER=http://%[2]s SLIPWAY_TOKEN=%[3]s
  bin/slipway submit -n dev --wait -- sh -c 'echo hello' && bin/slipway list -n dev

or without the command line:

  curl -H "Authorization: Bearer $SLIPWAY_TOKEN" -H 'Content-Type: application/json' $SLIPWAY_SERVER/v1/tasks \
    -d '{"kind": "command.run", "namespace": "dev", "params": {"command": ["echo", "hello"]}}'
`

// address is where to listen.
func address(ctx context.Context, wish string) (string, error) {
	const usual, free = "127.0.0.1:8080", "127.0.0.1:0"
	for _, at := range []string{usual, free} {
		if wish != "" {
			at = wish
		}
		if host, _, err := net.SplitHostPort(at); err != nil || !net.ParseIP(host).IsLoopback() {
			return "", fmt.Errorf("SLIPWAY_LISTEN: %s is no loopback address with a port, as 127.0.0.1:8080", at)
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
		if err == nil {
			at = l.Addr().String()
			return at, l.Close()
		}
		if wish != "" {
			return "", fmt.Errorf("SLIPWAY_LISTEN: %w", err)
		}
	}
	return "", errors.New("there is no free port on 127.0.0.1")
}

func variable(environ []string, name string) string {
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, app.Prefix+name+"="); ok {
			return value
		}
	}
	return ""
}
