package schedule

import (
	"fmt"
	"time"
)

// MissedPolicy is what becomes of instants that came too late.
type MissedPolicy string

// The missed policies. The empty one is MissedLatest.
const (
	MissedSkip   MissedPolicy = "skip"   // none of them runs
	MissedLatest MissedPolicy = "latest" // the newest runs, once
	MissedAll    MissedPolicy = "all"    // the newest UpTo run
	MissedWithin MissedPolicy = "within" // those that are not older than Within run
)

// OverlapPolicy is what happens to a run that is due while earlier ones have not ended.
type OverlapPolicy string

// The overlap policies. The empty one is OverlapForbid.
const (
	OverlapForbid  OverlapPolicy = "forbid"  // it does not run
	OverlapAllow   OverlapPolicy = "allow"   // it runs beside them
	OverlapReplace OverlapPolicy = "replace" // they are canceled, it runs after them
	OverlapQueue   OverlapPolicy = "queue"   // it runs after them
)

// Bounds of what one look may do.
const (
	// MaxLines is how many ledger lines a look writes at most, one for what is only counted aside. No catch-up is longer.
	MaxLines = 1000
	// MaxLive is how many Tasks of one schedule may be under way or wait, whatever the overlap policy.
	MaxLive = 1000
	// SkipWindow is the window under MissedSkip where none is given: a replica that restarts misses nothing.
	SkipWindow = time.Minute
	// MaxWindow bounds Window and Within.
	MaxWindow = 366 * 24 * time.Hour
)

// Policy is what a schedule does about late, missed and overlapping runs.
type Policy struct {
	Missed MissedPolicy
	UpTo   int           // with MissedAll: 1 to MaxLines
	Within time.Duration // with MissedWithin
	// Overlap counts every run of the schedule: by rule, by hand, replayed.
	Overlap OverlapPolicy
	// Window is the start window: no run starts later than this after it was due. 0 is no limit, and SkipWindow under
	// MissedSkip.
	Window time.Duration
	// Spread moves each run by a stable part of it; see Delay. 0 is none.
	Spread time.Duration
}

// Check refuses what is no policy. Its error is an [InvalidError] that names /missed, /up_to, /within, /overlap, /window
// or /spread.
func (p Policy) Check() error {
	var w wrong
	switch p.Missed {
	case "", MissedSkip, MissedLatest, MissedAll, MissedWithin:
	default:
		w.add("/missed", "%q is not known; use skip, latest, all or within", brief(string(p.Missed)))
	}
	switch p.Overlap {
	case "", OverlapForbid, OverlapAllow, OverlapReplace, OverlapQueue:
	default:
		w.add("/overlap", "%q is not known; use forbid, allow, replace or queue", brief(string(p.Overlap)))
	}
	switch {
	case p.Missed == MissedAll && (p.UpTo < 1 || p.UpTo > MaxLines):
		w.add("/up_to", "is not between 1 and %d; give how many missed runs are made up at most", MaxLines)
	case p.Missed != MissedAll && p.UpTo != 0:
		w.add("/up_to", "goes only with the missed policy all")
	}
	switch {
	case p.Missed == MissedWithin && (p.Within < time.Second || p.Within > MaxWindow):
		w.add("/within", "is not between 1 second and 366 days; give how old a missed run may be")
	case p.Missed != MissedWithin && p.Within != 0:
		w.add("/within", "goes only with the missed policy within")
	}
	if p.Window < 0 || p.Window > MaxWindow || p.Window > 0 && p.Window < time.Second {
		w.add("/window", "is not between 1 second and 366 days; 0 is no limit")
	}
	if p.Spread < 0 || p.Spread > MaxSpread {
		w.add("/spread", "is not between 0 and 24 hours")
	}
	return w.err()
}

// window is the longest that a run may be late; false where there is no limit.
func (p Policy) window() (time.Duration, bool) {
	if p.Window == 0 && p.Missed == MissedSkip {
		return SkipWindow, true
	}
	return p.Window, p.Window > 0
}

// Admission is what the overlap policy says of one more run.
type Admission struct {
	Run     bool
	Replace bool   // the Tasks that have not ended are to be canceled first
	Why     string // where it may not run
}

// Admit says whether one more run may begin while so many Tasks of the schedule have not ended: by rule, by hand or replayed.
func (p Policy) Admit(live int) Admission {
	switch {
	case p.Overlap == OverlapReplace:
		return Admission{Run: true, Replace: live > 0}
	case live <= 0, live < MaxLive && (p.Overlap == OverlapAllow || p.Overlap == OverlapQueue):
		return Admission{Run: true}
	case live == 1:
		return Admission{Why: "the run before has not ended"}
	}
	return Admission{Why: fmt.Sprintf("%d runs before have not ended", live)}
}
