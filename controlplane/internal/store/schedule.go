package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// Schedule is what is to run again and again. Durations of 0 are none.
type Schedule struct {
	Key                int64
	ID                 string
	Namespace, Name    string
	Description, Owner string
	Labels             map[string]string

	Cron          string // or Every
	Every         time.Duration
	Zone          string
	Template      json.RawMessage // the submit that each fire is
	Missed        string          // skip, latest, all, within
	UpTo          int             // of all
	Within        time.Duration   // what is older is never made up for
	Overlap       string          // forbid, allow, replace, queue
	Window        time.Duration   // a fire that is later is missed
	Spread        time.Duration
	Blackouts     json.RawMessage
	Calendars     []string // names: of its namespace, else of all
	ExpectSuccess time.Duration
	Enabled       bool
	Rights        json.RawMessage // the identity that changed it last

	// What changes write.
	EnabledAt, AnchorAt  time.Time
	Revision             int64
	CreatedBy, ChangedBy string
	CreatedAt, ChangedAt time.Time

	// What the firing writes.
	ConsideredAt time.Time // every instant up to here has been decided
	NextAt       time.Time // zero: never
	Broken       string    // why it cannot fire
	Waits        string    // why nothing fires before NextAt, where that is to be said
	LastFireAt   time.Time
	LastTask     string
	LedgerFrom   time.Time // what became of instants up to here is not kept; zero: all is

	// What a read joins to it.
	LastSuccessAt time.Time
	Live          []string // ids of its Tasks that have not ended
	Now           time.Time
}

// Unhealthy says that it has had no success for longer than is expected of it.
func (s Schedule) Unhealthy() bool {
	since := s.LastSuccessAt
	if since.Before(s.EnabledAt) {
		since = s.EnabledAt
	}
	return s.Enabled && s.ExpectSuccess > 0 && s.Now.Sub(since) > s.ExpectSuccess
}

// Calendar is a named set of times in which nothing is to fire. An empty namespace is all of them.
type Calendar struct {
	Namespace, Name string
	Windows         json.RawMessage
	ForAll          bool // also for schedules that do not name it
	Note            string
	Revision        int64
	ChangedBy       string
	ChangedAt       time.Time
}

// What became of an instant, where the store decides.
const (
	FireFired   = "fired"
	FireRefused = "refused" // the submit was refused by a rule
	FireBroken  = "broken"
)

// Who asked for a fire.
const (
	FromSchedule = "schedule"
	FromHand     = "manual"
	FromBackfill = "backfill"
)

// SchedulePlanner says what of a schedule is due. It is pure: it is called under locks, and again where the transaction
// is run again.
type SchedulePlanner func(in ScheduleInput) SchedulePlan

// ScheduleInput is what a planner decides from.
type ScheduleInput struct {
	Schedule  Schedule
	Calendars []Calendar // those that hold for it
	Missing   []string   // names of calendars that are not there
	Now       time.Time
	Live      []string    // ids of its Tasks that have not ended
	Done      []time.Time // of a range that was asked about: what has fired
}

// SchedulePlan is what a planner decided.
type SchedulePlan struct {
	Skip       bool // leave it as it is; it stays due
	Keep       bool // note the fires only: what the clock decides goes on as it was
	Fires      []ScheduleFire
	Considered time.Time
	Next       time.Time // when to look again; zero: never
	Broken     string
	Waits      string
}

// ScheduleFire is one instant of a schedule and what becomes of it.
type ScheduleFire struct {
	At      time.Time
	Nominal string // its wall times
	Source  string // FromSchedule where empty
	Outcome string
	Why     string
	Item    *Item  // of a fire: what is to be stored
	Wait    bool   // only once the schedule's live Tasks have ended
	Task    string // what it became
}

// Fire is a row of the ledger.
type Fire struct {
	At                            time.Time
	Nominal, Source, Outcome, Why string
	Task                          string
	NotedAt                       time.Time
}

// Errors of schedules.
var (
	// ErrRevision says that the thing was changed since the revision that the caller names.
	ErrRevision = errors.New("it was changed meanwhile")
	// ErrTaken says that another one has the name.
	ErrTaken = errors.New("the name is taken")
)

// CalendarUsedError says which schedule names a calendar that was to be deleted.
type CalendarUsedError struct{ Schedule string }

func (e *CalendarUsedError) Error() string { return "schedule " + e.Schedule + " names the calendar" }

// scheduleRow is a row of schedules.
type scheduleRow struct {
	Key                  int64 `gorm:"primaryKey"`
	ID, Namespace, Name  string
	Description, Owner   string
	Labels               []byte
	Cron                 string
	Every                float64
	Zone                 string
	Template             []byte
	Missed               string
	UpTo                 int
	Within               float64
	Overlap              string
	StartWindow, Spread  float64
	Blackouts, Calendars []byte
	ExpectWithin         float64
	Enabled              bool
	EnabledAt, AnchorAt  time.Time
	Rights               []byte
	Revision             int64
	CreatedBy, ChangedBy string
	CreatedAt            time.Time `gorm:"autoCreateTime:false"`
	ChangedAt            time.Time
	ConsideredAt         time.Time
	NextAt               *time.Time
	Broken, Waits        string
	LastFireAt           *time.Time
	LastTask             *string
	LedgerFrom           *time.Time
	Now                  time.Time `gorm:"->"`
}

func (scheduleRow) TableName() string { return "slipway.schedules" }

func (r scheduleRow) schedule() (Schedule, error) {
	s := Schedule{
		Key: r.Key, ID: r.ID, Namespace: r.Namespace, Name: r.Name, Description: r.Description, Owner: r.Owner,
		Cron: r.Cron, Every: duration(r.Every), Zone: r.Zone, Template: r.Template, Missed: r.Missed, UpTo: r.UpTo,
		Within: duration(r.Within), Overlap: r.Overlap, Window: duration(r.StartWindow), Spread: duration(r.Spread),
		Blackouts: r.Blackouts, ExpectSuccess: duration(r.ExpectWithin), Enabled: r.Enabled, Rights: r.Rights,
		EnabledAt: r.EnabledAt.UTC(), AnchorAt: r.AnchorAt.UTC(), Revision: r.Revision, CreatedBy: r.CreatedBy, ChangedBy: r.ChangedBy,
		CreatedAt: r.CreatedAt.UTC(), ChangedAt: r.ChangedAt.UTC(), ConsideredAt: r.ConsideredAt.UTC(), NextAt: instant(r.NextAt),
		Broken: r.Broken, Waits: r.Waits, LastFireAt: instant(r.LastFireAt), LastTask: value(r.LastTask), LedgerFrom: instant(r.LedgerFrom), Now: r.Now.UTC(),
	}
	for _, part := range []struct {
		raw  []byte
		into any
		name string
	}{{r.Labels, &s.Labels, "labels"}, {r.Calendars, &s.Calendars, "calendars"}} {
		if err := json.Unmarshal(part.raw, part.into); err != nil {
			return s, fmt.Errorf("its %s cannot be read", part.name)
		}
	}
	return s, nil
}

// duration is a column of seconds. What no duration holds is as long as one can be.
func duration(seconds float64) time.Duration {
	const most = float64(1<<63-1) / float64(time.Second)
	switch {
	case math.IsNaN(seconds):
		return -1
	case seconds >= most:
		return 1<<63 - 1
	case seconds <= -most:
		return -1 << 63
	}
	return time.Duration(seconds * float64(time.Second))
}

// columns are the columns that users write, with their values as they are stored.
func (s Schedule) columns() map[string]any {
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	if s.Calendars == nil {
		s.Calendars = []string{}
	}
	return map[string]any{
		"description": s.Description, "owner": s.Owner, "labels": jsonOf(s.Labels), "cron": s.Cron, "every": s.Every.Seconds(), "zone": s.Zone,
		"template": string(s.Template), "missed": s.Missed, "up_to": s.UpTo, "within": s.Within.Seconds(),
		"overlap": s.Overlap, "start_window": s.Window.Seconds(), "spread": s.Spread.Seconds(), "blackouts": orEmptyList(s.Blackouts),
		"calendars": jsonOf(s.Calendars), "expect_within": s.ExpectSuccess.Seconds(), "enabled": s.Enabled,
	}
}

func orEmptyList(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "[]"
	}
	return string(raw)
}

// timing are the columns that decide when it fires.
var timing = []string{"cron", "every", "zone", "spread", "blackouts", "calendars", "enabled"}

// facts are the columns that an audit row tells; the template may hold what is not everybody's to read.
func (s Schedule) facts() facts {
	all := facts{}
	for name, v := range s.columns() {
		if name != "template" && name != "labels" && name != "blackouts" && name != "calendars" {
			all[name] = v
		}
	}
	all["labels"], all["calendars"], all["template_bytes"] = s.Labels, s.Calendars, len(s.Template)
	return all
}
