package retention

import (
	"fmt"
	"math"
	"time"
	_ "time/tzdata" // runners have no zone data of their own
)

// State is what a copy is worth.
type State string

// The states.
const (
	Good    State = "good"    // complete: it can be restored from
	Unready State = "unready" // still being made
	Failed  State = "failed"  // it never will be complete, as far as is known
	Going   State = "going"   // being deleted already
)

// Copy is one copy of a source.
type Copy struct {
	Name   string // unique among all copies
	Source string // what it is a copy of, by name
	UID    string // which of those that have had the name: each is a source of its own; empty: nobody knows
	Taken  time.Time
	State  State
	// Pinned says that somebody wants it kept, whatever the rules say.
	Pinned bool
	// Foreign says that it was not made under this rule: by hand, by another rule, by somebody else.
	Foreign bool
	// InUse names what uses it; empty: nothing.
	InUse string
}

// Rules say what to keep. A number of 0 is no rule.
type Rules struct {
	Count   int     `json:"count,omitempty"`
	Age     float64 `json:"age,omitempty"` // seconds
	Hourly  int     `json:"hourly,omitempty"`
	Daily   int     `json:"daily,omitempty"`
	Weekly  int     `json:"weekly,omitempty"`
	Monthly int     `json:"monthly,omitempty"`
	// Zone is the IANA zone of the calendar; empty: UTC.
	Zone string `json:"zone,omitempty"`
	// Floor is how many of the newest good copies of each source stay in any case; nil: DefaultFloor.
	Floor *int `json:"floor,omitempty"`
	// MaxShare is the share of the good copies of a source above which a plan is implausible, if it removes at least
	// FewRemoved of them; nil: DefaultMaxShare.
	MaxShare *float64 `json:"max_share,omitempty"`
}

// Defaults and bounds of Rules.
const (
	DefaultFloor    = 1
	DefaultMaxShare = 0.5
	FewRemoved      = 4
	MaxNumber       = 100_000
	MinAge          = 60                       // seconds
	MaxAge          = 100 * 365 * 24 * 60 * 60 // seconds
)

// FieldError says what is wrong with one field of the rules, or of the copies.
type FieldError struct{ Field, Reason string }

// Error names the field.
func (e *FieldError) Error() string { return e.Field + " " + e.Reason }

// Check returns a *FieldError where the rules cannot be followed.
func (r Rules) Check() error {
	_, err := r.zone()
	return err
}

// zone checks the rules and loads their zone.
func (r Rules) zone() (*time.Location, error) {
	some := r.Age > 0
	for _, n := range []struct {
		field string
		is    int
	}{
		{"count", r.Count},
		{"hourly", r.Hourly},
		{"daily", r.Daily},
		{"weekly", r.Weekly},
		{"monthly", r.Monthly},
		{"floor", r.floor()},
	} {
		if n.is < 0 || n.is > MaxNumber {
			return nil, &FieldError{n.field, fmt.Sprintf("must be between 0 and %d", MaxNumber)}
		}
		some = some || n.is > 0 && n.field != "floor" // which is no wish to keep, but a guard
	}
	if r.Age != 0 && !(r.Age >= MinAge && r.Age <= MaxAge) { // refuses NaN too
		return nil, &FieldError{"age", fmt.Sprintf("must be between %d and %d seconds, or 0 for no such rule", MinAge, MaxAge)}
	}
	if share := r.maxShare(); !(share >= 0 && share <= 1) {
		return nil, &FieldError{"max_share", "must be between 0 and 1"}
	}
	if !some {
		return nil, &FieldError{"count", "is missing, as is any other rule: nothing would be kept"}
	}
	return loadZone(r.Zone)
}

func loadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" { // which is whatever the machine says
		return nil, &FieldError{"zone", "is no zone of the IANA database, as Europe/Berlin"}
	}
	return zone, nil
}

func (r Rules) floor() int {
	if r.Floor == nil {
		return DefaultFloor
	}
	return *r.Floor
}

func (r Rules) maxShare() float64 {
	if r.MaxShare == nil {
		return DefaultMaxShare
	}
	return *r.MaxShare
}

// age is the rule as a duration.
func (r Rules) age() time.Duration {
	return time.Duration(math.Round(r.Age * float64(time.Second)))
}
