package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/controlplane/internal/dispatch"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/handler"
)

var quiet = slog.New(slog.DiscardHandler)

// diary notes what happens in which order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// until is a part that runs until it is stopped and takes a while to end.
func (d *diary) until(name string) part {
	return part{name, func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(time.Second)
		d.note(name)
		return nil
	}}
}

func TestPartsEndInTheReverseOrderOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, stop := context.WithCancel(t.Context())
		l := lifecycle{parts: []part{d.until("store"), d.until("loops"), d.until("http")}, shutdown: time.Minute, log: quiet}
		time.AfterFunc(time.Hour, stop)
		if err := l.run(ctx); err != nil {
			t.Error(err)
		}
		if want := []string{"http", "loops", "store"}; !slices.Equal(d.lines, want) {
			t.Errorf("ended %v, want %v", d.lines, want)
		}
	})
}

func TestAPartThatEndsByItselfEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		for name, bad := range map[string]func(context.Context) error{
			"ended by itself":   func(context.Context) error { return nil },
			"port in use":       func(context.Context) error { return errors.New("port in use") },
			"panic: impossible": func(context.Context) error { panic("impossible") },
		} {
			l := lifecycle{parts: []part{d.until("store"), {"http", bad}}, shutdown: time.Minute, log: quiet}
			if err := l.run(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v, want %s", err, name)
			}
		}
		if len(d.lines) != 3 {
			t.Errorf("the store ended %d times", len(d.lines))
		}
	})
}

func TestAHandlerThatOutlivedItsTimeEndsTheProcessWithoutWaitingForAnything(t *testing.T) {
	for name, stopped := range map[string]bool{"while it serves": false, "while it ends": true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			release := make(chan struct{})
			defer close(release)
			deaf := func(context.Context) error { <-release; return nil }
			outlived := func(context.Context) error {
				time.Sleep(time.Second)
				return fmt.Errorf("attempt 7: %w", handler.ErrOutlived)
			}
			if stopped {
				stop()
			}
			l := lifecycle{parts: []part{{"inline", outlived}, {"http", deaf}}, shutdown: 25 * time.Second, log: quiet}
			began := time.Now()
			if err := l.run(ctx); !errors.Is(err, handler.ErrOutlived) || time.Since(began) != time.Second {
				t.Errorf("%s: after %v: %v", name, time.Since(began), err)
			}
		})
	}
}

func TestAPartThatDoesNotEndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		release := make(chan struct{})
		defer close(release)
		l := lifecycle{parts: []part{{"cluster", func(context.Context) error {
			<-release
			return nil
		}}}, shutdown: 25 * time.Second, log: quiet}
		began := time.Now()
		err := l.run(ctx)
		if err == nil || err.Error() != "not ended after 25s: cluster" || time.Since(began) != 25*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

type standIn struct {
	err    error
	age    time.Duration
	filled bool
	gap    time.Duration
	shut   []string
	inline bool
}

func (s standIn) Ready(context.Context) error    { return s.err }
func (s standIn) Breaker() dispatch.Breaker      { return dispatch.Breaker{Everywhere: s.inline} }
func (s standIn) Gap() time.Duration             { return s.gap }
func (s standIn) Shut() []string                 { return s.shut }
func (s standIn) SyncAge() (time.Duration, bool) { return s.age, s.filled }

func TestReadinessNamesWhatIsMissingAndNothingInner(t *testing.T) {
	gone, end := context.WithCancel(t.Context())
	end()
	for _, tc := range []struct {
		life context.Context
		is   standIn
		want string
	}{
		{t.Context(), standIn{filled: true, age: 40 * time.Second}, ""},
		{t.Context(), standIn{filled: true, age: 7 * time.Second, gap: time.Second}, "degraded: cluster: not heard for 7s"},
		{t.Context(), standIn{filled: true, shut: []string{"a", "b"}}, "degraded: cluster: no access to a, b: deleted, or not enabled any more"},
		{gone, standIn{filled: true}, "shutting down"},
		{t.Context(), standIn{filled: true, err: errors.New("password of user x is wrong")}, "the database cannot be reached or written"},
		{t.Context(), standIn{filled: true, err: &store.NotReadyError{Why: "is read-only"}}, "the database is read-only"},
		{t.Context(), standIn{filled: true, inline: true}, "degraded: no job can be launched: what may run inline does"},
		{t.Context(), standIn{filled: true, gap: time.Minute, inline: true}, "degraded: cluster: not heard for 1m0s; no job can be launched: what may run inline does"},
		{t.Context(), standIn{}, "cluster: the first reading of Jobs and pods is not complete"},
		{t.Context(), standIn{filled: true, age: 2 * time.Minute}, "degraded: cluster: not heard for 2m0s"},
	} {
		got, err := readiness{life: tc.life, database: tc.is, cluster: tc.is, breaker: tc.is.Breaker, silence: time.Minute, log: quiet}.check(t.Context())
		if got != "" {
			got = "degraded: " + got
		}
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}
