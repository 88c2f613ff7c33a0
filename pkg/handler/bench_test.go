package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/pkg/handler/internal/protocol"
	"slipway.dev/slipway/pkg/task"
)

var errDown = errors.New("connection refused")

// fakePlane is a control plane that answers as the test says and writes down what it was told, with the time since the
// bubble began.
type fakePlane struct {
	grant  protocol.Grant
	starts func(n int) error
	beats  func(n int) (protocol.Answer, error)
	finish func(n int, f protocol.Finish) error

	mu       sync.Mutex
	began    time.Time
	startN   int
	beatAt   []time.Duration
	held     []time.Duration // for which each beat asked to be held
	stop     time.Duration   // after which a cancel is asked for; 0: never
	progress []any
	finished []protocol.Finish
	finishAt []time.Duration
}

func newPlane() *fakePlane {
	return &fakePlane{began: time.Now(), grant: protocol.Grant{
		TaskID: "t-1", Kind: "test", Namespace: "demo", Params: json.RawMessage(`{}`), SessionKey: "key",
		Run: 3600, Grace: 20, Heartbeat: 10, FenceAfter: 60, AttemptNumber: 2,
	}}
}

func (f *fakePlane) Start(ctx context.Context) (protocol.Grant, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.startN++
	if f.starts != nil {
		if err := f.starts(f.startN); err != nil {
			return protocol.Grant{}, err
		}
	}
	return f.grant, ctx.Err()
}

func (f *fakePlane) Beat(ctx context.Context, progress any, hold time.Duration) (protocol.Answer, error) {
	f.mu.Lock()
	f.beatAt = append(f.beatAt, time.Since(f.began))
	f.held = append(f.held, hold)
	f.progress = append(f.progress, progress)
	n := len(f.beatAt)
	f.mu.Unlock()
	if f.beats != nil {
		return f.beats(n)
	}
	if hold > 0 {
		stop := f.stop - time.Since(f.began)
		if f.stop == 0 {
			stop = hold
		}
		select {
		case <-time.After(min(stop, hold)):
		case <-ctx.Done():
		}
	}
	return protocol.Answer{Cancel: f.stop > 0 && time.Since(f.began) >= f.stop}, ctx.Err()
}

func (f *fakePlane) Finish(ctx context.Context, end protocol.Finish) error {
	f.mu.Lock()
	f.finished = append(f.finished, end)
	f.finishAt = append(f.finishAt, time.Since(f.began))
	n := len(f.finished)
	f.mu.Unlock()
	if f.finish == nil {
		return ctx.Err()
	}
	return f.finish(n, end)
}

// bench is a runner with a fake control plane, inside a synctest bubble.
type bench struct {
	*runner
	plane    *fakePlane
	term     func() // SIGTERM
	messages []string
	out      bytes.Buffer
	log      bytes.Buffer
}

func newBench(t *testing.T, h Handler) *bench {
	t.Helper()
	b := &bench{plane: newPlane()}
	told, cancel := context.WithCancelCause(t.Context())
	b.term = func() { cancel(&termination{at: time.Now()}) }
	b.runner = &runner{
		plane: b.plane, id: protocol.Identity{Attempt: 7, Fence: 41, PodUID: "pod"}, handlers: map[string]Handler{"test": h},
		told: told, message: func(text string) { b.messages = append(b.messages, text) },
		logf:   func(format string, args ...any) { fmt.Fprintf(&b.log, format+"\n", args...) },
		stdout: &b.out, stderr: &b.out, startWithin: startWithin,
	}
	t.Cleanup(func() { cancel(nil) })
	return b
}

// last gives the termination message that a kubelet would read.
func (b *bench) last(t *testing.T) task.Termination {
	t.Helper()
	if len(b.messages) == 0 {
		t.Fatal("there is no termination message")
	}
	m, ok := task.ParseTermination(b.messages[len(b.messages)-1])
	if !ok {
		t.Fatalf("the termination message %q is not ours", b.messages[len(b.messages)-1])
	}
	return m
}

func (b *bench) report(t *testing.T) protocol.Finish {
	t.Helper()
	if len(b.plane.finished) == 0 {
		t.Fatal("nothing was reported")
	}
	return b.plane.finished[len(b.plane.finished)-1]
}

func succeed(context.Context, Task) (any, error) { return map[string]int{"n": 1}, nil }

// untilStopped works until it is told to stop and then gives up.
func untilStopped(ctx context.Context, _ Task) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
