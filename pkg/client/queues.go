package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"slipway.dev/slipway/pkg/api"
)

// Kinds lists what can be run, by name.
func (c *Client) Kinds(ctx context.Context) ([]api.Kind, error) {
	var out api.KindList
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.ListKinds(ctx) }); err != nil {
		return nil, fmt.Errorf("list kinds: %w", err)
	}
	return out.Items, nil
}

// Switch says where Tasks of a kind run from now on: "job", "inline", or "off", where they are accepted and kept.
func (c *Client) Switch(ctx context.Context, kind string, to api.ChangeKind) (api.Kind, error) {
	return c.switched(ctx, kind, func() (*http.Response, error) { return c.wire.ChangeKind(ctx, kind, to) })
}

// SwitchBack lets a kind run as its default says.
func (c *Client) SwitchBack(ctx context.Context, kind string) (api.Kind, error) {
	return c.switched(ctx, kind, func() (*http.Response, error) {
		var back io.Reader = strings.NewReader(`{"executor":null}`) // what the generated type cannot say
		return c.wire.ChangeKindWithBody(ctx, kind, "application/json", back)
	})
}

func (c *Client) switched(ctx context.Context, kind string, one attempt) (api.Kind, error) {
	var out api.Kind
	if _, err := c.read(ctx, true, &out, one); err != nil {
		return api.Kind{}, fmt.Errorf("switch kind %s: %w", kind, err)
	}
	return out, nil
}

// Queues lists the queues, by name.
func (c *Client) Queues(ctx context.Context) ([]api.Queue, error) {
	var out api.QueueList
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.ListQueues(ctx) }); err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return out.Items, nil
}

// Pause lets nothing of a queue begin.
func (c *Client) Pause(ctx context.Context, queue, note string) (api.Queue, error) {
	return c.queue(ctx, "pause", queue, func() (*http.Response, error) { return c.wire.PauseQueue(ctx, queue, api.StopQueue{Note: note}) })
}

// Drain is Pause that is meant for a shutdown.
func (c *Client) Drain(ctx context.Context, queue, note string) (api.Queue, error) {
	return c.queue(ctx, "drain", queue, func() (*http.Response, error) { return c.wire.DrainQueue(ctx, queue, api.StopQueue{Note: note}) })
}

// Resume ends Pause and Drain.
func (c *Client) Resume(ctx context.Context, queue, note string) (api.Queue, error) {
	return c.queue(ctx, "resume", queue, func() (*http.Response, error) { return c.wire.ResumeQueue(ctx, queue, api.StopQueue{Note: note}) })
}

func (c *Client) queue(ctx context.Context, what, name string, one attempt) (api.Queue, error) {
	var out api.Queue
	if _, err := c.read(ctx, true, &out, one); err != nil {
		return api.Queue{}, fmt.Errorf("%s queue %s: %w", what, name, err)
	}
	return out, nil
}

// Lane reads what stands under one key.
func (c *Client) Lane(ctx context.Context, key string) (api.LaneState, error) {
	var out api.LaneState
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.GetLane(ctx, &api.GetLaneParams{Key: key}) }); err != nil {
		return api.LaneState{}, fmt.Errorf("get lane %s: %w", key, err)
	}
	return out, nil
}

// Limits reads what a namespace may use of each queue and of storage, and what it uses.
func (c *Client) Limits(ctx context.Context, namespace string) (api.LimitList, error) {
	var out api.LimitList
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.GetLimits(ctx, namespace) }); err != nil {
		return api.LimitList{}, fmt.Errorf("get the limits of namespace %s: %w", namespace, err)
	}
	return out, nil
}

// LimitStorage sets how much storage the volume claims of a namespace may ask for together: a quantity, as "500Gi".
func (c *Client) LimitStorage(ctx context.Context, namespace, quantity string) (api.LimitList, error) {
	return c.limitStorage(ctx, namespace, quantity)
}

// LiftStorageLimit takes the limit of storage of a namespace away.
func (c *Client) LiftStorageLimit(ctx context.Context, namespace string) (api.LimitList, error) {
	return c.limitStorage(ctx, namespace, nil)
}

func (c *Client) limitStorage(ctx context.Context, namespace string, storage any) (api.LimitList, error) {
	var out api.LimitList
	if err := c.patch(ctx, map[string]any{"storage": storage}, &out, func(body io.Reader) (*http.Response, error) {
		return c.wire.SetLimitsWithBody(ctx, namespace, "application/json", body)
	}); err != nil {
		return api.LimitList{}, fmt.Errorf("set the limit of storage of namespace %s: %w", namespace, err)
	}
	return out, nil
}

// ChangeQueue changes the limits of a queue. Fields are those of api.ChangeQueue; null sets one back to its default.
func (c *Client) ChangeQueue(ctx context.Context, queue string, fields map[string]any) (api.Queue, error) {
	var out api.Queue
	if err := c.patch(ctx, fields, &out, func(body io.Reader) (*http.Response, error) {
		return c.wire.ChangeQueueWithBody(ctx, queue, "application/json", body)
	}); err != nil {
		return api.Queue{}, fmt.Errorf("change queue %s: %w", queue, err)
	}
	return out, nil
}
