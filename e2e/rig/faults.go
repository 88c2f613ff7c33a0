package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"

	"slipway.dev/slipway/e2e/proxy"
)

// standBehind puts the fault proxies between the replica and what it talks to.
func (p *Replica) standBehind(t testing.TB, seed uint64) {
	t.Helper()
	database, err := proxy.NewPostgres(context.Background(), proxy.PostgresOptions{Upstream: p.rig.Postgres.Address(), Seed: seed})
	if err != nil {
		t.Fatalf("stand between %s and the database: %v", p.Name, err)
	}
	t.Cleanup(database.Close)
	p.Database = database
	p.behindAPI(t, seed)
}

func (p *Replica) databaseURL() string {
	direct := p.rig.Postgres.TCP(database)
	if p.Database == nil {
		return direct
	}
	through, err := p.Database.URL(direct)
	if err != nil {
		return direct // the rig has made it: it parses
	}
	return through
}

// Freeze stops the process where it stands, until Wake; it is stopped when Freeze returns.
func (p *Replica) Freeze(t testing.TB) {
	t.Helper()
	p.send(t, syscall.SIGSTOP)
	Eventually(t, p.Name+" to stand still", func(context.Context) (bool, error) {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return false, err
		}
		_, rest, _ := bytes.Cut(raw, []byte(") ")) // the name before it is ours
		return bytes.HasPrefix(rest, []byte("T")), nil
	})
}

// Wake lets a frozen process go on.
func (p *Replica) Wake(t testing.TB) {
	t.Helper()
	p.send(t, syscall.SIGCONT)
}
