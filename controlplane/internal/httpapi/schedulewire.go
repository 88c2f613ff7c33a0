package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
)

// What a schedule is where nothing is said.
const (
	usualZone    = "UTC"
	usualMissed  = "latest"
	usualOverlap = "forbid"
	usualPreview = 10
	usualCap     = 100
)

// wireRule is the part of a schedule that users write.
func wireRule(s ScheduleView) api.CreateSchedule {
	out := api.CreateSchedule{
		Namespace: s.Namespace, Name: s.Name, Cron: s.Cron, Every: everyText(s.Every), Zone: s.Zone, Missed: s.Missed, UpTo: int32(s.UpTo),
		Within: s.Within.Seconds(), Overlap: s.Overlap, Window: s.Window.Seconds(), Spread: s.Spread.Seconds(), Calendars: s.Calendars,
		Enabled: &s.Enabled, Description: s.Description, Owner: s.Owner, Labels: s.Labels, ExpectSuccessWithin: s.ExpectSuccess.Seconds(),
	}
	// What was put there behind the API's back may be anything; it shows as empty then, and the schedule as broken.
	_ = json.Unmarshal(s.Template, &out.Template)
	_ = json.Unmarshal(s.Blackouts, &out.Blackouts)
	return out
}

func wireSchedule(s ScheduleView) api.Schedule {
	r := wireRule(s)
	since := s.LastSuccessAt
	if since.Before(s.EnabledAt) {
		since = s.EnabledAt
	}
	late := s.Enabled && s.ExpectSuccess > 0 && s.Now.Sub(since) > s.ExpectSuccess
	out := api.Schedule{
		ID: s.ID, Namespace: r.Namespace, Name: r.Name, Cron: r.Cron, Every: r.Every, Zone: r.Zone, Template: r.Template, Missed: r.Missed,
		UpTo: r.UpTo, Within: r.Within, Overlap: r.Overlap, Window: r.Window, Spread: r.Spread, Blackouts: r.Blackouts, Calendars: r.Calendars,
		Enabled: s.Enabled, Description: r.Description, Owner: r.Owner, Labels: r.Labels, ExpectSuccessWithin: r.ExpectSuccessWithin,
		Healthy: s.Broken == "" && !late, Broken: s.Broken, Waits: s.Waits, NextAt: utc(s.NextAt), ConsideredAt: utc(s.ConsideredAt),
		LastFireAt: utc(s.LastFireAt), LastTask: s.LastTask, LastSuccessAt: utc(s.LastSuccessAt), Live: s.Live, Revision: s.Revision,
		CreatedBy: s.CreatedBy, CreatedAt: utc(s.CreatedAt), ChangedBy: s.ChangedBy, ChangedAt: utc(s.ChangedAt),
	}
	if out.Live == nil {
		out.Live = []string{}
	}
	return out
}

// ruleOf lays what users write over a schedule.
func (s *server) ruleOf(r api.CreateSchedule) (ScheduleView, error) {
	out := ScheduleView{
		Namespace: r.Namespace, Name: r.Name, Cron: r.Cron, Zone: or(r.Zone, usualZone), Missed: or(r.Missed, usualMissed), UpTo: int(r.UpTo),
		Within: asDuration(r.Within), Overlap: or(r.Overlap, usualOverlap), Window: asDuration(r.Window), Spread: asDuration(r.Spread),
		Calendars: r.Calendars, Enabled: r.Enabled == nil || *r.Enabled, Description: r.Description, Owner: r.Owner, Labels: r.Labels,
		ExpectSuccess: asDuration(r.ExpectSuccessWithin),
	}
	var err error
	if r.Every != "" {
		if out.Every, err = s.timer.Every(r.Every); err != nil {
			return out, err
		}
	}
	if out.Template, err = json.Marshal(r.Template); err != nil {
		return out, fmt.Errorf("write a template: %w", err)
	}
	out.Blackouts, err = wireBlackouts(r.Blackouts)
	return out, err
}

func wireBlackouts(all []api.Blackout) (json.RawMessage, error) {
	if all == nil {
		all = []api.Blackout{}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("write blackouts: %w", err)
	}
	return raw, nil
}

func or(text, usual string) string {
	if text == "" {
		return usual
	}
	return text
}

func asDuration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// everyText writes an interval as Timer.Every reads it.
func everyText(d time.Duration) string {
	var text strings.Builder
	for _, u := range []struct {
		letter string
		long   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if n := int64(d / u.long); n > 0 {
			text.WriteString(strconv.FormatInt(n, 10) + u.letter)
			d %= u.long
		}
	}
	return text.String()
}

// merged is a schedule under a JSON merge patch (RFC 7396): what is absent stays, null takes away.
func (s *server) merged(now ScheduleView, patch any) (ScheduleView, error) {
	raw, err := json.Marshal(wireRule(now))
	if err != nil {
		return now, fmt.Errorf("write a schedule: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var whole any
	if err := d.Decode(&whole); err != nil {
		return now, fmt.Errorf("read a schedule: %w", err)
	}
	whole = merge(whole, patch)
	if err := s.operations["POST /v1/schedules"].operation.checkBody(whole); err != nil {
		return now, err
	}
	if raw, err = json.Marshal(whole); err != nil {
		return now, fmt.Errorf("write a changed schedule: %w", err)
	}
	var rule api.CreateSchedule
	if err := json.Unmarshal(raw, &rule); err != nil {
		return now, badRequest("the changed schedule does not fit the API's document")
	}
	return s.ruleOf(rule)
}

func merge(into, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	all, ok := into.(map[string]any)
	if !ok {
		all = map[string]any{}
	}
	for name, v := range changes {
		if v == nil {
			delete(all, name)
			continue
		}
		all[name] = merge(all[name], v)
	}
	return all
}

// lay lays what users write of one schedule over another.
func (s ScheduleView) lay(over *ScheduleView) {
	over.Cron, over.Every, over.Zone, over.Template, over.Missed, over.UpTo, over.Within = s.Cron, s.Every, s.Zone, s.Template, s.Missed, s.UpTo, s.Within
	over.Overlap, over.Window, over.Spread, over.Blackouts, over.Calendars = s.Overlap, s.Window, s.Spread, s.Blackouts, s.Calendars
	over.Enabled, over.Description, over.Owner, over.Labels, over.ExpectSuccess = s.Enabled, s.Description, s.Owner, s.Labels, s.ExpectSuccess
}

func wireFire(f FireView) api.Fire {
	return api.Fire{At: utc(f.At), Nominal: f.Nominal, Source: f.Source, Outcome: f.Outcome, Why: f.Why, Task: f.Task, NotedAt: utc(f.NotedAt)}
}

func wireFires(all []FireView) []api.Fire {
	out := make([]api.Fire, len(all))
	for i, f := range all {
		out[i] = wireFire(f)
	}
	return out
}

func wirePreview(all []ComingView, words string) api.SchedulePreview {
	out := api.SchedulePreview{Explained: words, Items: make([]api.Coming, len(all))}
	for i, c := range all {
		out.Items[i] = api.Coming{At: utc(c.At), Due: utc(c.Due), Nominal: c.Nominal, Fires: c.Fires, Note: c.Note, Blackout: c.Blackout}
	}
	return out
}

func wireCalendar(c CalendarView) api.Calendar {
	out := api.Calendar{
		Namespace: c.Namespace, Name: c.Name, ForAll: c.ForAll, Note: c.Note, Revision: c.Revision, ChangedBy: c.ChangedBy, ChangedAt: utc(c.ChangedAt),
	}
	if json.Unmarshal(c.Windows, &out.Windows) != nil || out.Windows == nil {
		out.Windows = []api.Blackout{}
	}
	return out
}

// etag is a revision as the header has it.
func etag(revision int64) string { return fmt.Sprintf(`"%d"`, revision) }

// revision reads an If-Match that the document lets pass; 0 is any.
func revision(header *api.IfMatch) int64 {
	n, err := strconv.ParseInt(strings.Trim(given(header), `"`), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// inTemplate moves the pointers of a refused template to where it stands.
func inTemplate(err error) error {
	var invalid *kinds.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	out := &kinds.InvalidError{}
	for _, f := range invalid.Fields {
		out.Fields = append(out.Fields, kinds.FieldError{Pointer: "/template" + f.Pointer, Reason: f.Reason})
	}
	return out
}
