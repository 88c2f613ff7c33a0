package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/client"
)

// tickName is the schedule that the demonstration makes, or finds paused from the last time.
const tickName = "every-5-seconds"

// timed has a schedule fire twice, prints its ledger, and pauses it.
func timed(ctx context.Context, slipway *client.ClientWithResponses, log *progress) error {
	ctx, cancel := context.WithTimeout(ctx, taskWithin)
	defer cancel()
	tick, err := ticking(ctx, slipway)
	if err != nil {
		return err
	}
	log.say("schedule %s fires every %s", tick.Name, tick.Every)
	fires, err := twice(ctx, slipway, tick)
	if err != nil {
		return errors.Join(err, pause(ctx, slipway, tick))
	}
	log.print("\n%-22s %-10s %s\n", "AT", "OUTCOME", "TASK")
	for _, f := range fires {
		log.print("%-22s %-10s %s\n", f.At.UTC().Format(time.RFC3339), f.Outcome, f.Task)
	}
	if err := pause(ctx, slipway, tick); err != nil {
		return err
	}
	log.say("schedule %s paused", tick.Name)
	return nil
}

// ticking makes the schedule, or resumes it.
func ticking(ctx context.Context, slipway *client.ClientWithResponses) (*api.Schedule, error) {
	params, err := json.Marshal(map[string]any{"command": []string{"echo", "tick"}})
	if err != nil {
		return nil, fmt.Errorf("write the parameters: %w", err)
	}
	made, err := slipway.CreateScheduleWithResponse(ctx, api.CreateSchedule{
		Namespace: tenant, Name: tickName, Every: "5s", Overlap: "allow", Template: api.ScheduleTemplate{Kind: "command.run", Params: params},
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("make a schedule: %w", err)
	case made.JSON201 != nil:
		return made.JSON201, nil
	case made.StatusCode() != http.StatusConflict:
		return nil, fmt.Errorf("make a schedule: answer %s: %s", made.Status(), bytes.TrimSpace(made.Body))
	}
	namespace, name := tenant, tickName
	found, err := slipway.ListSchedulesWithResponse(ctx, &api.ListSchedulesParams{Namespace: &namespace, Name: &name})
	if err != nil {
		return nil, fmt.Errorf("find schedule %s: %w", name, err)
	}
	if found.JSON200 == nil || len(found.JSON200.Items) == 0 {
		return nil, fmt.Errorf("find schedule %s: answer %s: %s", name, found.Status(), bytes.TrimSpace(found.Body))
	}
	resumed, err := slipway.ResumeScheduleWithResponse(ctx, found.JSON200.Items[0].ID, nil)
	if err != nil {
		return nil, fmt.Errorf("resume schedule %s: %w", name, err)
	}
	if resumed.JSON200 == nil {
		return nil, fmt.Errorf("resume schedule %s: answer %s: %s", name, resumed.Status(), bytes.TrimSpace(resumed.Body))
	}
	return resumed.JSON200, nil
}

// twice waits for two fires since the schedule was last changed.
func twice(ctx context.Context, slipway *client.ClientWithResponses, s *api.Schedule) ([]api.Fire, error) {
	var last error
	for {
		page, err := slipway.ListFiresWithResponse(ctx, s.ID, nil)
		switch {
		case err != nil:
			last = err
		case page.JSON200 == nil:
			last = fmt.Errorf("answer %s: %s", page.Status(), bytes.TrimSpace(page.Body))
		default:
			var fresh []api.Fire
			for _, f := range page.JSON200.Items {
				if f.Outcome == "fired" && f.NotedAt.After(s.ChangedAt) {
					fresh = append([]api.Fire{f}, fresh...)
				}
			}
			if len(fresh) >= 2 {
				return fresh, nil
			}
			last = fmt.Errorf("it has fired %d times", len(fresh))
		}
		if !sleep(ctx, lookEvery) {
			return nil, fmt.Errorf("wait for schedule %s to fire twice: %w", s.Name, last)
		}
	}
}

func pause(ctx context.Context, slipway *client.ClientWithResponses, s *api.Schedule) error {
	paused, err := slipway.PauseScheduleWithResponse(ctx, s.ID, nil)
	if err != nil {
		return fmt.Errorf("pause schedule %s: %w", s.Name, err)
	}
	if paused.JSON200 == nil || paused.JSON200.Enabled {
		return fmt.Errorf("pause schedule %s: answer %s: %s", s.Name, paused.Status(), bytes.TrimSpace(paused.Body))
	}
	return nil
}
