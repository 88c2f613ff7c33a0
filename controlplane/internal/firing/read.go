package firing

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"slipway.dev/slipway/controlplane/internal/schedule"
)

// Schedule is a schedule as it is stored. Durations of 0 are none.
type Schedule struct {
	Key                int64
	ID                 string
	Namespace, Name    string
	Description, Owner string
	Labels             map[string]string

	Cron          string
	Every         time.Duration
	Zone          string
	Template      json.RawMessage
	Missed        string
	UpTo          int
	Within        time.Duration
	Overlap       string
	Window        time.Duration
	Spread        time.Duration
	Blackouts     json.RawMessage
	Calendars     []string
	ExpectSuccess time.Duration
	Enabled       bool
	Rights        json.RawMessage

	EnabledAt, AnchorAt  time.Time
	Revision             int64
	CreatedBy, ChangedBy string
	CreatedAt, ChangedAt time.Time

	ConsideredAt time.Time
	NextAt       time.Time
	Broken       string
	Waits        string
	LastFireAt   time.Time
	LastTask     string
	LedgerFrom   time.Time

	LastSuccessAt time.Time
	Live          []string
	Now           time.Time
}

// Calendar is a named set of blackouts as it is stored.
type Calendar struct {
	Namespace, Name string
	Windows         json.RawMessage
	ForAll          bool
	Note            string
	Revision        int64
	ChangedBy       string
	ChangedAt       time.Time
}

// Window is a blackout as it is stored: From and To once, or Cron, Zone and For again and again.
type Window struct {
	Name string     `json:"name,omitempty"`
	From *time.Time `json:"from,omitempty"`
	To   *time.Time `json:"to,omitempty"`
	Cron string     `json:"cron,omitempty"`
	Zone string     `json:"zone,omitempty"`
	For  float64    `json:"for,omitempty"` // seconds
}

// Around is what holds for a schedule besides its row.
type Around struct {
	Calendars []Calendar
	Missing   []string // names of calendars that are not there
}

// read reads a stored schedule. The error names every field at fault.
func read(s Schedule, around Around) (schedule.Schedule, error) {
	var wrong []schedule.FieldError
	note := func(at string, err error) error {
		var invalid *schedule.InvalidError
		if !errors.As(err, &invalid) {
			return err
		}
		for _, f := range invalid.Fields {
			wrong = append(wrong, schedule.FieldError{Pointer: at + f.Pointer, Reason: f.Reason})
		}
		return nil
	}
	out := schedule.Schedule{
		ID: s.ID, Enabled: s.Enabled, Since: s.EnabledAt, Last: s.ConsideredAt, Live: len(s.Live),
		Policy: schedule.Policy{
			Missed: schedule.MissedPolicy(s.Missed), UpTo: s.UpTo, Within: s.Within, Overlap: schedule.OverlapPolicy(s.Overlap),
			Window: s.Window, Spread: s.Spread,
		},
	}
	var err error
	out.Rule, err = schedule.Parse(schedule.Spec{Cron: s.Cron, Zone: s.Zone, Every: s.Every, Anchor: s.AnchorAt})
	if err := note("", err); err != nil {
		return out, err
	}
	if err := note("", out.Policy.Check()); err != nil {
		return out, err
	}
	own, err := windows(s.Blackouts, "")
	if err := note("/blackouts", err); err != nil {
		return out, err
	}
	out.Blackouts = own
	for _, c := range around.Calendars {
		theirs, err := windows(c.Windows, c.Name)
		if err != nil {
			wrong = append(wrong, schedule.FieldError{Pointer: "/calendars", Reason: fmt.Sprintf("name %s, which cannot be read: %v", c.Name, err)})
		}
		out.Blackouts = append(out.Blackouts, theirs...)
	}
	for _, name := range around.Missing {
		wrong = append(wrong, schedule.FieldError{Pointer: "/calendars", Reason: fmt.Sprintf("name %q, which is neither of this namespace nor of all", name)})
	}
	if len(out.Blackouts) > schedule.MaxBlackouts {
		wrong = append(wrong, schedule.FieldError{Pointer: "/blackouts", Reason: fmt.Sprintf(
			"are %d with those of calendars; %d can be", len(out.Blackouts), schedule.MaxBlackouts)})
	}
	if len(wrong) > 0 {
		return out, &schedule.InvalidError{Fields: wrong}
	}
	return out, nil
}

// windows reads stored blackouts; calendar names those that have no name. The error is an *schedule.InvalidError that
// names each field at fault, as /0/from.
func windows(raw json.RawMessage, calendar string) ([]*schedule.Blackout, error) {
	var all []Window
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &all); err != nil {
			return nil, &schedule.InvalidError{Fields: []schedule.FieldError{{Pointer: "", Reason: "is no list of blackouts"}}}
		}
	}
	var wrong []schedule.FieldError
	var out []*schedule.Blackout
	for i, w := range all {
		spec := schedule.BlackoutSpec{Name: w.Name, Cron: w.Cron, Zone: w.Zone, For: seconds(w.For)}
		if spec.Name == "" {
			spec.Name = calendar
		}
		if spec.Name == "" {
			spec.Name = fmt.Sprintf("%d", i+1)
		}
		if w.From != nil {
			spec.From = *w.From
		}
		if w.To != nil {
			spec.To = *w.To
		}
		b, err := schedule.ParseBlackout(spec)
		var invalid *schedule.InvalidError
		switch {
		case errors.As(err, &invalid):
			for _, f := range invalid.Fields {
				wrong = append(wrong, schedule.FieldError{Pointer: fmt.Sprintf("/%d%s", i, f.Pointer), Reason: f.Reason})
			}
		case err != nil:
			return nil, err
		default:
			out = append(out, b)
		}
	}
	if len(wrong) > 0 {
		return nil, &schedule.InvalidError{Fields: wrong}
	}
	return out, nil
}

func seconds(n float64) time.Duration {
	const most = float64(schedule.MaxBlackout / time.Second)
	return time.Duration(max(-1, min(n, 2*most)) * float64(time.Second))
}

// Check refuses what can never fire. Its error is an *schedule.InvalidError that names the fields, as /cron or
// /blackouts/0/from.
func Check(s Schedule, around Around) error {
	if s.AnchorAt.IsZero() {
		s.AnchorAt = time.Unix(0, 0)
	}
	_, err := read(s, around)
	return err
}

// CheckCalendar refuses a calendar whose windows are none, as /windows/0/from.
func CheckCalendar(raw json.RawMessage) error {
	_, err := windows(raw, "calendar")
	var invalid *schedule.InvalidError
	if errors.As(err, &invalid) {
		for i, f := range invalid.Fields {
			invalid.Fields[i].Pointer = "/windows" + f.Pointer
		}
	}
	return err
}
