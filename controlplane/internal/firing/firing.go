// Package firing lets schedules fire: it reads their rows into rules, asks whether who changed them last may still do what
// they do, and has what is due stored, on every replica alike. When a schedule fires is package schedule's to say; the
// store keeps two replicas apart.
//
// A namespace about which the API server answers slowly delays its own schedules, and those of others by a second each time
// they are due, as long as no more than 16 are so slow at once.
//
// Allowed imports: pkg/task, controlplane/internal/schedule, controlplane/internal/loop.
package firing

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"slipway.dev/slipway/controlplane/internal/loop"
	"slipway.dev/slipway/pkg/task"
)

// Book is where schedules are kept.
type Book interface {
	// Due lists schedules that are due, without a lock.
	Due(ctx context.Context, limit int) ([]Schedule, error)
	// Fire stores what is due of those that have a verdict.
	Fire(ctx context.Context, limit int, verdicts Verdicts) (Pass, error)
	// Overtaken names Tasks that a later fire of their schedule replaces, and that nobody has asked to stop.
	Overtaken(ctx context.Context, limit int) ([]string, error)
	// Replace cancels such a Task; one that has ended meanwhile is no error.
	Replace(ctx context.Context, id string) error
}

// Rights says whether who changed a schedule last may do what it does, and what it does it to.
type Rights interface {
	Ask(ctx context.Context, s Schedule) (Verdict, error)
}

// Verdict is what was found out about a schedule before it fires.
type Verdict struct {
	Refusal string   // why it may not, in words; empty: it may
	Found   []string // what its template selects in the cluster
	// Storage is what the claims of namespaces had, where its template wants storage and there is a limit.
	Storage map[string]task.StorageUse
}

// Pass is what one pass has done.
type Pass struct {
	More    bool          // another pass would find more at once
	Unasked int           // schedules that were left due because they were changed since somebody was asked
	NextIn  time.Duration // until the next one is due; 0: none is
}

// Verdicts are the answers about the schedules of one pass.
type Verdicts map[Version]Verdict

// Version is a schedule as it was when somebody was asked about it.
type Version struct {
	ID       string
	Revision int64
}

// Config is what a Runner needs.
type Config struct {
	Book   Book
	Rights Rights
	// Wakes says that a schedule was made or changed.
	Wakes <-chan struct{}
	Log   *slog.Logger
	Poll  time.Duration // how often it looks without a wake; default 1 s
}

const (
	defaultPoll = time.Second
	limit       = 100    // schedules in one transaction
	asked       = 2000   // that are asked about before the first, besides those that have no answer
	mostLeft    = 20_000 // of which there can be so many
	jitter      = 0.1
)

// Runner fires. Make it with New.
type Runner struct {
	cfg        Config
	together   int // schedules in one transaction: fewer after trouble, until passes succeed again
	left       int // that had no answer
	asker      *asker
	complaints *loop.Complaints
}

// New makes a Runner. It starts nothing: see Run.
func New(cfg Config) *Runner {
	if cfg.Poll <= 0 {
		cfg.Poll = defaultPoll
	}
	complaints := &loop.Complaints{Log: cfg.Log, Shared: task.ErrUnavailable}
	return &Runner{cfg: cfg, together: limit, asker: newAsker(cfg.Rights, complaints.Warn), complaints: complaints}
}

// Run fires what is due, at the instant that the next one is due, at each wake and at each poll, until ctx is done.
// Trouble never ends it.
func (r *Runner) Run(ctx context.Context) error {
	defer r.asker.running.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.cfg.Wakes:
		case <-r.asker.late:
		}
		if ctx.Err() != nil {
			return nil
		}
		wait := loop.Jitter(r.cfg.Poll, jitter)
		if next := r.fire(ctx); next > 0 {
			wait = min(wait, next)
		}
		r.replace(ctx)
		timer.Reset(wait)
	}
}

// fire makes passes until nothing more is due, and says when the next is. Every replica asks about all that is due, and
// then takes what the others have not taken.
func (r *Runner) fire(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		look := asked + min(r.left, mostLeft)
		due, err := r.cfg.Book.Due(ctx, look)
		if err != nil {
			r.complaints.Warn(ctx, "read due schedules", err)
			return 0
		}
		var verdicts Verdicts
		verdicts, r.left = r.asker.ask(ctx, due)
		pass := Pass{More: true}
		for unasked := 0; pass.More && ctx.Err() == nil; unasked += pass.Unasked {
			if pass, err = r.cfg.Book.Fire(ctx, r.together, verdicts); err != nil {
				r.together = max(1, r.together/4)
				r.complaints.Warn(ctx, "fire schedules", err)
				return 0
			}
			r.together = min(limit, 2*r.together)
			if unasked > limit {
				return 0
			}
		}
		if len(due) < look || len(verdicts) == 0 {
			return pass.NextIn
		}
	}
	return 0
}

// replace cancels what later fires have overtaken.
func (r *Runner) replace(ctx context.Context) {
	const most = 100
	ids, err := r.cfg.Book.Overtaken(ctx, most)
	if err != nil {
		r.complaints.Warn(ctx, "look for overtaken tasks of schedules", err)
		return
	}
	for _, id := range ids {
		if err := r.cfg.Book.Replace(ctx, id); err != nil && !errors.Is(err, task.ErrNotFound) {
			r.complaints.Warn(ctx, "cancel an overtaken task of a schedule", err)
		}
	}
}
