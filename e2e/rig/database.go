package rig

import (
	"context"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
)

func execute(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}

// Exec runs one statement on the rig's database.
func (r *Rig) Exec(t testing.TB, sql string) {
	t.Helper()
	if err := execute(t.Context(), r.Postgres.URL(database), sql); err != nil {
		t.Fatalf("run %q: %v", sql, err)
	}
}

// TerminateBackends cuts every connection of the replicas.
func (r *Rig) TerminateBackends(t testing.TB) {
	t.Helper()
	r.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
}

// EmptyDatabase makes one more database on the rig's server and gives its URL.
func (r *Rig) EmptyDatabase(t testing.TB) string {
	t.Helper()
	name := "empty_" + randomText(8)
	if err := execute(t.Context(), r.Postgres.URL("postgres"), "CREATE DATABASE "+name); err != nil {
		t.Fatalf("make a database: %v", err)
	}
	return r.Postgres.TCP(name)
}

// Migrate runs the migration step on a database and gives what it said.
func (r *Rig) Migrate(t testing.TB, url string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), r.options.Version.binary(t), "migrate")
	cmd.Env = flat(map[string]string{"SLIPWAY_DATABASE_URL": url})
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *Rig) createDatabase(t testing.TB) {
	t.Helper()
	if err := execute(t.Context(), r.Postgres.URL("postgres"), "CREATE DATABASE "+database); err != nil {
		t.Fatalf("make the database: %v", err)
	}
	if out, err := r.Migrate(t, r.Postgres.TCP(database)); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
}

// Instance is the id of this Slipway, as its Jobs carry it.
func (r *Rig) Instance(t testing.TB) string {
	t.Helper()
	return r.Value(t, "SELECT instance::text FROM slipway.meta")
}

// Value reads one text from the rig's database.
func (r *Rig) Value(t testing.TB, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), r.Postgres.URL(database))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(context.Background())
	var text string
	if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatalf("run %q: %v", sql, err)
	}
	return text
}
