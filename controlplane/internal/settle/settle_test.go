package settle

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// steps count their calls; each has so much to do.
type steps struct {
	settles, enters, expires atomic.Int32
	left                     atomic.Int32
	fails                    atomic.Bool
}

func (s *steps) Settle(context.Context, int) (bool, error) {
	s.settles.Add(1)
	if s.fails.Load() {
		return true, errors.New("no database")
	}
	return s.left.Add(-1) > 0, nil
}

func (s *steps) EnterDue(_ context.Context, limit int) (int, error) {
	if s.enters.Add(1) == 1 {
		return limit, nil // a full batch: there may be more
	}
	return 0, nil
}

func (s *steps) ExpireQueued(context.Context, int) (int, error) {
	s.expires.Add(1)
	return 0, nil
}

func settling(t *testing.T, s *steps, f func(nudges chan struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nudges, done := make(chan struct{}), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		settler := New(Config{Steps: s, Nudges: nudges, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		go func() { done <- settler.Run(ctx) }()
		synctest.Wait()
		f(nudges)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestANudgeSettlesAtOnceUntilNothingIsLeft(t *testing.T) {
	s := &steps{}
	settling(t, s, func(nudges chan struct{}) {
		before := s.settles.Load()
		s.left.Store(5)
		nudges <- struct{}{}
		synctest.Wait()
		if got := s.settles.Load() - before; got != 5 {
			t.Errorf("settled %d times, want 5", got)
		}
	})
}

func TestEveryStepIsTriedWithoutANudge(t *testing.T) {
	s := &steps{}
	settling(t, s, func(chan struct{}) {
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for what, n := range map[string]int32{"settle": s.settles.Load(), "enter": s.enters.Load(), "expire": s.expires.Load()} {
			if n < 9 || n > 14 {
				t.Errorf("%s: %d times in 10 s", what, n)
			}
		}
	})
}

func TestAFullBatchIsFollowedByAnother(t *testing.T) {
	s := &steps{}
	settling(t, s, func(chan struct{}) {
		if got := s.enters.Load(); got != 2 {
			t.Errorf("entered %d times, want 2", got)
		}
	})
}

func TestADatabaseThatIsAwayIsNotHammered(t *testing.T) {
	s := &steps{}
	s.fails.Store(true)
	settling(t, s, func(chan struct{}) {
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := s.settles.Load(); got > 14 {
			t.Errorf("tried %d times in 10 s", got)
		}
	})
}
