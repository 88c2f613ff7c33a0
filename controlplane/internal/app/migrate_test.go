package app

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/postgres"
)

func TestAMigrationWaitsForADatabaseThatIsStarting(t *testing.T) {
	server, err := postgres.Start(t.Context(), postgres.Options{})
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	defer func() {
		if err := server.Stop(postgres.Fast); err != nil {
			t.Errorf("stop PostgreSQL: %v", err)
		}
	}()
	if err := server.Pause(); err != nil {
		t.Fatalf("pause PostgreSQL: %v", err)
	}
	waiting := waitingLog{said: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		c := MigrateConfig{DatabaseURL: server.TCP("postgres"), StartWait: time.Minute}
		done <- Migrate(t.Context(), c, slog.New(&waiting))
	}()
	select {
	case <-waiting.said:
	case err := <-done:
		t.Fatalf("the migration did not wait: %v", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatalf("restart PostgreSQL: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("migrate: %v", err)
	}
}

// waitingLog tells of the first warning.
type waitingLog struct {
	slog.Handler
	once sync.Once
	said chan struct{}
}

func (*waitingLog) Enabled(context.Context, slog.Level) bool { return true }

func (w *waitingLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		w.once.Do(func() { close(w.said) })
	}
	return nil
}
