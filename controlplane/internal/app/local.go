package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"slipway.dev/slipway/controlplane/internal/certs"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
)

// Local is a control plane without a cluster: what it runs, it runs in its own process, for whoever knows its token.
type Local struct {
	DatabaseURL string // migrated
	Listen      string // on the loopback interface
	Token       string
	// Ready is told the address once it listens.
	Ready func(address string)
}

// RunLocal serves until ctx is done and everything has ended in order.
func RunLocal(ctx context.Context, l Local, version api.Version, log *slog.Logger) error {
	at, err := netip.ParseAddrPort(l.Listen)
	if err != nil || !at.Addr().IsLoopback() {
		return fmt.Errorf("listen on %s: is no loopback address with a port, as 127.0.0.1:8080", l.Listen)
	}
	if l.Token == "" {
		return errors.New("serve without a cluster: there is no token")
	}
	c, err := ReadConfig([]string{ // what stays at its default and is never asked for here
		Prefix + "DATABASE_URL=" + l.DatabaseURL, Prefix + "LISTEN=" + l.Listen, Prefix + "PLAIN_HTTP=true", Prefix + "NAMESPACES=*",
		Prefix + "RUNNER_IMAGE=none", Prefix + "RUNNER_URL=http://" + l.Listen, Prefix + "INLINE_KINDS=command.run", Prefix + "REPLICA=dev",
		Prefix + "DRAIN=0s",
	})
	if err != nil {
		return err
	}
	db, err := openStore(ctx, c, log)
	if err != nil {
		return err
	}
	defer db.Close()
	files, err := certs.Open(certs.Config{Every: time.Minute, Log: log})
	if err != nil {
		return err
	}
	p := plane{config: c, version: version, log: log, store: db, cluster: noCluster{l.Token}, counts: newCounts(), ready: l.Ready}
	if p.kinds, err = kinds.Local(c.upkeepKinds()...); err != nil {
		return err
	}
	return p.run(ctx, files)
}
