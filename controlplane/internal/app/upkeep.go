package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"slipway.dev/slipway/controlplane/internal/failpoint"
	"slipway.dev/slipway/controlplane/internal/httpapi"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/handler"
)

// noUpkeep is the namespace of a control plane that makes no schedules of its own upkeep.
const noUpkeep = "none"

// upkeepKinds are the kinds of Slipway's own upkeep.
func (c Config) upkeepKinds() []kinds.Kind {
	if c.Upkeep == noUpkeep {
		return nil
	}
	return kinds.Upkeep(c.Upkeep)
}

const day = 24 * time.Hour

// keepDefault is what is kept where a run of the retention says nothing.
var keepDefault = store.Keep{
	Succeeded: 7 * day, Failed: 30 * day, Events: 7 * day, Logs: 30 * day, Fires: 30 * day, Tasks: 2_000_000, LogBytes: 20 << 30,
}

// upkeep is the store as the handlers of upkeep want it.
type upkeep struct{ store *store.Store }

// enough is when a run leaves the rest to the next one: well before its deadline, so that it tells what it has done.
const enough = 45 * time.Second

func (u upkeep) handlers() map[string]handler.Handler {
	return map[string]handler.Handler{kinds.Retention: u.retain, kinds.Check: u.check}
}

// retained is the result of a retention.
type retained struct {
	store.Removed

	IdleLanes bool `json:"idle_lanes_looked_at"`
	More      bool `json:"more,omitempty"` // the next run goes on
}

// retain removes what is not kept, and idle lanes.
func (u upkeep) retain(ctx context.Context, t handler.Task) (any, error) {
	var p struct {
		Succeeded, Failed, Events, Logs, Fires *float64
		MaxTasks                               *int64 `json:"max_tasks"`
		MaxLogBytes                            *int64 `json:"max_log_bytes"`
	}
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	failpoint.Hit("upkeep-retain")
	keep := keepDefault
	for given, into := range map[*float64]*time.Duration{
		p.Succeeded: &keep.Succeeded, p.Failed: &keep.Failed, p.Events: &keep.Events, p.Logs: &keep.Logs, p.Fires: &keep.Fires,
	} {
		if given != nil {
			*into = time.Duration(*given * float64(time.Second))
		}
	}
	if p.MaxTasks != nil {
		keep.Tasks = *p.MaxTasks
	}
	if p.MaxLogBytes != nil {
		keep.LogBytes = *p.MaxLogBytes
	}
	short, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	var out retained
	var err error
	out.Removed, err = u.store.Retain(short, keep)
	if err == nil {
		out.IdleLanes, err = true, u.sweep(short)
	}
	if err != nil && ctx.Err() == nil && errors.Is(short.Err(), context.DeadlineExceeded) {
		out.More, err = true, nil
	}
	return out, err
}

// sweep removes idle lanes.
func (u upkeep) sweep(ctx context.Context) error {
	const atOnce = 500
	for {
		more, err := u.store.SweepLanes(ctx, atOnce)
		if err != nil || !more {
			return err
		}
	}
}

// checked is the result of a check of lanes.
type checked struct {
	Checked     int                    `json:"checked"`
	Differences []store.LaneDifference `json:"differences,omitempty"` // the first ones
	Found       int                    `json:"found"`
	Repaired    int                    `json:"repaired"`
	More        bool                   `json:"more,omitempty"`
}

// check compares lanes with their Tasks, and repairs them.
func (u upkeep) check(ctx context.Context, t handler.Task) (any, error) {
	const atOnce, told = 500, 20
	var p struct{ Repair *bool }
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	repair := p.Repair == nil || *p.Repair
	var out checked
	began := time.Now()
	for after, more := "", true; more; {
		if time.Since(began) > enough {
			out.More = true
			return out, nil
		}
		page, err := u.store.CheckLanes(ctx, after, atOnce)
		if err != nil {
			return out, known(err)
		}
		out.Checked += page.Checked
		out.Found += len(page.Differences)
		last := ""
		for _, d := range page.Differences {
			if repair && d.Lane != last {
				mended, err := u.store.RepairLane(ctx, d.Lane, kinds.Check)
				if err != nil {
					return out, known(err)
				}
				out.Repaired += len(mended)
			}
			last = d.Lane
			if len(out.Differences) < told {
				out.Differences = append(out.Differences, d)
			}
		}
		after, more = page.Next, page.Next != ""
	}
	return out, nil
}

// upkeepSchedules are those that a control plane makes where they are not there. They are schedules like all others:
// whoever may can change, pause or run them. One that was deleted is made again by the next start.
func upkeepSchedules(namespace string) []store.Schedule {
	own := func(name, kind, description string, every time.Duration) store.Schedule {
		return shipped(store.Schedule{
			Namespace: namespace, Name: name, Description: description, Every: every, ExpectSuccess: 6 * every, Enabled: true,
			Template: json.RawMessage(`{"kind":"` + kind + `"}`),
		})
	}
	return []store.Schedule{
		own("slipway-retention", kinds.Retention, "Removes what is not kept any longer.", 10*time.Minute),
		own("slipway-check", kinds.Check, "Compares lanes with their tasks.", time.Hour),
	}
}

// shipped adds what all schedules that come with Slipway have in common.
func shipped(s store.Schedule) store.Schedule {
	s.Owner, s.Zone, s.Missed, s.Overlap, s.Rights = "slipway", "UTC", "latest", "forbid", httpapi.OwnRights()
	return s
}

// makeUpkeep makes the schedules of upkeep that are not there, until they are, and then waits for the end.
func (p plane) makeUpkeep(ctx context.Context) error {
	for wait := time.Second; p.config.Upkeep != noUpkeep; wait = min(2*wait, time.Minute) {
		err := p.ensureUpkeep(ctx)
		if err == nil {
			break
		}
		p.log.WarnContext(ctx, "make the schedules of upkeep", "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

func (p plane) ensureUpkeep(ctx context.Context) error {
	return p.ensureSchedules(ctx, upkeepSchedules(p.config.Upkeep))
}

// ensureSchedules makes those that are not there.
func (p plane) ensureSchedules(ctx context.Context, all []store.Schedule) error {
	for _, want := range all {
		page, err := p.store.Schedules(ctx, store.ScheduleFilter{Namespace: want.Namespace, Name: want.Name, Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Schedules) > 0 {
			continue
		}
		if _, err := p.store.CreateSchedule(ctx, want, "slipway", planNew); err != nil && !errors.Is(err, store.ErrTaken) {
			return fmt.Errorf("make schedule %s: %w", want.Name, err)
		}
	}
	return nil
}
