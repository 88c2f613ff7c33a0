package client

import (
	"context"
	"fmt"
	"net/http"

	"slipway.dev/slipway/pkg/api"
)

// Try asks what a submit would do and stores nothing. The Task is as it would be, under no id of its own.
func (c *Client) Try(ctx context.Context, t api.SubmitTask, key string) (api.Task, error) {
	var out api.Task
	dry := true
	params := &api.SubmitTaskParams{IdempotencyKey: orNil(key), DryRun: &dry}
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.SubmitTask(ctx, params, t) }); err != nil {
		return api.Task{}, fmt.Errorf("try a task: %w", err)
	}
	return out, nil
}

// TryBatch asks what a batch would do and stores nothing. What would be created has no id of its own.
func (c *Client) TryBatch(ctx context.Context, tasks []api.SubmitTask, key string) (api.BatchResult, error) {
	var out api.BatchResult
	dry := true
	params := &api.SubmitBatchParams{IdempotencyKey: orNil(key), DryRun: &dry}
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) {
		return c.wire.SubmitBatch(ctx, params, api.SubmitBatch{Tasks: tasks})
	}); err != nil {
		return api.BatchResult{}, fmt.Errorf("try a batch: %w", err)
	}
	return out, nil
}

// Retry submits an ended Task again, as a new one. With a key, which may be empty, sending the same again gives the same
// Task.
func (c *Client) Retry(ctx context.Context, id, key string) (Submitted, error) {
	var out Submitted
	params := &api.RetryTaskParams{IdempotencyKey: orNil(key)}
	h, err := c.read(ctx, key != "", &out.Task, func() (*http.Response, error) { return c.wire.RetryTask(ctx, id, params) })
	if err != nil {
		return Submitted{}, fmt.Errorf("retry task %s: %w", id, err)
	}
	out.Replayed, out.Coalesced = h.Get("Idempotent-Replayed") == "true", h.Get("Slipway-Coalesced") == "true"
	return out, nil
}

// Hold keeps a queued Task from running.
func (c *Client) Hold(ctx context.Context, id, reason string) (api.Task, error) {
	var out api.Task
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) {
		return c.wire.HoldTask(ctx, id, api.HoldTask{Reason: reason})
	}); err != nil {
		return api.Task{}, fmt.Errorf("hold task %s: %w", id, err)
	}
	return out, nil
}

// Unhold lets a held Task run.
func (c *Client) Unhold(ctx context.Context, id string) (api.Task, error) {
	var out api.Task
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.UnholdTask(ctx, id) }); err != nil {
		return api.Task{}, fmt.Errorf("let task %s run: %w", id, err)
	}
	return out, nil
}
