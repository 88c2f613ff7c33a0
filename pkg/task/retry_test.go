package task

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestDelaysNeverFallNeverPassTheCapAndAreNeverZero(t *testing.T) {
	for _, r := range []Retry{
		DefaultRetry(),
		{Attempts: 1000, Backoff: 1, Cap: 60},
		{Attempts: 1000, Backoff: 0, Cap: 0},
		{Attempts: 1000, Backoff: 10, Cap: 1}, // cap below base: the base counts
		{Attempts: 1000, Backoff: 1e-9, Cap: MaxBackoff},
		{Attempts: 1000, Backoff: MaxBackoff, Cap: MaxBackoff},
		{Attempts: 1000, Backoff: -5, Cap: -7},
	} {
		for task := range 50 {
			id := fmt.Sprint("task-", task)
			limit := max(r.Cap, r.Backoff, floor) * (1 + jitter)
			last := Seconds(0)
			for n := 0; n <= 2000; n++ {
				d := r.Delay(id, n)
				if d < last || d <= 0 || d > limit || math.IsNaN(float64(d)) {
					t.Fatalf("%+v: delay %d of %s is %v after %v, limit %v", r, n, id, d, last, limit)
				}
				last = d
			}
			if l := r.LostDelay(id, 1_000_000); l <= 0 || l > lostCap*(1+jitter) {
				t.Fatalf("lost delay %v", l)
			}
		}
	}
}

// Whatever a policy says, and however often a Task was tried: the database's clock can always be moved by the delay.
func TestAnyPolicyGivesDelaysThatNeverFallAndStayInBounds(t *testing.T) {
	odd := []float64{0, -1, 1e-300, 0.1, 1, 60, 86400, 1e300, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64}
	number := func(rnd *rand.Rand) Seconds {
		if rnd.IntN(3) == 0 {
			return Seconds(odd[rnd.IntN(len(odd))])
		}
		return Seconds(math.Exp(40*rnd.Float64() - 20))
	}
	rnd := rand.New(rand.NewPCG(13, 31))
	for range 3000 {
		r, id := Retry{Attempts: rnd.IntN(MaxAttempts), Backoff: number(rnd), Cap: number(rnd)}, fmt.Sprint(rnd.Uint64())
		limit := min(max(within(r.Cap, floor), within(r.Backoff, floor)), MaxBackoff) * (1 + jitter)
		last := Seconds(0)
		for n := 1; n < MaxAttempts; n += 1 + rnd.IntN(7) {
			d := r.Delay(id, n)
			if !(d >= last && d >= floor*(1-jitter) && d <= limit) || d.Duration() <= 0 {
				t.Fatalf("%+v: delay %d of %s is %v after %v, limit %v", r, n, id, d, last, limit)
			}
			last = d
		}
		for _, n := range []int{math.MinInt, -1, 0, 62, 63, 64, 1024, math.MaxInt} {
			if d := r.Delay(id, n); !(d >= floor*(1-jitter) && d <= limit) {
				t.Fatalf("%+v: delay %d is %v", r, n, d)
			}
		}
	}
}

func TestSecondsThatAreOutOfRangeBecomeTheNearestDuration(t *testing.T) {
	for s, want := range map[Seconds]time.Duration{
		1.5: 1500 * time.Millisecond, 1e10: math.MaxInt64, Seconds(math.Inf(1)): math.MaxInt64, -1e10: math.MinInt64,
		Seconds(math.Inf(-1)): math.MinInt64, 0: 0,
	} {
		if got := s.Duration(); got != want {
			t.Errorf("%v: got %v, want %v", float64(s), got, want)
		}
	}
	if got := Seconds(math.NaN()).Duration(); got != 0 {
		t.Errorf("no number: %v", got)
	}
}

func TestTheFirstDelaysAreThoseOfThePlan(t *testing.T) {
	r := DefaultRetry()
	for n, want := range []Seconds{1: 2, 2: 4, 3: 8, 4: 16} {
		if n == 0 {
			continue
		}
		if d := r.Delay("x", n); d < want*0.8 || d > want*1.2 {
			t.Errorf("delay %d: got %v, want %v ± 20 %%", n, d, want)
		}
	}
	if d := r.LostDelay("x", 1); d < 4 || d > 6 {
		t.Errorf("first lost delay: got %v", d)
	}
}

func TestJitterSpreadsTasks(t *testing.T) {
	low, high := 0, 0
	for task := range 1000 {
		switch d := DefaultRetry().Delay(fmt.Sprint("task-", task), 1); {
		case d < 1.8:
			low++
		case d > 2.2:
			high++
		}
	}
	if low < 150 || high < 150 {
		t.Errorf("of 1000 tasks %d are early and %d late", low, high)
	}
}

func TestAfter(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Task)
		v      Verdict
		state  State
		reason Reason
	}{
		{"success ends", nil, Verdict{Outcome: OutcomeSucceeded, Spends: SpendsRetry}, Succeeded, ""},
		{"success ends, though a cancel came too late", canceled, Verdict{Outcome: OutcomeSucceeded}, Succeeded, ""},
		{"failure is tried again", nil, Verdict{Outcome: OutcomeFailed, Reason: ReasonExitCode, Spends: SpendsRetry}, Queued, ReasonExitCode},
		{"failure ends a canceled task", canceled, Verdict{Outcome: OutcomeFailed, Spends: SpendsRetry}, Canceled, ReasonCanceled},
		{"loss ends a canceled task", canceled, Verdict{Outcome: OutcomeLost, Spends: SpendsLost}, Canceled, ReasonCanceled},
		{"cancel ends", nil, Verdict{Outcome: OutcomeCanceled, Reason: ReasonCanceled}, Canceled, ReasonCanceled},
		{"superseded ends as canceled", canceled, Verdict{Outcome: OutcomeCanceled, Reason: ReasonSuperseded}, Canceled, ReasonSuperseded},
		{"rejection ends at once", nil, Verdict{Outcome: OutcomeRejected, Reason: ReasonConfig, Spends: SpendsRetry}, Failed, ReasonConfig},
		{"the last attempt ends", func(t *Task) { t.SpentRetry = 3 }, Verdict{Outcome: OutcomeFailed, Reason: ReasonExitCode, Spends: SpendsRetry}, Failed, ReasonExitCode},
		{"the one before does not", func(t *Task) { t.SpentRetry = 2 }, Verdict{Outcome: OutcomeFailed, Spends: SpendsRetry}, Queued, ""},
		{"a loss does not care for the user's budget", func(t *Task) { t.SpentRetry = 3 }, Verdict{Outcome: OutcomeLost, Spends: SpendsLost}, Queued, ""},
		{"the twentieth loss is tried again", func(t *Task) { t.SpentLost = 19 }, Verdict{Outcome: OutcomeLost, Spends: SpendsLost}, Queued, ""},
		{"the one after is not", func(t *Task) { t.SpentLost = 20 }, Verdict{Outcome: OutcomeLost, Reason: ReasonEvicted, Spends: SpendsLost}, Failed, ReasonEvicted},
		{"quota is waited for, for ever", func(t *Task) { t.SpentLost, t.SpentRetry, t.Attempts = 99, 99, 10000 }, Verdict{Outcome: OutcomeLost, Reason: ReasonQuota}, Queued, ReasonQuota},
		{"a started one that may not be repeated is not, after a loss", unrepeatable, Verdict{Outcome: OutcomeLost, Reason: ReasonEvicted, Spends: SpendsLost, Started: true}, Failed, ReasonInterrupted},
		{"nor after a failure", unrepeatable, Verdict{Outcome: OutcomeFailed, Reason: ReasonExitCode, Spends: SpendsRetry, Started: true}, Failed, ReasonExitCode},
		{"nor after its deadline", unrepeatable, Verdict{Outcome: OutcomeTimedOut, Reason: ReasonRunDeadline, Spends: SpendsRetry, Started: true}, Failed, ReasonRunDeadline},
		{"before its start it is", unrepeatable, Verdict{Outcome: OutcomeLost, Spends: SpendsLost}, Queued, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			task := someTask()
			if c.change != nil {
				c.change(&task)
			}
			m := After(task, c.v)
			if m.State != c.state || m.Reason != c.reason {
				t.Fatalf("got %s/%s, want %s/%s", m.State, m.Reason, c.state, c.reason)
			}
			if !Running.May(m.State) {
				t.Errorf("a running task may not become %s", m.State)
			}
			if (m.State == Queued) != (m.Delay > 0) {
				t.Errorf("state %s with delay %v", m.State, m.Delay)
			}
		})
	}
}

func canceled(t *Task)     { t.CancelAt = t0 }
func unrepeatable(t *Task) { t.Spec.Idempotent = false }

func TestAHandlersOwnWishForTheNextTryIsBounded(t *testing.T) {
	for wish, want := range map[Seconds]Seconds{1e-12: floor, 30: 30, 1e9: MaxBackoff} {
		m := After(someTask(), Verdict{Outcome: OutcomeFailed, Spends: SpendsRetry, RetryAfter: wish})
		if m.Delay != want {
			t.Errorf("wish %v: got %v, want %v", wish, m.Delay, want)
		}
	}
}

func TestWaitingForQuotaSlowsDownAndStaysQuick(t *testing.T) {
	task, last := someTask(), Seconds(0)
	for task.Attempts = 1; task.Attempts < 100; task.Attempts++ {
		d := After(task, Verdict{Outcome: OutcomeLost, Reason: ReasonQuota}).Delay
		if d < last || d > quotaCap*(1+jitter) {
			t.Fatalf("attempt %d waits %v after %v", task.Attempts, d, last)
		}
		last = d
	}
}
