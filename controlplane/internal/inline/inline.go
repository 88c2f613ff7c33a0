// Package inline runs Attempts in the control plane's own process (task.ExecutorInline): through the same claim, lane,
// fence, records and retries as a Job, and by the same code that runs handlers in a pod.
//
// What stands in for the pod's end is the end of this process. A replica that could not store a heartbeat for
// task.InlineCancelAfter tells the handler to stop; if that has not returned at task.InlineExitAfter, Run ends with
// handler.ErrOutlived and the process has to exit at once. A lane is handed on by a stored report, when the kubelet has started
// the replica's container anew, or after task.InlineSilence.
//
// Allowed imports: pkg/task, pkg/handler.
package inline

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/task"
)

// Books keep what becomes of an Attempt. Errors that wrap task.ErrStale say that it is not, or no longer, this process's.
type Books interface {
	Start(ctx context.Context, h Hold) (task.Task, task.Attempt, error)
	// Beat returns once the heartbeat is stored, with whether to stop and what is left of the run deadline.
	// It may wait for a stop until hold is done; nil: it does not wait.
	Beat(ctx context.Context, h Hold, progress json.RawMessage, hold <-chan struct{}) (cancel bool, left time.Duration, err error)
	Report(ctx context.Context, h Hold, r task.Report, tail []byte) error
	// Outlived keeps that no holder lives on whose name begins with ours, and not with but.
	Outlived(ctx context.Context, ours, but string) error
}

// Hold names an Attempt and who holds it, as a pod's uid does: no two tries to run it have the same name.
type Hold struct {
	Attempt, Fence int64
	Holder         string
}

// Config is what a Pool needs.
type Config struct {
	Books    Books
	Handlers map[string]handler.Handler // by kind
	Replica  string
	// Pod is the uid of the pod that this process runs in; empty: none. A kubelet starts a container anew only once it has seen
	// the last one terminated, and all its processes with it: whatever an earlier process of the pod held has ended.
	Pod    string
	Places int // handlers at the same time; default 8
	Log    *slog.Logger
}

const defaultPlaces = 8

// Pool runs handlers in a bounded number of places. Make it with New.
type Pool struct {
	cfg    Config
	name   string // of this process: what the names of its holders begin with
	places chan struct{}
	broken chan error

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // that of Run; nil while nothing may be taken
	held    map[int64]bool  // running, or waiting for a place
	working sync.WaitGroup
}

// New makes a Pool. It starts nothing: see Run.
func New(cfg Config) *Pool {
	if cfg.Places <= 0 {
		cfg.Places = defaultPlaces
	}
	return &Pool{
		cfg: cfg, name: home(cfg) + rand.Text() + "/", places: make(chan struct{}, cfg.Places),
		broken: make(chan error, 1), held: map[int64]bool{},
	}
}

// home is what the names of all holders of a replica begin with, whatever its process.
func home(cfg Config) string { return "inline/" + cfg.Replica + "/" + cfg.Pod + "/" }

// Kinds lists what it has handlers for.
func (p *Pool) Kinds() []string { return slices.Sorted(maps.Keys(p.cfg.Handlers)) }

// Room is how many more Attempts would have a place at once.
func (p *Pool) Room() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil {
		return 0
	}
	return max(p.cfg.Places-len(p.held), 0)
}

// Run lets Attempts be taken until ctx is done. Then the handlers are told to stop, and it returns when the last one has.
// handler.ErrOutlived comes at once: the process must not live on.
func (p *Pool) Run(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	p.working.Go(func() { p.outlive(ctx) })
	p.mu.Unlock()
	select {
	case err := <-p.broken:
		return err
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.ctx = nil
	p.mu.Unlock()
	all := make(chan struct{})
	go func() {
		defer close(all)
		p.working.Wait()
	}()
	select {
	case err := <-p.broken:
		return err
	case <-all:
	}
	select {
	case err := <-p.broken:
		return err
	default:
		return nil
	}
}

// outlive tells that what earlier processes of this pod held has ended, until it is stored.
func (p *Pool) outlive(ctx context.Context) {
	const again = time.Second
	if p.cfg.Pod == "" {
		return
	}
	for {
		err := p.cfg.Books.Outlived(ctx, home(p.cfg), p.name)
		if err == nil || ctx.Err() != nil {
			return
		}
		p.cfg.Log.WarnContext(ctx, "tell what has ended with an earlier process", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// Take runs an Attempt as soon as there is a place; false says that too many wait already, or that the end has come. One
// that it has is not taken twice.
func (p *Pool) Take(a task.Attempt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.held[a.ID]:
		return true
	case p.ctx == nil, len(p.held) >= 2*p.cfg.Places:
		return false
	}
	ctx := p.ctx
	p.held[a.ID] = true
	p.working.Go(func() {
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.held, a.ID)
		}()
		select {
		case p.places <- struct{}{}:
			defer func() { <-p.places }()
		case <-ctx.Done():
			return // any replica starts it
		}
		if err := p.work(ctx, a); err != nil {
			select {
			case p.broken <- err:
			default: // the first is enough
			}
		}
	})
	return true
}

// work carries one Attempt from its start to its report.
func (p *Pool) work(ctx context.Context, a task.Attempt) error {
	log := p.cfg.Log.With("attempt", a.ID, "kind", a.Kind, "task", a.TaskID)
	dir, err := os.MkdirTemp("", "slipway-inline-")
	if err != nil {
		log.ErrorContext(ctx, "make the folder of an inline attempt", "error", err)
		return nil // it has not started: it is tried again, here or elsewhere
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			log.WarnContext(ctx, "remove the folder of an inline attempt", "error", err)
		}
	}()
	return handler.Inline{
		Plane:   plane{books: p.cfg.Books, hold: Hold{Attempt: a.ID, Fence: a.Fence, Holder: p.name + rand.Text()}},
		Attempt: a.ID, Fence: a.Fence, Handlers: p.cfg.Handlers, Dir: dir,
		Logf: func(format string, args ...any) { log.WarnContext(ctx, fmt.Sprintf(format, args...)) },
	}.Run(ctx)
}

// plane speaks the runner protocol to the books directly.
type plane struct {
	books Books
	hold  Hold
}

// Start asks for the start.
func (p plane) Start(ctx context.Context) (handler.Grant, error) {
	t, a, err := p.books.Start(ctx, p.hold)
	if err != nil {
		return handler.Grant{}, stale(err)
	}
	return handler.InlineGrant(t, a), nil
}

// Beat stores a heartbeat.
func (p plane) Beat(ctx context.Context, progress any, hold time.Duration) (handler.Answer, error) {
	var raw json.RawMessage
	if progress != nil {
		var err error
		if raw, err = json.Marshal(progress); err != nil {
			return handler.Answer{}, fmt.Errorf("write progress: %w", err)
		}
	}
	held, release := context.WithTimeout(ctx, hold)
	defer release()
	cancel, left, err := p.books.Beat(ctx, p.hold, raw, held.Done())
	seconds := task.Seconds(left.Seconds())
	return handler.Answer{Cancel: cancel, Left: &seconds}, stale(err)
}

// Finish stores the report.
func (p plane) Finish(ctx context.Context, f handler.Finish) error {
	return stale(p.books.Report(ctx, p.hold, task.Report{
		Outcome: f.Outcome, Reason: f.Reason, Message: strings.ToValidUTF8(f.Message, ""), Result: f.Result, ExitCode: f.ExitCode,
		RetryAfter: f.RetryAfter,
	}, f.LogTail))
}

// stale turns the books' refusal into that of the protocol.
func stale(err error) error {
	if errors.Is(err, task.ErrStale) || errors.Is(err, task.ErrOtherPod) || errors.Is(err, task.ErrNotFound) {
		return fmt.Errorf("%w: %w", handler.ErrRefused, err)
	}
	return err
}
