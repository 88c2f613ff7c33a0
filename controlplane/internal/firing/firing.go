// Package firing lets schedules fire: it reads their rows into rules, asks whether who changed them last may still do what
// they do, and has what is due stored, on every replica alike. When a schedule fires is package schedule's to say; the
// store keeps two replicas apart.
//
// Allowed imports: pkg/task, controlplane/internal/schedule, controlplane/internal/loop.
package firing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
	limit       = 100  // schedules in one transaction
	asked       = 2000 // that are asked about before the first
	jitter      = 0.1
)

// Runner fires. Make it with New.
type Runner struct {
	cfg        Config
	atOnce     int // schedules in one transaction: fewer after trouble, until passes succeed again
	complaints loop.Complaints
}

// New makes a Runner. It starts nothing: see Run.
func New(cfg Config) *Runner {
	if cfg.Poll <= 0 {
		cfg.Poll = defaultPoll
	}
	return &Runner{cfg: cfg, atOnce: limit, complaints: loop.Complaints{Log: cfg.Log, Shared: task.ErrUnavailable}}
}

// Run fires what is due, at the instant that the next one is due, at each wake and at each poll, until ctx is done.
// Trouble never ends it.
func (r *Runner) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.cfg.Wakes:
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
		due, err := r.cfg.Book.Due(ctx, asked)
		if err != nil {
			r.complaints.Warn(ctx, "read due schedules", err)
			return 0
		}
		verdicts := r.ask(ctx, due)
		pass := Pass{More: true}
		for unasked := 0; pass.More && ctx.Err() == nil; unasked += pass.Unasked {
			if pass, err = r.cfg.Book.Fire(ctx, r.atOnce, verdicts); err != nil {
				r.atOnce = max(1, r.atOnce/4)
				r.complaints.Warn(ctx, "fire schedules", err)
				return 0
			}
			r.atOnce = min(limit, 2*r.atOnce)
			if unasked > limit {
				return 0
			}
		}
		if len(due) < asked {
			return pass.NextIn
		}
	}
	return 0
}

// ask asks about the rights of schedules. About whom nobody answers stays due: a fire is late rather than unlawful.
func (r *Runner) ask(ctx context.Context, due []Schedule) Verdicts {
	const atOnce = 16
	type question struct{ namespace, template, rights string }
	like := map[question][]Version{}
	first := map[question]Schedule{}
	for _, s := range due {
		q := question{s.Namespace, string(s.Template), string(s.Rights)}
		like[q] = append(like[q], Version{s.ID, s.Revision})
		first[q] = s
	}
	verdicts := make(Verdicts, len(due))
	var mu sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for q, s := range first {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			verdict, err := r.cfg.Rights.Ask(ctx, s)
			if err != nil {
				r.complaints.Warn(ctx, fmt.Sprintf("ask before the fire of schedule %s/%s", s.Namespace, s.Name), err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, v := range like[q] {
				verdicts[v] = verdict
			}
		})
	}
	asking.Wait()
	return verdicts
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
