package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"slipway.dev/slipway/controlplane/internal/kinds"
)

// What the routes of schedules need of the rest. task.ErrNotFound, ErrRevision and ErrTaken are told apart.
type (
	// Schedules keeps schedules and lets them fire by hand.
	Schedules interface {
		Schedule(ctx context.Context, id string) (ScheduleView, error)
		Schedules(ctx context.Context, f ScheduleFilter) (ScheduleSheet, error)
		CreateSchedule(ctx context.Context, s ScheduleView, by string) (ScheduleView, error)
		// ChangeSchedule changes what change does to the schedule as it is, under its lock; it may be called again.
		ChangeSchedule(ctx context.Context, id string, c ScheduleChange, change func(*ScheduleView)) (ScheduleView, error)
		DeleteSchedule(ctx context.Context, id string, revision int64, by string) error
		Fires(ctx context.Context, f FireFilter) (FireSheet, error)
		FireByHand(ctx context.Context, id string, h Hand) ([]FireView, error)
	}

	// Calendars keeps calendars; a *CalendarUsedError says that a schedule names one.
	Calendars interface {
		Calendars(ctx context.Context, namespace string) ([]CalendarView, error)
		SetCalendar(ctx context.Context, c CalendarView, revision int64, by string) error
		DeleteCalendar(ctx context.Context, c CalendarView, revision int64, by string) error
	}

	// Timer says when schedules fire. It refuses by *RuleError.
	Timer interface {
		Every(text string) (time.Duration, error)
		Check(ctx context.Context, s ScheduleView) error
		CheckWindows(raw json.RawMessage) error
		// Preview lists instants after from, or after now where that is zero.
		Preview(ctx context.Context, s ScheduleView, from time.Time, n int) (all []ComingView, words string, err error)
		Collisions(ctx context.Context, all []ScheduleView) ([]CollisionView, error)
	}
)

// ScheduleView is a schedule. Durations of 0 are none.
type ScheduleView struct {
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
	Rights        json.RawMessage // the identity that it fires with

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

// CalendarView is a named set of blackouts. An empty namespace is all of them.
type CalendarView struct {
	Namespace, Name string
	Windows         json.RawMessage
	ForAll          bool
	Note            string
	Revision        int64
	ChangedBy       string
	ChangedAt       time.Time
}

// ScheduleFilter narrows a list.
type ScheduleFilter struct {
	Namespace, Name, Owner string
	Labels                 map[string]string
	Enabled                *bool
	Broken                 bool
	Cursor                 string
	Limit                  int
}

// ScheduleSheet is one page of schedules.
type ScheduleSheet struct {
	Items []ScheduleView
	Next  string
}

// ScheduleChange is who changes a schedule. It must have the revision, where that is not 0.
type ScheduleChange struct {
	Revision int64
	Verb, By string
	Rights   json.RawMessage
}

// FireFilter narrows a ledger.
type FireFilter struct {
	Schedule        int64 // its key
	Outcome, Cursor string
	Limit           int
}

// FireView is an instant and what became of it.
type FireView struct {
	At                            time.Time
	Nominal, Source, Outcome, Why string
	Task                          string
	NotedAt                       time.Time
}

// FireSheet is one page of a ledger.
type FireSheet struct {
	Items []FireView
	Next  string
}

// Hand is what somebody asks of a schedule: to run it now, or to make up for a range.
type Hand struct {
	By          string
	Revision    int64 // that the rights were asked about
	Range       bool
	From, To    time.Time
	Most        int
	NewestFirst bool
	Overlap     string // empty: the schedule's
}

// ComingView is an instant that lies ahead.
type ComingView struct {
	At, Due  time.Time
	Nominal  string
	Fires    bool
	Note     string
	Blackout string
}

// CollisionView is a minute in which several schedules fire.
type CollisionView struct {
	Minute time.Time
	Count  int
	Names  []string
}

// RuleError refuses a rule that does not parse or can never fire.
type RuleError struct{ Fields []kinds.FieldError }

func (e *RuleError) Error() string { return e.Fields[0].Pointer + " " + e.Fields[0].Reason }

// Errors of schedules.
var (
	ErrRevision = errors.New("it is not as If-Match says")
	ErrTaken    = errors.New("the name is taken")
)

// CalendarUsedError says which schedule names a calendar.
type CalendarUsedError struct{ Schedule string }

func (e *CalendarUsedError) Error() string { return "schedule " + e.Schedule + " names the calendar" }

// NotFiredError says why a run by hand made no Task, and which Task is in its way, where one is.
type NotFiredError struct{ Outcome, Why, Task string }

func (e *NotFiredError) Error() string { return e.Outcome + ": " + e.Why }
