package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// GetLogs opens the log of an Attempt.
func (s *server) GetLogs(ctx context.Context, r GetLogsRequestObject) (GetLogsResponseObject, error) {
	ctx, known := plain(ctx)
	t, _, err := s.seen(ctx, known.identity, r.ID)
	if err != nil {
		return nil, err
	}
	if err := s.gate.May(ctx, known.identity, tasks("get", "log", t.Namespace)); err != nil {
		return nil, err
	}
	a, err := s.attempt(ctx, t, int(given(r.Params.Attempt)))
	if err != nil {
		return nil, err
	}
	log, err := s.logs.Open(ctx, a, LogRequest{Follow: given(r.Params.Follow), Tail: int(given(r.Params.Tail))})
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	return logAnswer{ctx: ctx, going: s.going, log: log, attempt: a.Number}, nil
}

// attempt finds the Attempt of that number, or the newest for 0.
func (s *server) attempt(ctx context.Context, t task.Task, number int) (task.Attempt, error) {
	all, err := s.history.Attempts(ctx, t.ID)
	if err != nil {
		return task.Attempt{}, fmt.Errorf("list attempts: %w", err)
	}
	switch {
	case number == 0 && len(all) > 0:
		return all[len(all)-1], nil
	case number == 0 && t.State.Terminal():
		return task.Attempt{}, &MissingLogError{Reason: "never_started", Message: "the task ended without an attempt"}
	case number == 0:
		return task.Attempt{}, &MissingLogError{Reason: "not_started", Message: "the task has made no attempt yet; ask again"}
	}
	for _, a := range all {
		if a.Number == number {
			return a, nil
		}
	}
	return task.Attempt{}, &MissingLogError{Reason: "no_attempt", Message: "the task has made no attempt of that number"}
}

// logAnswer streams a log. It flushes what it gets at once, so that a follower sees lines as they are written, and
// gives up on a client that takes nothing for a while.
type logAnswer struct {
	ctx, going context.Context
	log        LogStream
	attempt    int
}

const slowClient = 30 * time.Second

// brokenLine ends a stream that did not reach its end.
const brokenLine = "\nslipway: the stream broke off here; ask again\n"

// VisitGetLogsResponse implements GetLogsResponseObject.
func (l logAnswer) VisitGetLogsResponse(w http.ResponseWriter) error {
	done := make(chan struct{})
	closed := make(chan struct{})
	go func() { // a read of the log cannot be interrupted otherwise
		defer close(closed)
		select {
		case <-l.ctx.Done():
		case <-l.going.Done():
		case <-done:
		}
		_ = l.log.Body.Close() // nothing was written to it
	}()
	defer func() {
		close(done)
		<-closed
	}()
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Slipway-Attempt", strconv.Itoa(l.attempt))
	h.Set("Slipway-Log-Source", l.log.Source)
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("lift the read timeout: %w", err)
	}
	// From here on the answer is out: an error can only end it.
	if err := pass(w, control, l.log.Body); err != nil && l.ctx.Err() == nil {
		if patient(control) == nil {
			_, _ = io.WriteString(w, brokenLine) // a client that has left misses nothing
		}
	}
	return nil
}

// pass copies from body to w as it comes.
func pass(w io.Writer, control *http.ResponseController, body io.Reader) error {
	if err := control.Flush(); err != nil {
		return err
	}
	buffer := make([]byte, 32*kib)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if err := patient(control); err != nil {
				return err
			}
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			if err := control.Flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return patient(control) // the end of the answer is written after this
		}
		if err != nil {
			return err
		}
	}
}

// patient gives the client its time to take the next piece, however long there was none.
func patient(control *http.ResponseController) error {
	if err := control.SetWriteDeadline(time.Now().Add(slowClient)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("lift the write timeout: %w", err)
	}
	return nil
}
