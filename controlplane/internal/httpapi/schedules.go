package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/pkg/api"
)

func schedules(verb, subresource, name, namespace string) auth.Access {
	return auth.Access{Verb: verb, Group: auth.Group, Resource: "schedules", Subresource: subresource, Name: name, Namespace: namespace}
}

// mayFire asks for the rights that the fires of a schedule need, and checks its template.
func (s *server) mayFire(ctx context.Context, caller auth.Identity, v ScheduleView) error {
	return inTemplate(MayFire(ctx, s.gate, caller, s.kinds, v.Namespace, v.Template))
}

// CreateSchedule makes a schedule.
func (s *server) CreateSchedule(ctx context.Context, r CreateScheduleRequestObject) (CreateScheduleResponseObject, error) {
	ctx, known := plain(ctx)
	if err := s.gate.May(ctx, known.identity, schedules("create", "", "", r.Body.Namespace)); err != nil {
		return nil, err
	}
	want, err := s.ruleOf(*r.Body)
	if err != nil {
		return nil, err
	}
	if err := s.timer.Check(ctx, want); err != nil {
		return nil, err
	}
	if err := s.mayFire(ctx, known.identity, want); err != nil {
		return nil, err
	}
	if want.Rights, err = keepIdentity(known.identity); err != nil {
		return nil, err
	}
	made, err := s.schedules.CreateSchedule(ctx, want, known.identity.User)
	if err != nil {
		return nil, fmt.Errorf("make a schedule: %w", err)
	}
	return CreateSchedule201JSONResponse{
		Body: wireSchedule(made), Headers: CreateSchedule201ResponseHeaders{ETag: etag(made.Revision), Location: "/v1/schedules/" + made.ID},
	}, nil
}

// ListSchedules lists schedules.
func (s *server) ListSchedules(ctx context.Context, r ListSchedulesRequestObject) (ListSchedulesResponseObject, error) {
	ctx, known := plain(ctx)
	p := r.Params
	f := ScheduleFilter{
		Namespace: given(p.Namespace), Name: given(p.Name), Owner: given(p.Owner), Enabled: p.Enabled, Broken: given(p.Broken),
		Cursor: given(p.Cursor), Limit: int(given(p.Limit)), Labels: map[string]string{},
	}
	if err := s.gate.May(ctx, known.identity, schedules("list", "", "", f.Namespace)); err != nil {
		return nil, err
	}
	for _, kv := range given(p.Label) {
		k, v, _ := strings.Cut(kv, "=")
		f.Labels[k] = v
	}
	page, err := s.schedules.Schedules(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	out := api.SchedulePage{Items: make([]api.Schedule, len(page.Items)), Next: page.Next}
	for i, one := range page.Items {
		out.Items[i] = wireSchedule(one)
	}
	return ListSchedules200JSONResponse(out), nil
}

// seenSchedule reads a schedule that the caller may get, and asks for one right more, where a verb is named.
func (s *server) seenSchedule(ctx context.Context, caller auth.Identity, id, verb, subresource string) (ScheduleView, error) {
	found, err := s.schedules.Schedule(ctx, id)
	if err != nil {
		return ScheduleView{}, fmt.Errorf("read a schedule: %w", err)
	}
	if err := s.visible(ctx, caller, "schedules", found.Name, found.Namespace); err != nil {
		return ScheduleView{}, err
	}
	if verb == "" {
		return found, nil
	}
	return found, s.gate.May(ctx, caller, schedules(verb, subresource, found.Name, found.Namespace))
}

// GetSchedule reads a schedule.
func (s *server) GetSchedule(ctx context.Context, r GetScheduleRequestObject) (GetScheduleResponseObject, error) {
	ctx, known := plain(ctx)
	found, err := s.seenSchedule(ctx, known.identity, r.ID, "", "")
	if err != nil {
		return nil, err
	}
	return GetSchedule200JSONResponse{Body: wireSchedule(found), Headers: GetSchedule200ResponseHeaders{ETag: etag(found.Revision)}}, nil
}

// edit is a change of one schedule.
type edit struct {
	id, verb string
	revision int64
	asked    bool // for the rights of its fires
	// to is what the schedule is to be.
	to func(ScheduleView) (ScheduleView, error)
}

// change changes a schedule. What it is to be is worked out and asked about outside of the database's transaction, so it
// is worked out anew where somebody else has changed it meanwhile.
func (s *server) change(ctx context.Context, known *call, e edit) (ScheduleView, error) {
	const patience = 50
	for try := 0; ; try++ {
		was, err := s.seenSchedule(ctx, known.identity, e.id, "patch", "")
		if err != nil {
			return ScheduleView{}, err
		}
		if e.revision != 0 && e.revision != was.Revision {
			return ScheduleView{}, ErrRevision
		}
		want, err := e.to(was)
		if err != nil {
			return ScheduleView{}, err
		}
		if e.asked {
			if err := s.timer.Check(ctx, want); err != nil {
				return ScheduleView{}, err
			}
			if err := s.mayFire(ctx, known.identity, want); err != nil {
				return ScheduleView{}, err
			}
		}
		c := ScheduleChange{Revision: was.Revision, Verb: e.verb, By: known.identity.User}
		if c.Rights, err = keepIdentity(known.identity); err != nil {
			return ScheduleView{}, err
		}
		now, err := s.schedules.ChangeSchedule(ctx, e.id, c, want.lay)
		if errors.Is(err, ErrRevision) && e.revision == 0 && try < patience {
			continue
		}
		if err != nil {
			return ScheduleView{}, fmt.Errorf("change a schedule: %w", err)
		}
		return now, nil
	}
}

// ChangeSchedule changes a schedule by a merge patch.
func (s *server) ChangeSchedule(ctx context.Context, r ChangeScheduleRequestObject) (ChangeScheduleResponseObject, error) {
	ctx, known := plain(ctx)
	now, err := s.change(ctx, known, edit{
		id: r.ID, verb: "patch", revision: revision(r.Params.IfMatch), asked: true,
		to: func(was ScheduleView) (ScheduleView, error) {
			want, err := s.merged(was, known.body)
			want.AnchorAt = was.AnchorAt
			return want, err
		},
	})
	if err != nil {
		return nil, err
	}
	return ChangeSchedule200JSONResponse{Body: wireSchedule(now), Headers: ChangeSchedule200ResponseHeaders{ETag: etag(now.Revision)}}, nil
}

// PauseSchedule lets a schedule fire no more.
func (s *server) PauseSchedule(ctx context.Context, r PauseScheduleRequestObject) (PauseScheduleResponseObject, error) {
	ctx, known := plain(ctx)
	now, err := s.change(ctx, known, edit{id: r.ID, verb: "pause", revision: revision(r.Params.IfMatch), to: switched(false)})
	if err != nil {
		return nil, err
	}
	return PauseSchedule200JSONResponse{Body: wireSchedule(now), Headers: PauseSchedule200ResponseHeaders{ETag: etag(now.Revision)}}, nil
}

// ResumeSchedule lets a schedule fire again.
func (s *server) ResumeSchedule(ctx context.Context, r ResumeScheduleRequestObject) (ResumeScheduleResponseObject, error) {
	ctx, known := plain(ctx)
	now, err := s.change(ctx, known, edit{id: r.ID, verb: "resume", revision: revision(r.Params.IfMatch), asked: true, to: switched(true)})
	if err != nil {
		return nil, err
	}
	return ResumeSchedule200JSONResponse{Body: wireSchedule(now), Headers: ResumeSchedule200ResponseHeaders{ETag: etag(now.Revision)}}, nil
}

func switched(on bool) func(ScheduleView) (ScheduleView, error) {
	return func(was ScheduleView) (ScheduleView, error) {
		was.Enabled = on
		return was, nil
	}
}

// DeleteSchedule deletes a schedule.
func (s *server) DeleteSchedule(ctx context.Context, r DeleteScheduleRequestObject) (DeleteScheduleResponseObject, error) {
	ctx, known := plain(ctx)
	found, err := s.seenSchedule(ctx, known.identity, r.ID, "delete", "")
	if err != nil {
		return nil, err
	}
	if err := s.schedules.DeleteSchedule(ctx, found.ID, revision(r.Params.IfMatch), known.identity.User); err != nil {
		return nil, fmt.Errorf("delete a schedule: %w", err)
	}
	return DeleteSchedule204Response{}, nil
}

// mayStillFire asks whether who a schedule fires as may still do what it does.
func (s *server) mayStillFire(ctx context.Context, v ScheduleView) error {
	if IsOwn(v.Rights) {
		return nil
	}
	who, known := KeptIdentity(v.Rights)
	if !known {
		return &NotFiredError{Outcome: "refused", Why: "nobody is known whose rights it has; a change of it mends that"}
	}
	err := s.mayFire(ctx, who, v)
	var forbidden *auth.ForbiddenError
	if errors.As(err, &forbidden) {
		return &NotFiredError{Outcome: "refused", Why: who.User + ", who changed it last, is " + forbidden.Error()}
	}
	return err
}

// RunSchedule runs a schedule now.
func (s *server) RunSchedule(ctx context.Context, r RunScheduleRequestObject) (RunScheduleResponseObject, error) {
	ctx, known := plain(ctx)
	found, err := s.seenSchedule(ctx, known.identity, r.ID, "create", "run")
	if err != nil {
		return nil, err
	}
	if err := s.mayStillFire(ctx, found); err != nil {
		return nil, err
	}
	fires, err := s.schedules.FireByHand(ctx, found.ID, Hand{By: known.identity.User, Revision: found.Revision})
	if err != nil {
		return nil, fmt.Errorf("run a schedule: %w", err)
	}
	if len(fires) != 1 {
		return nil, fmt.Errorf("run a schedule: it fired %d times", len(fires))
	}
	if f := fires[0]; f.Task == "" {
		refused := &NotFiredError{Outcome: f.Outcome, Why: f.Why}
		if f.Outcome == "forbidden" && len(found.Live) > 0 {
			refused.Task = found.Live[0]
		}
		return nil, refused
	}
	known.task = fires[0].Task
	return RunSchedule201JSONResponse(wireFire(fires[0])), nil
}

// BackfillSchedule makes up for instants of a range.
func (s *server) BackfillSchedule(ctx context.Context, r BackfillScheduleRequestObject) (BackfillScheduleResponseObject, error) {
	ctx, known := plain(ctx)
	found, err := s.seenSchedule(ctx, known.identity, r.ID, "create", "run")
	if err != nil {
		return nil, err
	}
	if !r.Body.To.After(r.Body.From) {
		return nil, refuseField("/to", "is not after from")
	}
	if kept := found.LedgerFrom; !kept.IsZero() && !r.Body.From.After(kept) {
		return nil, refuseField("/from", "is not after "+kept.Format(time.RFC3339)+": what ran until then is in no ledger any more")
	}
	if err := s.timer.Check(ctx, found); err != nil {
		return nil, err
	}
	if err := s.mayStillFire(ctx, found); err != nil {
		return nil, err
	}
	h := Hand{
		By: known.identity.User, Revision: found.Revision, Range: true, From: r.Body.From, To: r.Body.To, Most: int(r.Body.Cap), NewestFirst: r.Body.Order == "newest",
		Overlap: r.Body.Overlap,
	}
	if h.Most == 0 {
		h.Most = usualCap
	}
	fires, err := s.schedules.FireByHand(ctx, found.ID, h)
	if err != nil {
		return nil, fmt.Errorf("backfill a schedule: %w", err)
	}
	return BackfillSchedule200JSONResponse(api.FireList{Items: wireFires(fires)}), nil
}

// ListFires reads the ledger of a schedule.
func (s *server) ListFires(ctx context.Context, r ListFiresRequestObject) (ListFiresResponseObject, error) {
	ctx, known := plain(ctx)
	found, err := s.seenSchedule(ctx, known.identity, r.ID, "", "")
	if err != nil {
		return nil, err
	}
	page, err := s.schedules.Fires(ctx, FireFilter{
		Schedule: found.Key, Outcome: given(r.Params.Outcome), Cursor: given(r.Params.Cursor), Limit: int(given(r.Params.Limit)),
	})
	if err != nil {
		return nil, fmt.Errorf("read the ledger of a schedule: %w", err)
	}
	return ListFires200JSONResponse(api.FirePage{Items: wireFires(page.Items), Next: page.Next}), nil
}

// PreviewStoredSchedule shows when a schedule will fire.
func (s *server) PreviewStoredSchedule(ctx context.Context, r PreviewStoredScheduleRequestObject) (PreviewStoredScheduleResponseObject, error) {
	ctx, known := plain(ctx)
	found, err := s.seenSchedule(ctx, known.identity, r.ID, "", "")
	if err != nil {
		return nil, err
	}
	n := int(given(r.Params.N))
	if n == 0 {
		n = usualPreview
	}
	all, words, err := s.timer.Preview(ctx, found, given(r.Params.From), n)
	if err != nil {
		return nil, err
	}
	return PreviewStoredSchedule200JSONResponse(wirePreview(all, words)), nil
}

// PreviewSchedule shows when a schedule that is not stored would fire.
func (s *server) PreviewSchedule(ctx context.Context, r PreviewScheduleRequestObject) (PreviewScheduleResponseObject, error) {
	ctx, known := plain(ctx)
	b := *r.Body
	if err := s.gate.May(ctx, known.identity, schedules("list", "", "", b.Namespace)); err != nil {
		return nil, err
	}
	want, err := s.ruleOf(api.CreateSchedule{
		Namespace: b.Namespace, Cron: b.Cron, Every: b.Every, Zone: b.Zone, Spread: b.Spread, Blackouts: b.Blackouts, Calendars: b.Calendars,
	})
	if err != nil {
		return nil, err
	}
	n := int(b.N)
	if n == 0 {
		n = usualPreview
	}
	all, words, err := s.timer.Preview(ctx, want, b.From, n)
	if err != nil {
		return nil, err
	}
	return PreviewSchedule200JSONResponse(wirePreview(all, words)), nil
}

// ListCollisions lists the minutes of the coming day in which several schedules fire.
func (s *server) ListCollisions(ctx context.Context, r ListCollisionsRequestObject) (ListCollisionsResponseObject, error) {
	ctx, known := plain(ctx)
	namespace := given(r.Params.Namespace)
	if err := s.gate.May(ctx, known.identity, schedules("list", "", "", namespace)); err != nil {
		return nil, err
	}
	const pages, size = 10, 500
	yes := true
	var all []ScheduleView
	f := ScheduleFilter{Namespace: namespace, Enabled: &yes, Limit: size}
	for range pages {
		page, err := s.schedules.Schedules(ctx, f)
		if err != nil {
			return nil, fmt.Errorf("list schedules: %w", err)
		}
		all = append(all, page.Items...)
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	found, err := s.timer.Collisions(ctx, all)
	if err != nil {
		return nil, err
	}
	out := api.CollisionList{Items: make([]api.Collision, len(found))}
	for i, c := range found {
		out.Items[i] = api.Collision{Minute: utc(c.Minute), Count: int32(c.Count), Schedules: c.Names}
	}
	return ListCollisions200JSONResponse(out), nil
}
