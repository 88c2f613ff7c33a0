package httpapi

import (
	"context"
	"fmt"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func calendars(verb, name, namespace string) auth.Access {
	return auth.Access{Verb: verb, Group: auth.Group, Resource: "calendars", Name: name, Namespace: namespace}
}

// ListCalendars lists the calendars that hold in a namespace.
func (s *server) ListCalendars(ctx context.Context, r ListCalendarsRequestObject) (ListCalendarsResponseObject, error) {
	ctx, known := plain(ctx)
	namespace := given(r.Params.Namespace)
	if err := s.gate.May(ctx, known.identity, calendars("list", "", namespace)); err != nil {
		return nil, err
	}
	all, err := s.calendars.Calendars(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("list calendars: %w", err)
	}
	out := api.CalendarList{Items: make([]api.Calendar, len(all))}
	for i, c := range all {
		out.Items[i] = wireCalendar(c)
	}
	return ListCalendars200JSONResponse(out), nil
}

// calendar reads one calendar of a namespace, or of all.
func (s *server) calendar(ctx context.Context, namespace, name string) (CalendarView, error) {
	all, err := s.calendars.Calendars(ctx, namespace) // there are few
	if err != nil {
		return CalendarView{}, fmt.Errorf("read a calendar: %w", err)
	}
	for _, c := range all {
		if c.Namespace == namespace && c.Name == name {
			return c, nil
		}
	}
	return CalendarView{}, task.ErrNotFound
}

// GetCalendar reads a calendar.
func (s *server) GetCalendar(ctx context.Context, r GetCalendarRequestObject) (GetCalendarResponseObject, error) {
	ctx, known := plain(ctx)
	namespace := given(r.Params.Namespace)
	if err := s.visible(ctx, known.identity, "calendars", r.Calendar, namespace); err != nil {
		return nil, err
	}
	c, err := s.calendar(ctx, namespace, r.Calendar)
	if err != nil {
		return nil, err
	}
	return GetCalendar200JSONResponse{Body: wireCalendar(c), Headers: GetCalendar200ResponseHeaders{ETag: etag(c.Revision)}}, nil
}

// SetCalendar makes a calendar or replaces it.
func (s *server) SetCalendar(ctx context.Context, r SetCalendarRequestObject) (SetCalendarResponseObject, error) {
	ctx, known := plain(ctx)
	want := CalendarView{Namespace: given(r.Params.Namespace), Name: r.Calendar, ForAll: r.Body.ForAll, Note: r.Body.Note}
	if err := s.gate.May(ctx, known.identity, calendars("update", want.Name, want.Namespace)); err != nil {
		return nil, err
	}
	var err error
	if want.Windows, err = wireBlackouts(r.Body.Windows); err != nil {
		return nil, err
	}
	if err := s.timer.CheckWindows(want.Windows); err != nil {
		return nil, err
	}
	if err := s.calendars.SetCalendar(ctx, want, revision(r.Params.IfMatch), known.identity.User); err != nil {
		return nil, fmt.Errorf("set a calendar: %w", err)
	}
	c, err := s.calendar(ctx, want.Namespace, want.Name)
	if err != nil {
		return nil, err
	}
	return SetCalendar200JSONResponse{Body: wireCalendar(c), Headers: SetCalendar200ResponseHeaders{ETag: etag(c.Revision)}}, nil
}

// DeleteCalendar deletes a calendar.
func (s *server) DeleteCalendar(ctx context.Context, r DeleteCalendarRequestObject) (DeleteCalendarResponseObject, error) {
	ctx, known := plain(ctx)
	c := CalendarView{Namespace: given(r.Params.Namespace), Name: r.Calendar}
	if err := s.visible(ctx, known.identity, "calendars", c.Name, c.Namespace); err != nil {
		return nil, err
	}
	if err := s.gate.May(ctx, known.identity, calendars("delete", c.Name, c.Namespace)); err != nil {
		return nil, err
	}
	if err := s.calendars.DeleteCalendar(ctx, c, revision(r.Params.IfMatch), known.identity.User); err != nil {
		return nil, fmt.Errorf("delete a calendar: %w", err)
	}
	return DeleteCalendar204Response{}, nil
}
