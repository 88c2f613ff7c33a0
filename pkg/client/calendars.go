package client

import (
	"context"
	"fmt"
	"net/http"

	"slipway.dev/slipway/pkg/api"
)

// Calendars lists the calendars of a namespace with those of all; empty: those of all alone.
func (c *Client) Calendars(ctx context.Context, namespace string) ([]api.Calendar, error) {
	var out api.CalendarList
	p := &api.ListCalendarsParams{Namespace: orNil(namespace)}
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.ListCalendars(ctx, p) }); err != nil {
		return nil, fmt.Errorf("list calendars: %w", err)
	}
	return out.Items, nil
}

// Calendar reads one calendar of a namespace; empty: of all of them.
func (c *Client) Calendar(ctx context.Context, namespace, name string) (api.Calendar, error) {
	var out api.Calendar
	p := &api.GetCalendarParams{Namespace: orNil(namespace)}
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.GetCalendar(ctx, name, p) }); err != nil {
		return out, fmt.Errorf("read calendar %s: %w", name, err)
	}
	return out, nil
}

// SetCalendar makes a calendar, or makes it what it is to be.
func (c *Client) SetCalendar(ctx context.Context, namespace, name string, want api.SetCalendar) (api.Calendar, error) {
	var out api.Calendar
	p := &api.SetCalendarParams{Namespace: orNil(namespace)}
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.SetCalendar(ctx, name, p, want) }); err != nil {
		return out, fmt.Errorf("set calendar %s: %w", name, err)
	}
	return out, nil
}

// DeleteCalendar deletes a calendar that no schedule names.
func (c *Client) DeleteCalendar(ctx context.Context, namespace, name string) error {
	p := &api.DeleteCalendarParams{Namespace: orNil(namespace)}
	answer, err := c.send(ctx, false, func() (*http.Response, error) { return c.wire.DeleteCalendar(ctx, name, p) })
	if err != nil {
		return fmt.Errorf("delete calendar %s: %w", name, err)
	}
	return answer.Body.Close()
}
