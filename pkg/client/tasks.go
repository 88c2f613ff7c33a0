package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"slipway.dev/slipway/pkg/api"
)

// Submitted is what became of a submit.
type Submitted struct {
	Task      api.Task
	Replayed  bool // an earlier request with the same key made it
	Coalesced bool // a queued Task absorbed the request
}

// Submit submits a Task. With a key, which may be empty, sending the same again gives the same Task.
func (c *Client) Submit(ctx context.Context, t api.SubmitTask, key string) (Submitted, error) {
	var out Submitted
	params := &api.SubmitTaskParams{IdempotencyKey: orNil(key)}
	h, err := c.read(ctx, key != "" || t.IdempotencyKey != "", &out.Task, func() (*http.Response, error) {
		return c.wire.SubmitTask(ctx, params, t)
	})
	if err != nil {
		return Submitted{}, fmt.Errorf("submit a task: %w", err)
	}
	out.Replayed, out.Coalesced = h.Get("Idempotent-Replayed") == "true", h.Get("Slipway-Coalesced") == "true"
	return out, nil
}

// SubmitBatch submits Tasks, all or none. The key, which may be empty, covers the whole batch.
func (c *Client) SubmitBatch(ctx context.Context, tasks []api.SubmitTask, key string) ([]api.BatchItem, error) {
	var out api.BatchResult
	params := &api.SubmitBatchParams{IdempotencyKey: orNil(key)}
	if _, err := c.read(ctx, key != "", &out, func() (*http.Response, error) {
		return c.wire.SubmitBatch(ctx, params, api.SubmitBatch{Tasks: tasks})
	}); err != nil {
		return nil, fmt.Errorf("submit a batch: %w", err)
	}
	return out.Items, nil
}

// Get reads a Task.
func (c *Client) Get(ctx context.Context, id string) (api.Task, error) {
	var out api.Task
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.GetTask(ctx, id) }); err != nil {
		return api.Task{}, fmt.Errorf("get task %s: %w", id, err)
	}
	return out, nil
}

// List reads one page of Tasks, newest first.
func (c *Client) List(ctx context.Context, params api.ListTasksParams) (api.TaskPage, error) {
	var out api.TaskPage
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.ListTasks(ctx, &params) }); err != nil {
		return api.TaskPage{}, fmt.Errorf("list tasks: %w", err)
	}
	return out, nil
}

// Cancel asks for a Task to stop and gives it as it is then.
func (c *Client) Cancel(ctx context.Context, id, note string) (api.Task, error) {
	var out api.Task
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) {
		return c.wire.CancelTask(ctx, id, api.CancelTask{Note: note})
	}); err != nil {
		return api.Task{}, fmt.Errorf("cancel task %s: %w", id, err)
	}
	return out, nil
}

// Attempts lists the Attempts of a Task.
func (c *Client) Attempts(ctx context.Context, id string) ([]api.Attempt, error) {
	var out api.AttemptList
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.ListAttempts(ctx, id) }); err != nil {
		return nil, fmt.Errorf("list the attempts of task %s: %w", id, err)
	}
	return out.Items, nil
}

// Events reads the history of a Task from after a position, which may be empty.
func (c *Client) Events(ctx context.Context, id, after string) (api.EventPage, error) {
	var out api.EventPage
	params := &api.ListEventsParams{After: orNil(after)}
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.ListEvents(ctx, id, params) }); err != nil {
		return api.EventPage{}, fmt.Errorf("list the events of task %s: %w", id, err)
	}
	return out, nil
}

// Version says what the server is.
func (c *Client) Version(ctx context.Context) (api.Version, error) {
	var out api.Version
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.GetVersion(ctx) }); err != nil {
		return api.Version{}, fmt.Errorf("get the server's version: %w", err)
	}
	return out, nil
}

// Log is an open log; close it.
type Log struct {
	io.ReadCloser
	Attempt int
	Source  string // live or kept
}

// Logs opens the log of an Attempt.
func (c *Client) Logs(ctx context.Context, id string, params api.GetLogsParams) (*Log, error) {
	answer, err := c.send(ctx, true, func() (*http.Response, error) { return c.wire.GetLogs(ctx, id, &params) })
	if err != nil {
		return nil, fmt.Errorf("read the log of task %s: %w", id, err)
	}
	number, err := strconv.Atoi(answer.Header.Get("Slipway-Attempt"))
	if err != nil {
		_ = answer.Body.Close() // nothing of it was wanted
		return nil, fmt.Errorf("read the log of task %s: the answer names no attempt", id)
	}
	return &Log{ReadCloser: answer.Body, Attempt: number, Source: answer.Header.Get("Slipway-Log-Source")}, nil
}

// Wait waits until a Task has ended. Its pace slows down from a fifth of a second to two.
func (c *Client) Wait(ctx context.Context, id string) (api.Task, error) {
	return c.Watch(ctx, id, func(api.Task) {})
}

// Watch is Wait that shows the Task each time that it has looked.
func (c *Client) Watch(ctx context.Context, id string, seen func(api.Task)) (api.Task, error) {
	const slowest = 2 * time.Second
	for wait := firstWait; ; wait = min(wait*5/4, slowest) {
		t, err := c.Get(ctx, id)
		if err != nil {
			return t, err
		}
		if seen(t); Ended(t) {
			return t, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return t, fmt.Errorf("wait for task %s: %w", id, ctx.Err())
		}
	}
}

// Ended reports whether a Task has ended.
func Ended(t api.Task) bool {
	return t.State == api.StateSucceeded || t.State == api.StateFailed || t.State == api.StateCanceled
}

func orNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
