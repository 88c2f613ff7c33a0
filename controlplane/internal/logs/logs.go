package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"slipway.dev/slipway/pkg/task"
)

// Where a log comes from.
const (
	Live = "live"
	Kept = "kept"
)

// Pods reads logs of pods. No pod, or one whose container has not started, is task.ErrNotFound.
type Pods interface {
	Logs(ctx context.Context, a task.Attempt, want Request) (io.ReadCloser, error)
}

// Tails reads what was kept; nil or task.ErrNotFound where nothing was.
type Tails interface {
	LogTail(ctx context.Context, attempt int64) ([]byte, error)
}

// Request says which part of a log is wanted.
type Request struct {
	Follow bool
	Tail   int // lines; 0: all
}

// Stream is an open log.
type Stream struct {
	io.ReadCloser
	Source string
}

// MissingError says why an Attempt has no log.
type MissingError struct{ Reason, Message string }

func (e *MissingError) Error() string { return e.Message }

// Reasons of a MissingError.
const (
	NotStarted   = "not_started"   // ask again
	NeverStarted = "never_started" // and never will
	PodLost      = "pod_lost"
	NotKeptYet   = "not_kept_yet" // it runs in the control plane; ask again
)

// Reader finds logs.
type Reader struct {
	pods  Pods
	tails Tails
}

// New makes a Reader.
func New(pods Pods, tails Tails) *Reader { return &Reader{pods: pods, tails: tails} }

// Open opens the log of a.
func (r *Reader) Open(ctx context.Context, a task.Attempt, want Request) (Stream, error) {
	body, err := r.live(ctx, a, want)
	if err == nil && body != nil {
		return Stream{ReadCloser: body, Source: Live}, nil
	}
	if ctx.Err() != nil {
		return Stream{}, ctx.Err()
	}
	kept, keptErr := r.tails.LogTail(ctx, a.ID)
	switch {
	case keptErr != nil && !errors.Is(keptErr, task.ErrNotFound):
		return Stream{}, fmt.Errorf("read the kept log: %w", keptErr)
	case len(kept) > 0:
		return Stream{ReadCloser: io.NopCloser(bytes.NewReader(lastLines(kept, want.Tail))), Source: Kept}, nil
	case err != nil && !errors.Is(err, task.ErrNotFound):
		return Stream{}, fmt.Errorf("read the log of the pod: %w", err)
	}
	return Stream{}, missing(a)
}

// live opens the pod's log; nil where the kubelet has dropped it.
func (r *Reader) live(ctx context.Context, a task.Attempt, want Request) (io.ReadCloser, error) {
	body, err := r.pods.Logs(ctx, a, want)
	if err != nil || a.State != task.Finished {
		return body, err
	}
	// For a container that is gone the kubelet answers 200 and one line of its own.
	read := bufio.NewReader(body)
	if start, _ := read.Peek(len(dropped)); string(start) == dropped {
		_ = body.Close() // nothing was written to it
		return nil, nil
	}
	return peeked{Reader: read, Closer: body}, nil
}

const dropped = "unable to retrieve container logs for "

type peeked struct {
	io.Reader
	io.Closer
}

func missing(a task.Attempt) error {
	started := !a.StartedAt.IsZero() || a.State == task.Started
	switch {
	case started && a.Executor == task.ExecutorInline && a.State != task.Finished:
		return &MissingError{Reason: NotKeptYet, Message: "the attempt runs inline: its log is kept when it ends; ask again"}
	case started && a.Executor == task.ExecutorInline:
		return &MissingError{Reason: PodLost, Message: "the replica that ran it inline was gone before its log could be kept"}
	case started:
		return &MissingError{Reason: PodLost, Message: "the pod was gone before its log could be kept" + because(a)}
	case a.State == task.Finished:
		return &MissingError{Reason: NeverStarted, Message: "the attempt ended before anything of it had started"}
	}
	return &MissingError{Reason: NotStarted, Message: "nothing of the attempt has started yet; ask again"}
}

// because names what took the log with it.
func because(a task.Attempt) string {
	switch a.Reason {
	case task.ReasonNodeLost:
		return ": its node was lost"
	case task.ReasonDeleted, task.ReasonEvicted, task.ReasonPreempted:
		return ": it was taken away (" + string(a.Reason) + ")"
	default:
		return ""
	}
}

// lastLines cuts text to its last n lines; 0 is all.
func lastLines(text []byte, n int) []byte {
	if n <= 0 {
		return text
	}
	at := len(bytes.TrimSuffix(text, []byte("\n")))
	for ; n > 0 && at >= 0; n-- {
		at = bytes.LastIndexByte(text[:at], '\n')
	}
	return text[at+1:]
}
