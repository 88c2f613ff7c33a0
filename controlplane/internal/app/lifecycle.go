package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"slipway.dev/slipway/controlplane/internal/loop"
	"slipway.dev/slipway/pkg/handler"
)

// part is something that runs for the whole life of the process.
type part struct {
	name string
	run  func(context.Context) error
}

// running is a part under way.
type running struct {
	part
	stop  context.CancelFunc
	ended chan struct{} // closed once run has returned
	err   error
}

// lifecycle starts parts in order and ends them in the reverse one: what a part stands on outlives it.
type lifecycle struct {
	parts    []part
	shutdown time.Duration // for all of them to end
	log      *slog.Logger
}

// run returns when ctx is done or the first part has ended, and all have; or when the time to end is over. A part that
// ends by itself is an error. One that ends with handler.ErrOutlived ends everything at once: the process has to be gone.
func (l lifecycle) run(ctx context.Context) error {
	first, fatal := make(chan *running, len(l.parts)), make(chan error, len(l.parts))
	var all []*running
	base := context.WithoutCancel(ctx)
	for _, p := range l.parts {
		r := &running{part: p, ended: make(chan struct{})}
		var own context.Context
		own, r.stop = context.WithCancel(base)
		all = append(all, r)
		go func() {
			defer close(r.ended)
			r.err = loop.Together(own, p.run) // a panic becomes an error
			if errors.Is(r.err, handler.ErrOutlived) {
				fatal <- r.err
			}
			first <- r
		}()
	}
	var cause error
	select {
	case err := <-fatal:
		return err
	case <-ctx.Done():
		l.log.Info("asked to end")
	case r := <-first:
		if errors.Is(r.err, handler.ErrOutlived) {
			return r.err
		}
		cause = fmt.Errorf("%s ended by itself", r.name)
		if r.err != nil {
			cause = fmt.Errorf("%s ended by itself: %w", r.name, r.err)
		}
		l.log.Error("a part ended by itself", "part", r.name, "error", r.err)
	}
	return errors.Join(cause, l.end(all, cause, fatal))
}

// end ends all parts, the last one first.
func (l lifecycle) end(all []*running, cause error, fatal <-chan error) error {
	over := time.NewTimer(l.shutdown)
	defer over.Stop()
	var errs []error
	for i := len(all) - 1; i >= 0; i-- {
		r := all[i]
		r.stop()
		select {
		case <-r.ended:
			if r.err != nil && cause == nil && !errors.Is(r.err, context.Canceled) {
				errs = append(errs, fmt.Errorf("end %s: %w", r.name, r.err))
			}
		case err := <-fatal:
			return err
		case <-over.C:
			return errors.Join(append(errs, stuck(all[:i+1], l.shutdown))...)
		}
	}
	l.log.Info("ended")
	return errors.Join(errs...)
}

// stuck stops what is left without waiting and names what does not end.
func stuck(left []*running, after time.Duration) error {
	var names []string
	for _, r := range left {
		r.stop()
		names = append(names, r.name)
	}
	return fmt.Errorf("not ended after %v: %s", after, strings.Join(names, ", "))
}
