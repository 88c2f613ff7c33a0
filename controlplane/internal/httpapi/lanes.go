package httpapi

import (
	"context"
	"fmt"
	"strings"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/pkg/api"
)

// laneNamespace is the namespace that a lane's key names.
func laneNamespace(key string) string {
	_, rest, _ := strings.Cut(key, ":")
	namespace, _, _ := strings.Cut(rest, "/")
	return namespace
}

// GetLane reads one lane.
func (s *server) GetLane(ctx context.Context, r GetLaneRequestObject) (GetLaneResponseObject, error) {
	ctx, known := plain(ctx)
	if err := s.visible(ctx, known.identity, "lanes", "", laneNamespace(r.Params.Key)); err != nil {
		return nil, err
	}
	l, err := s.standing.Lane(ctx, r.Params.Key)
	if err != nil {
		return nil, fmt.Errorf("read a lane: %w", err)
	}
	out := api.LaneState{
		Key: l.Key, Queue: l.Queue, Namespace: l.Namespace, Kind: l.Kind, Fence: l.Fence, Holder: l.Holder, Head: l.Head,
		Queued: int32(l.Queued),
	}
	if l.Wait != "" {
		out.Waiting = &api.Waiting{Reason: string(l.Wait), Note: l.WaitNote, Holder: l.WaitsFor}
	}
	for i, p := range l.Line {
		out.Line = append(out.Line, api.LanePlace{
			Position: int32(i + 1), Task: p.ID, Kind: p.Kind, Class: api.Class(p.Class.String()), Mode: api.Mode(p.Mode),
			Absorbed: int32(p.Absorbed), Held: p.Held, CreatedAt: p.CreatedAt.UTC(),
		})
	}
	return GetLane200JSONResponse(out), nil
}

const defaultCheck = 500

// CheckLanes compares lanes with their Tasks.
func (s *server) CheckLanes(ctx context.Context, r CheckLanesRequestObject) (CheckLanesResponseObject, error) {
	ctx, known := plain(ctx)
	if err := s.gate.May(ctx, known.identity, auth.Access{Verb: "list", Group: auth.Group, Resource: "lanes"}); err != nil {
		return nil, err
	}
	var ask api.CheckLanes
	if r.Body != nil {
		ask = *r.Body
	}
	if ask.Repair {
		if err := s.gate.May(ctx, known.identity, auth.Access{Verb: "update", Group: auth.Group, Resource: "lanes"}); err != nil {
			return nil, err
		}
	}
	if ask.Limit == 0 {
		ask.Limit = defaultCheck
	}
	found, err := s.lanes.CheckLanes(ctx, ask.After, int(ask.Limit))
	if err != nil {
		return nil, fmt.Errorf("check lanes: %w", err)
	}
	differences := found.Differences
	if ask.Repair {
		if differences, err = s.repair(ctx, differences, known.identity.User); err != nil {
			return nil, err
		}
	}
	out := api.LaneCheck{Checked: int32(found.Checked), Next: found.Next, Differences: make([]api.LaneDifference, len(differences))}
	for i, d := range differences {
		out.Differences[i] = api.LaneDifference{Lane: d.Lane, Field: d.Field, Shown: d.Shown, Derived: d.Derived, Repaired: d.Repaired}
	}
	return CheckLanes200JSONResponse(out), nil
}

// repair sets right each lane that differs, one after the other. What was right again by then is left out.
func (s *server) repair(ctx context.Context, found []DifferenceView, by string) ([]DifferenceView, error) {
	var done []DifferenceView
	last := ""
	for _, d := range found {
		if d.Lane == last {
			continue
		}
		last = d.Lane
		set, err := s.lanes.RepairLane(ctx, d.Lane, by)
		if err != nil {
			return nil, fmt.Errorf("repair a lane: %w", err)
		}
		done = append(done, set...)
	}
	return done, nil
}

// ForceReleaseLane ends the Attempt that holds a lane, without the proof that it has stopped.
func (s *server) ForceReleaseLane(ctx context.Context, r ForceReleaseLaneRequestObject) (ForceReleaseLaneResponseObject, error) {
	ctx, known := plain(ctx)
	namespace := laneNamespace(r.Body.Key)
	if err := s.visible(ctx, known.identity, "lanes", "", namespace); err != nil {
		return nil, err
	}
	update := auth.Access{Verb: "update", Group: auth.Group, Resource: "lanes", Namespace: namespace}
	if err := s.gate.May(ctx, known.identity, update); err != nil {
		return nil, err
	}
	done, err := s.lanes.ForceRelease(ctx, r.Body.Key, known.identity.User, r.Body.Reason)
	if err != nil {
		return nil, fmt.Errorf("take a lane from its holder: %w", err)
	}
	out := api.ForceReleased{
		Task: done.TaskID, State: api.State(done.State), Outcome: api.Outcome(done.Outcome), Reason: string(done.Reason),
		Attempt: int32(done.Number), Fence: done.Fence, MayStillRun: done.MayStillRun,
	}
	if out.MayStillRun == nil {
		out.MayStillRun = []string{}
	}
	return ForceReleaseLane200JSONResponse(out), nil
}
