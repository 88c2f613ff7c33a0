// Package settle runs the steps that only need the database: parents end and dependents are released after a nudge,
// delayed Tasks enter their lanes, and Tasks that were not claimed before their queue deadline end. Every replica runs
// them; each step is a transaction of its own that finds nothing to do when another was first.
//
// Allowed imports: controlplane/internal/loop.
package settle

import (
	"context"
	"log/slog"
	"time"

	"slipway.dev/slipway/controlplane/internal/loop"
)

// Steps are the transactions. Each handles at most limit rows.
type Steps interface {
	// Settle ends parents and releases dependents; more means that another call would find more.
	Settle(ctx context.Context, limit int) (more bool, err error)
	EnterDue(ctx context.Context, limit int) (n int, err error)
	ExpireQueued(ctx context.Context, limit int) (n int, err error)
}

// Config is what a Settler needs.
type Config struct {
	Steps Steps
	// Nudges says that Settle may find something.
	Nudges <-chan struct{}
	Log    *slog.Logger
	Poll   time.Duration // how often each step is tried without a nudge; default 1 s
}

const (
	defaultPoll = time.Second
	limit       = 100
)

// Settler runs the steps. Make it with New.
type Settler struct{ cfg Config }

// New makes a Settler. It starts nothing: see Run.
func New(cfg Config) *Settler {
	if cfg.Poll <= 0 {
		cfg.Poll = defaultPoll
	}
	return &Settler{cfg: cfg}
}

// Run tries the steps until ctx is done and the last of them has returned.
func (s *Settler) Run(ctx context.Context) error {
	every := func(what string, wake <-chan struct{}, step func(context.Context) (more bool, err error)) func(context.Context) error {
		return func(ctx context.Context) error {
			loop.Every(ctx, s.cfg.Poll, wake, func(ctx context.Context) { s.drain(ctx, what, step) })
			return nil
		}
	}
	return loop.Together(ctx,
		every("settle parents and dependents", s.cfg.Nudges, func(ctx context.Context) (bool, error) {
			return s.cfg.Steps.Settle(ctx, limit)
		}),
		every("let delayed tasks enter", nil, func(ctx context.Context) (bool, error) {
			n, err := s.cfg.Steps.EnterDue(ctx, limit)
			return n >= limit, err
		}),
		every("end tasks past their queue deadline", nil, func(ctx context.Context) (bool, error) {
			n, err := s.cfg.Steps.ExpireQueued(ctx, limit)
			return n >= limit, err
		}))
}

// drain repeats a step until it finds nothing more.
func (s *Settler) drain(ctx context.Context, what string, step func(context.Context) (more bool, err error)) {
	for ctx.Err() == nil {
		more, err := step(ctx)
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.WarnContext(ctx, what, "error", err)
		}
		if err != nil || !more {
			return
		}
	}
}
