package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

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

// Retry submits an ended Task again, as a new one; of a composite Task the children that did not succeed. With a key,
// which may be empty, sending the same again gives the same Task.
func (c *Client) Retry(ctx context.Context, id, key string) (Submitted, error) {
	return c.retry(ctx, id, &api.RetryTaskParams{IdempotencyKey: orNil(key)})
}

// RetryAll is Retry that repeats the children that succeeded too.
func (c *Client) RetryAll(ctx context.Context, id, key string) (Submitted, error) {
	all := true
	return c.retry(ctx, id, &api.RetryTaskParams{IdempotencyKey: orNil(key), All: &all})
}

func (c *Client) retry(ctx context.Context, id string, params *api.RetryTaskParams) (Submitted, error) {
	var out Submitted
	h, err := c.read(ctx, params.IdempotencyKey != nil, &out.Task, func() (*http.Response, error) { return c.wire.RetryTask(ctx, id, params) })
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

// RetryMany shows which ended Tasks match, or submits them again. With a key, which may be empty, sending the same again
// goes on with the same Tasks.
func (c *Client) RetryMany(ctx context.Context, ask api.RetryTasks, key string) (api.ManyResult, error) {
	var out api.ManyResult
	params := &api.RetryTasksParams{IdempotencyKey: orNil(key)}
	if _, err := c.read(ctx, key != "" || ask.DryRun, &out, func() (*http.Response, error) { return c.wire.RetryTasks(ctx, params, ask) }); err != nil {
		return api.ManyResult{}, fmt.Errorf("retry tasks: %w", err)
	}
	return out, nil
}

// CancelMany shows which Tasks match, or asks them to stop. The key is as for RetryMany.
func (c *Client) CancelMany(ctx context.Context, ask api.CancelTasks, key string) (api.ManyResult, error) {
	var out api.ManyResult
	params := &api.CancelTasksParams{IdempotencyKey: orNil(key)}
	if _, err := c.read(ctx, key != "" || ask.DryRun, &out, func() (*http.Response, error) { return c.wire.CancelTasks(ctx, params, ask) }); err != nil {
		return api.ManyResult{}, fmt.Errorf("cancel tasks: %w", err)
	}
	return out, nil
}

// Change is what to change of a queued Task; what is empty stays.
type Change struct {
	Class string
	RunAt time.Time
	Now   bool // run_at goes
}

// Change changes a queued Task.
func (c *Client) Change(ctx context.Context, id string, change Change) (api.Task, error) {
	fields := map[string]any{}
	if change.Class != "" {
		fields["class"] = change.Class
	}
	if !change.RunAt.IsZero() {
		fields["run_at"] = change.RunAt
	}
	if change.Now {
		fields["run_at"] = nil
	}
	var out api.Task
	if err := c.patch(ctx, fields, &out, func(body io.Reader) (*http.Response, error) {
		return c.wire.ChangeTaskWithBody(ctx, id, "application/json", body)
	}); err != nil {
		return api.Task{}, fmt.Errorf("change task %s: %w", id, err)
	}
	return out, nil
}

// patch sends fields, of which null sets one back: what the generated types cannot say.
func (c *Client) patch(ctx context.Context, fields map[string]any, out any, send func(body io.Reader) (*http.Response, error)) error {
	raw, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("write a change: %w", err)
	}
	_, err = c.read(ctx, true, out, func() (*http.Response, error) { return send(bytes.NewReader(raw)) })
	return err
}

// Delete deletes an ended Task.
func (c *Client) Delete(ctx context.Context, id string) error {
	answer, err := c.send(ctx, false, func() (*http.Response, error) { return c.wire.DeleteTask(ctx, id) })
	if err != nil {
		return fmt.Errorf("delete task %s: %w", id, err)
	}
	return answer.Body.Close()
}
