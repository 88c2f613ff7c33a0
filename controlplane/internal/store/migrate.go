package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"slipway.dev/slipway/controlplane/internal/failpoint"
	"slipway.dev/slipway/migrations"
)

const versionTable = "slipway.goose_db_version"

// Migrate brings the schema to this binary's version. Replicas may call it at once: one works, the others wait, with
// a bound and a log line, and find nothing left to do.
func Migrate(ctx context.Context, url string, log *slog.Logger) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return errors.New("read the database URL: it does not parse")
	}
	cfg.RuntimeParams["application_name"] = "slipway/migrate"
	cfg.RuntimeParams["search_path"] = "slipway"
	if err := refusePooler(ctx, cfg); err != nil {
		return err
	}
	db := stdlib.OpenDB(*cfg)
	defer func() { _ = db.Close() }() // nothing is kept in it
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files,
		goose.WithTableName(versionTable),
		goose.WithSessionLocker(&migrationLock{log: log, patience: migrationPatience}),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	if err := makeSchema(ctx, db); err != nil {
		return classify(ctx, err)
	}
	done, err := p.Up(ctx)
	if err != nil {
		return classify(ctx, fmt.Errorf("migrate the database: %w", err))
	}
	for _, m := range done {
		log.InfoContext(ctx, "schema migrated", "version", m.Source.Version, "seconds", m.Duration.Seconds())
	}
	return nil
}

// makeSchema makes the schema that goose's own table goes into; IF NOT EXISTS alone would let two callers collide.
func makeSchema(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("make the schema: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing to roll back once committed
	for _, statement := range []string{
		fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", schemaLockID), "CREATE SCHEMA IF NOT EXISTS slipway",
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("make the schema: %w", err)
		}
	}
	return tx.Commit()
}

const (
	schemaLockID      = 0x736c6971
	migrationLockID   = 0x736c6970 // "slip"
	migrationPatience = 5 * time.Minute
)

// migrationLock is goose's session lock with a bound, a log line while it waits, and the schema made under it.
type migrationLock struct {
	log      *slog.Logger
	patience time.Duration
}

// SessionLock waits for the lock.
func (l *migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	const again, say = 200 * time.Millisecond, 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	began, said := time.Now(), time.Time{}
	for {
		var got bool
		if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", migrationLockID).Scan(&got); err != nil {
			return fmt.Errorf("take the migration lock: %w", err)
		}
		if got {
			break
		}
		if time.Since(said) >= say {
			said = time.Now()
			l.log.InfoContext(ctx, "another replica migrates the database; waiting", "waited_seconds", int(time.Since(began).Seconds()),
				"at_most_seconds", int(l.patience.Seconds()))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("take the migration lock: held by another for %v: %w", l.patience, ctx.Err())
		case <-time.After(again):
		}
	}
	failpoint.Hit("migrate-locked")
	return nil
}

// SessionUnlock gives the lock back.
func (l *migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", migrationLockID); err != nil {
		return fmt.Errorf("give back the migration lock: %w", err)
	}
	return nil
}

// checkSchema compares schema and binary (DESIGN 10.3): a binary starts on its own schema and on the next one, and
// where the schema allows it; nothing starts on an older schema.
func (s *Store) checkSchema(ctx context.Context) error {
	var exists bool
	if err := s.db.WithContext(ctx).Raw("SELECT to_regclass(@t) IS NOT NULL", sql.Named("t", versionTable)).Scan(&exists).Error; err != nil {
		return classify(ctx, fmt.Errorf("look for the schema: %w", err))
	}
	if !exists {
		return fmt.Errorf("%w: the database holds no schema; run `controlplane migrate` first", ErrSchema)
	}
	var found struct{ Version, MinBinary int }
	err := s.db.WithContext(ctx).Raw(`SELECT (SELECT max(version_id) FROM slipway.goose_db_version WHERE is_applied) AS version,
		(SELECT min_binary FROM slipway.meta) AS min_binary`).Scan(&found).Error
	if err != nil {
		return classify(ctx, fmt.Errorf("read the schema version: %w", err))
	}
	switch {
	case found.Version < migrations.Latest:
		return fmt.Errorf("%w: schema is at version %d, this binary needs %d; run `controlplane migrate` first", ErrSchema, found.Version, migrations.Latest)
	case found.MinBinary > migrations.Latest:
		return fmt.Errorf("%w: schema version %d needs a binary of version %d or later, this one is %d; upgrade it", ErrSchema,
			found.Version, found.MinBinary, migrations.Latest)
	case found.Version > migrations.Latest+1:
		return fmt.Errorf("%w: schema is at version %d, this binary knows %d and starts on no more than the next one; upgrade it", ErrSchema,
			found.Version, migrations.Latest)
	}
	return nil
}
