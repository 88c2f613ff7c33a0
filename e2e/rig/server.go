package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"slipway.dev/slipway/e2e/packages"
	"slipway.dev/slipway/e2e/postgres"
)

// FillConnections takes every connection that the server has, also those of the replicas, until release.
func (r *Rig) FillConnections(t testing.TB) (release func()) {
	t.Helper()
	// A connection that is still being made has a place already and cannot be seen: one look that finds none proves nothing.
	const looks = 10
	clean := 0
	var held []*pgx.Conn
	release = func() {
		for _, c := range held {
			_ = c.Close(context.Background()) // the server has it back either way
		}
		held = nil
	}
	t.Cleanup(release)
	Eventually(t, "the server to have no connection left for a replica", func(ctx context.Context) (bool, error) {
		for {
			c, err := pgx.Connect(ctx, r.Postgres.URL(database))
			var refused *pgconn.PgError
			if errors.As(err, &refused) && refused.Code == "53300" {
				break
			}
			if err != nil {
				return false, err
			}
			held = append(held, c)
		}
		if len(held) == 0 {
			return false, errors.New("the server had none from the start")
		}
		var theirs int
		err := held[0].QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'slipway/%'").Scan(&theirs)
		if clean++; err != nil || theirs > 0 {
			clean = 0
			return false, fmt.Errorf("%d were theirs (%w)", theirs, err)
		}
		return clean == looks, nil
	})
	return release
}

// MoveTo makes another server the one that replicas behind a proxy reach, and the rig itself.
func (r *Rig) MoveTo(t testing.TB, server *postgres.Server) {
	t.Helper()
	r.Postgres = server
	for _, p := range r.Replicas {
		if p.Database == nil {
			t.Fatalf("move %s: no proxy stands before it", p.Name)
		}
		p.Database.Redirect(server.Address())
	}
}

// Pooler puts a transaction pooler before the rig's database and gives its URL.
func (r *Rig) Pooler(t testing.TB) string {
	t.Helper()
	if err := packages.Ensure(t.Context(), Progress, postgres.PoolerNeeds...); err != nil {
		t.Fatalf("install the pooler: %v", err)
	}
	p, err := r.Postgres.Pool(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stop the pooler: %v", err)
		}
	})
	return p.URL(database)
}

// Log is everything that the replica has said.
func (p *Replica) Log() string {
	raw, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// Rig is the Slipway that the runner calls.
func (p *PlayedRunner) Rig() *Rig { return p.call.rig }
