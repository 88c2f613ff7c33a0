package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"gorm.io/gorm"
)

const txTries = 6 // the first, and at most 5 repeats

// errCommitUnknown says that the connection was lost at COMMIT: it may have happened or not.
var errCommitUnknown = errors.New("connection lost at commit")

// deadlockCount counts what PostgreSQL called a deadlock before it was tried again; the race test wants zero.
type deadlockCount struct{ n atomic.Int64 }

// Deadlocks is how many deadlocks this Store has met since it was opened.
func (s *Store) Deadlocks() int64 { return s.deadlock.n.Load() }

// inTx runs fn in a transaction and runs it again, at most 5 times, where PostgreSQL chose it as the victim of a
// conflict or lanes that it wanted were made by others meanwhile. An unknown commit is reported as errCommitUnknown: the operation re-reads by its own key.
func (s *Store) inTx(ctx context.Context, fn func(tx *gorm.DB) error) error {
	var err error
	for try := range txTries {
		if err = s.once(ctx, fn); err == nil {
			return nil
		}
		if sqlState(err) == deadlockDetected {
			s.deadlock.n.Add(1)
		}
		if !transient(err) {
			break
		}
		if gone, ok := errors.AsType[*lanesGoneError](err); ok {
			if err = s.makeLanes(ctx, gone.lanes); err != nil && !transient(err) {
				break
			}
		}
		wait := time.Duration(rand.Int64N(int64(5*time.Millisecond) << try)) //nolint:gosec // jitter, not a secret
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	return classify(ctx, err)
}

func (s *Store) once(ctx context.Context, fn func(tx *gorm.DB) error) (err error) {
	tx := s.db.WithContext(ctx).Begin()
	if tx.Error != nil {
		return fmt.Errorf("begin a transaction: %w", tx.Error)
	}
	done := false
	defer func() {
		if !done {
			_ = tx.Rollback() // also after a panic; a lost connection has rolled back by itself
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	done = true
	if err := tx.Commit().Error; err != nil {
		if unreachable(err) || ctx.Err() != nil { // also a connection that was ended: after the commit, before its answer
			return fmt.Errorf("%w: %w", errCommitUnknown, err)
		}
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// settled runs fn like inTx; where the commit is unknown it asks verify whether it happened, and runs fn once more
// where it did not. The first commit may still have been under way then, and fn have met its own work: what comes of
// the second run is only believed once verify has been asked again.
func (s *Store) settled(ctx context.Context, fn func(tx *gorm.DB) error, verify func(ctx context.Context) (bool, error)) error {
	err := s.inTx(ctx, fn)
	if !errors.Is(err, errCommitUnknown) {
		return err
	}
	for last := false; ctx.Err() == nil; last = true {
		happened, verr := verify(ctx)
		switch {
		case verr != nil:
			return errors.Join(err, verr)
		case happened:
			return nil
		case last:
			return err
		}
		if err = s.inTx(ctx, fn); err == nil {
			return nil
		}
	}
	return err
}
