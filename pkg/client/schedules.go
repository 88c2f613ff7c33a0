package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"slipway.dev/slipway/pkg/api"
)

// Schedules lists the schedules that match, all pages of them.
func (c *Client) Schedules(ctx context.Context, p api.ListSchedulesParams) ([]api.Schedule, error) {
	var all []api.Schedule
	for {
		var page api.SchedulePage
		if _, err := c.read(ctx, true, &page, func() (*http.Response, error) { return c.wire.ListSchedules(ctx, &p) }); err != nil {
			return nil, fmt.Errorf("list schedules: %w", err)
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			return all, nil
		}
		p.Cursor = &page.Next
	}
}

// Schedule reads a schedule.
func (c *Client) Schedule(ctx context.Context, id string) (api.Schedule, error) {
	return c.schedule(ctx, true, "read schedule "+id, func() (*http.Response, error) { return c.wire.GetSchedule(ctx, id) })
}

func (c *Client) schedule(ctx context.Context, twice bool, what string, one attempt) (api.Schedule, error) {
	var out api.Schedule
	if _, err := c.read(ctx, twice, &out, one); err != nil {
		return api.Schedule{}, fmt.Errorf("%s: %w", what, err)
	}
	return out, nil
}

// CreateSchedule makes a schedule. It is sent once: a repeat would meet the name of the first.
func (c *Client) CreateSchedule(ctx context.Context, s api.CreateSchedule) (api.Schedule, error) {
	return c.schedule(ctx, false, "make schedule "+s.Name, func() (*http.Response, error) { return c.wire.CreateSchedule(ctx, s) })
}

// ChangeSchedule changes a schedule by a JSON merge patch. It must have the revision, where that is not 0.
func (c *Client) ChangeSchedule(ctx context.Context, id string, revision int64, patch json.RawMessage) (api.Schedule, error) {
	return c.schedule(ctx, revision == 0, "change schedule "+id, func() (*http.Response, error) {
		return c.wire.ChangeScheduleWithBody(ctx, id, &api.ChangeScheduleParams{IfMatch: match(revision)}, "application/json", bytes.NewReader(patch))
	})
}

func match(revision int64) *string {
	if revision == 0 {
		return nil
	}
	tag := fmt.Sprintf(`"%d"`, revision)
	return &tag
}

// PauseSchedule lets a schedule fire no more.
func (c *Client) PauseSchedule(ctx context.Context, id string) (api.Schedule, error) {
	return c.schedule(ctx, true, "pause schedule "+id, func() (*http.Response, error) { return c.wire.PauseSchedule(ctx, id, nil) })
}

// ResumeSchedule lets a schedule fire again.
func (c *Client) ResumeSchedule(ctx context.Context, id string) (api.Schedule, error) {
	return c.schedule(ctx, true, "resume schedule "+id, func() (*http.Response, error) { return c.wire.ResumeSchedule(ctx, id, nil) })
}

// DeleteSchedule deletes a schedule and its ledger.
func (c *Client) DeleteSchedule(ctx context.Context, id string) error {
	answer, err := c.send(ctx, false, func() (*http.Response, error) { return c.wire.DeleteSchedule(ctx, id, nil) })
	if err != nil {
		return fmt.Errorf("delete schedule %s: %w", id, err)
	}
	return answer.Body.Close()
}

// RunSchedule runs a schedule now. It is sent once: a repeat would be a second run.
func (c *Client) RunSchedule(ctx context.Context, id string) (api.Fire, error) {
	var out api.Fire
	if _, err := c.read(ctx, false, &out, func() (*http.Response, error) { return c.wire.RunSchedule(ctx, id) }); err != nil {
		return api.Fire{}, fmt.Errorf("run schedule %s: %w", id, err)
	}
	return out, nil
}

// BackfillSchedule makes up for instants of a range that have not fired. A repeat makes none twice.
func (c *Client) BackfillSchedule(ctx context.Context, id string, b api.Backfill) ([]api.Fire, error) {
	var out api.FireList
	if _, err := c.read(ctx, false, &out, func() (*http.Response, error) { return c.wire.BackfillSchedule(ctx, id, b) }); err != nil {
		return nil, fmt.Errorf("backfill schedule %s: %w", id, err)
	}
	return out.Items, nil
}

// Fires lists what became of the newest instants of a schedule, at most limit; an empty outcome is all of them.
func (c *Client) Fires(ctx context.Context, id, outcome string, limit int) ([]api.Fire, error) {
	var out api.FirePage
	n := int32(limit)
	p := &api.ListFiresParams{Limit: &n, Outcome: orNil(outcome)}
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.ListFires(ctx, id, p) }); err != nil {
		return nil, fmt.Errorf("read the fires of schedule %s: %w", id, err)
	}
	return out.Items, nil
}

// Preview shows when a schedule will fire after an instant; the zero one is now.
func (c *Client) Preview(ctx context.Context, id string, from time.Time, n int) (api.SchedulePreview, error) {
	var out api.SchedulePreview
	count := int32(n)
	p := &api.PreviewStoredScheduleParams{N: &count}
	if !from.IsZero() {
		p.From = &from
	}
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.PreviewStoredSchedule(ctx, id, p) }); err != nil {
		return out, fmt.Errorf("preview schedule %s: %w", id, err)
	}
	return out, nil
}

// Collisions lists the minutes of the coming day in which most schedules of a namespace fire; empty: of all of them.
func (c *Client) Collisions(ctx context.Context, namespace string) ([]api.Collision, error) {
	var out api.CollisionList
	p := &api.ListCollisionsParams{Namespace: orNil(namespace)}
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.ListCollisions(ctx, p) }); err != nil {
		return nil, fmt.Errorf("list collisions: %w", err)
	}
	return out.Items, nil
}

// PreviewRule shows when a schedule that is not stored would fire.
func (c *Client) PreviewRule(ctx context.Context, p api.PreviewSchedule) (api.SchedulePreview, error) {
	var out api.SchedulePreview
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.PreviewSchedule(ctx, p) }); err != nil {
		return out, fmt.Errorf("preview a schedule: %w", err)
	}
	return out, nil
}
