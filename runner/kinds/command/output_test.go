package command

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"

	"slipway.dev/slipway/pkg/handler"
)

// locked lets two streams write to one buffer.
type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

// watching calls then once, when word has been written.
type watching struct {
	locked
	seen bytes.Buffer
	word string
	then func()
}

func onOutput(word string, then func()) *watching { return &watching{word: word, then: then} }

func (w *watching) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.Write(p)
	if w.then != nil && strings.Contains(w.seen.String(), w.word) {
		w.then()
		w.then = nil
	}
	return len(p), nil
}

// runTo runs a shell script with both outputs going to out.
func runTo(ctx context.Context, t *testing.T, script string, out io.Writer, overdue <-chan struct{}) (any, error) {
	t.Helper()
	raw, err := json.Marshal(Params{Command: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return Run(ctx, handler.Task{ID: "t-1", Attempt: 1, Params: raw, Stdout: out, Stderr: out, Dir: t.TempDir(), Overdue: overdue})
}

// asJSON writes a value for a comparison.
func asJSON(t *testing.T, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
