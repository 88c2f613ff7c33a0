package loop

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Sparing lets the first of many like events through, and then one a while. Its zero value lets one through a minute.
type Sparing struct {
	Every time.Duration // default 1 min

	mu   sync.Mutex
	last time.Time
	held int
}

// Pass reports whether an event is let through, and how many were held back since the one before it.
func (s *Sparing) Pass(now time.Time) (held int, pass bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	every := s.Every
	if every <= 0 {
		every = time.Minute
	}
	if !s.last.IsZero() && now.Sub(s.last) < every {
		s.held++
		return 0, false
	}
	held, s.held, s.last = s.held, 0, now
	return held, true
}

// Complaints logs the trouble of a loop. What the whole cluster or the database has is told once a minute, not for each
// who meets it.
type Complaints struct {
	Log    *slog.Logger
	Shared error // what is trouble of all

	sparing Sparing
}

// Warn logs what was tried and why it was not done; nothing where ctx has ended the work.
func (c *Complaints) Warn(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	if !errors.Is(err, c.Shared) {
		c.Log.WarnContext(ctx, what, "error", err)
		return
	}
	if held, pass := c.sparing.Pass(time.Now()); pass {
		c.Log.WarnContext(ctx, what, "error", err, "like_it", held)
	}
}
