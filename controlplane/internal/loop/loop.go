// Package loop holds the pieces that every background loop is made of: a tick with jitter that can be woken early, a
// coalescing wake-up, a keyed worker queue, and a group of loops that ends together.
//
// Allowed imports: the standard library.
package loop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"
)

// Jitter moves d by up to a share of it to either side, so that replicas which started together do not stay together.
// The share is between 0 and 1.
func Jitter(d time.Duration, share float64) time.Duration {
	return d + time.Duration(float64(d)*share*(2*rand.Float64()-1)) //nolint:gosec // nothing depends on it being unguessable
}

// tickJitter is the share by which Every moves each tick.
const tickJitter = 0.1

// Every calls do at once, then after every interval, moved by a tenth to either side, and at each wake. A wake that comes
// while do is at work is served by one more call. It returns when ctx is done and do has returned. A nil wake never wakes.
func Every(ctx context.Context, interval time.Duration, wake <-chan struct{}, do func(context.Context)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-wake:
		}
		if ctx.Err() != nil {
			return
		}
		do(ctx)
		timer.Reset(Jitter(interval, tickJitter))
	}
}

// Wake is a signal that never blocks its sender: many calls before a receive are one. Make it with NewWake.
type Wake struct{ c chan struct{} }

// NewWake makes a Wake.
func NewWake() Wake { return Wake{c: make(chan struct{}, 1)} }

// Call wakes the receiver.
func (w Wake) Call() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// C is what the receiver listens on.
func (w Wake) C() <-chan struct{} { return w.c }

// Together runs each function in a goroutine of its own until the last has returned. The first that returns, with an
// error or without one, ends the others through their context: half of a control plane is worse than none. A panic
// becomes an error.
func Together(ctx context.Context, runs ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(runs))
	var running sync.WaitGroup
	for i, run := range runs {
		running.Go(func() {
			defer cancel()
			errs[i] = guarded(ctx, run)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func guarded(ctx context.Context, run func(context.Context) error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return run(ctx)
}
