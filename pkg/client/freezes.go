package client

import (
	"context"
	"fmt"
	"net/http"

	"slipway.dev/slipway/pkg/api"
)

// Freezes lists the freezes in force; of one namespace those that hold for it.
func (c *Client) Freezes(ctx context.Context, namespace string) ([]api.Freeze, error) {
	var p api.ListFreezesParams
	if namespace != "" {
		p.Namespace = &namespace
	}
	var out api.FreezeList
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.ListFreezes(ctx, &p) }); err != nil {
		return nil, fmt.Errorf("list freezes: %w", err)
	}
	return out.Items, nil
}

// Freeze lets nothing begin where it holds, for a while. It is sent once: a repeat would be a second freeze.
func (c *Client) Freeze(ctx context.Context, f api.CreateFreeze) (api.Freeze, error) {
	var out api.Freeze
	if _, err := c.read(ctx, false, &out, func() (*http.Response, error) { return c.wire.CreateFreeze(ctx, f) }); err != nil {
		return api.Freeze{}, fmt.Errorf("freeze: %w", err)
	}
	return out, nil
}

// Thaw ends a freeze before its time.
func (c *Client) Thaw(ctx context.Context, id int64) error {
	answer, err := c.send(ctx, false, func() (*http.Response, error) { return c.wire.EndFreeze(ctx, id) })
	if err != nil {
		return fmt.Errorf("end freeze %d: %w", id, err)
	}
	return answer.Body.Close()
}

// CheckLanes compares some lanes with their Tasks.
func (c *Client) CheckLanes(ctx context.Context, ask api.CheckLanes) (api.LaneCheck, error) {
	var out api.LaneCheck
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.CheckLanes(ctx, ask) }); err != nil {
		return api.LaneCheck{}, fmt.Errorf("check lanes: %w", err)
	}
	return out, nil
}

// ForceRelease takes a lane from the Attempt that holds it. It is sent once: a repeat could meet the next holder.
func (c *Client) ForceRelease(ctx context.Context, key, reason string) (api.ForceReleased, error) {
	var out api.ForceReleased
	_, err := c.read(ctx, false, &out, func() (*http.Response, error) {
		return c.wire.ForceReleaseLane(ctx, api.ForceRelease{Key: key, Reason: reason})
	})
	if err != nil {
		return api.ForceReleased{}, fmt.Errorf("take lane %s from its holder: %w", key, err)
	}
	return out, nil
}
