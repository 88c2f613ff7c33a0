package task

import (
	"hash/fnv"
	"math"
)

// Retry is when and how often a Task is tried again.
type Retry struct {
	Attempts int     `json:"attempts"` // in all, the first included; 1 means never again
	Backoff  Seconds `json:"backoff"`  // before the second; doubles each time
	Cap      Seconds `json:"cap"`      // never more than this, jitter aside
	Lost     int     `json:"lost"`     // tries that infrastructure trouble may cost
}

// Bounds of a Retry.
const (
	MaxAttempts = 1000
	MaxBackoff  = Seconds(24 * 60 * 60)

	jitter       = 0.2 // of the delay, to either side
	lostBackoff  = Seconds(5)
	lostCap      = Seconds(2 * 60)
	quotaBackoff = Seconds(2)
	quotaCap     = Seconds(15)
	floor        = Seconds(0.1) // no wait is shorter
)

// LostAlarm is how many Attempts in a row that infrastructure trouble ended are worth an alarm.
const LostAlarm = 3

// DefaultRetry is 4 attempts, 2 s doubling up to 5 min, and 20 lost ones.
func DefaultRetry() Retry {
	return Retry{Attempts: 4, Backoff: 2, Cap: 5 * 60, Lost: 20}
}

// Delay gives the wait after the nth failed try of the Task id, n from 1. The jitter is the Task's own, so the delays
// of one Task never fall; they never pass the cap by more than the jitter of a fifth and are never zero.
func (r Retry) Delay(id string, n int) Seconds {
	return delay(r.Backoff, r.Cap, id, n)
}

// LostDelay is Delay for tries that infrastructure trouble ended: 5 s doubling up to 2 min.
func (r Retry) LostDelay(id string, n int) Seconds {
	return delay(lostBackoff, lostCap, id, n)
}

func delay(base, limit Seconds, id string, n int) Seconds {
	base = within(base, floor)
	limit = within(limit, base)
	// Far fewer doublings than these reach every limit. Beyond its range Ldexp gives +Inf, which min cuts; only the sum of
	// exponents inside it may not overflow.
	const most = 1 << 10
	grown := min(Seconds(math.Ldexp(float64(base), min(max(n, 1), most)-1)), limit)
	return grown * Seconds(1+jitter*(2*spread(id)-1))
}

// within brings s between least and MaxBackoff; what is no number becomes least.
func within(s, least Seconds) Seconds {
	if !(s > least) { // false for NaN too
		return least
	}
	return min(s, MaxBackoff)
}

// spread maps id to a stable place in [0, 1).
func spread(id string) float64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // a hash never refuses a write
	return float64(h.Sum32()) / (1 << 32)
}

// Move is what an ended Attempt makes of its Task.
type Move struct {
	State  State
	Reason Reason
	Delay  Seconds // back-off, where State is Queued
	Spends Budget
}

// After says what a Task becomes when an Attempt of it ended with v. A Task that is not idempotent is never repeated
// by itself once its handler may have started. Waiting spends nothing.
func After(t Task, v Verdict) Move {
	end := Move{State: Failed, Reason: v.Reason, Spends: v.Spends}
	switch {
	case v.Outcome == OutcomeSucceeded:
		end.State = Succeeded
		return end
	case v.Outcome == OutcomeCanceled:
		end.State = Canceled
		return end
	case !t.CancelAt.IsZero():
		end.State, end.Reason = Canceled, ReasonCanceled
		return end
	case v.Outcome == OutcomeRejected:
		return end
	case v.Started && !t.Spec.Idempotent:
		if v.Outcome == OutcomeLost {
			end.Reason = ReasonInterrupted
		}
		return end
	}
	return again(t, v)
}

func again(t Task, v Verdict) Move {
	move := Move{State: Queued, Reason: v.Reason, Spends: v.Spends}
	switch v.Spends {
	case SpendsNothing:
		move.Delay = delay(quotaBackoff, quotaCap, t.ID, t.Attempts)
	case SpendsLost:
		spent := t.SpentLost + 1
		if spent > t.Spec.Retry.Lost {
			move.State = Failed
			return move
		}
		move.Delay = t.Spec.Retry.LostDelay(t.ID, spent)
	case SpendsRetry:
		spent := t.SpentRetry + 1
		if spent >= t.Spec.Retry.Attempts {
			move.State = Failed
			return move
		}
		move.Delay = t.Spec.Retry.Delay(t.ID, spent)
		if v.RetryAfter > 0 {
			move.Delay = within(v.RetryAfter, floor)
		}
	}
	return move
}
