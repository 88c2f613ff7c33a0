package firing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// book is one schedule that is due at an instant.
type book struct {
	mu     sync.Mutex
	at     time.Time
	fired  time.Time
	passes int
	limits []int
	fail   error
	over   []string
	gone   []string
}

func (b *book) Due(context.Context, int) ([]Schedule, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fired.IsZero() && !time.Now().Before(b.at) {
		return []Schedule{{ID: "s", Revision: 1}}, nil
	}
	return nil, nil
}

func (b *book) Fire(_ context.Context, limit int, v Verdicts) (Pass, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.passes++
	b.limits = append(b.limits, limit)
	if b.fail != nil {
		return Pass{}, b.fail
	}
	if _, asked := v[Version{"s", 1}]; asked {
		b.fired = time.Now()
	}
	if left := time.Until(b.at); left > 0 {
		return Pass{NextIn: left}, nil
	}
	return Pass{}, nil
}

func (b *book) Overtaken(context.Context, int) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	over := b.over
	b.over = nil
	return over, nil
}

func (b *book) Replace(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = append(b.gone, id)
	return nil
}

// rights answers once it is well.
type rights struct {
	mu  sync.Mutex
	err error
}

func (r *rights) Ask(context.Context, Schedule) (Verdict, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Verdict{}, r.err
}

func (r *rights) recover() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = nil
}

func running(t *testing.T, b *book, r *rights, wakes <-chan struct{}) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	runner := New(Config{Book: b, Rights: r, Wakes: wakes, Log: slog.New(slog.DiscardHandler)})
	go func() { done <- runner.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestItFiresAtTheInstantAndNotAtThePollAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{at: time.Now().Add(10*time.Second + 345*time.Millisecond), over: []string{"t-1"}}
		running(t, b, &rights{}, nil)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if late := b.fired.Sub(b.at); b.fired.IsZero() || late > 2*time.Millisecond {
			t.Errorf("fired %v late", late)
		}
		if len(b.gone) != 1 {
			t.Errorf("replaced %v", b.gone)
		}
	})
}

func TestAWakeLooksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{at: time.Now().Add(time.Hour)}
		wakes := make(chan struct{})
		running(t, b, &rights{}, wakes)
		synctest.Wait()
		b.mu.Lock()
		b.at = time.Now()
		b.mu.Unlock()
		wakes <- struct{}{}
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.fired.IsZero() {
			t.Error("it did not fire")
		}
	})
}

func TestAboutWhomNobodyAnswersStaysDueUntilSomebodyDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := &book{at: time.Now()}, &rights{err: task.ErrUnavailable}
		running(t, b, r, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.mu.Lock()
		if !b.fired.IsZero() {
			t.Error("it fired without an answer")
		}
		b.mu.Unlock()
		r.recover()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.fired.IsZero() {
			t.Error("it never fired")
		}
	})
}

func TestTroubleMakesPassesSmallerAndSuccessLargerAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{at: time.Now().Add(time.Hour), fail: errors.New("statement timeout")}
		running(t, b, &rights{}, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		b.mu.Lock()
		if last := b.limits[len(b.limits)-1]; last != 1 {
			t.Errorf("after ten failures it takes %d", last)
		}
		b.fail = nil
		b.mu.Unlock()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if last := b.limits[len(b.limits)-1]; last != limit {
			t.Errorf("after twenty successes it takes %d", last)
		}
	})
}

func TestCollisionsLeaveOutWhatIsOffOrBroken(t *testing.T) {
	at := time.Date(2026, 6, 1, 0, 0, 30, 0, time.UTC)
	s := func(name, cron string, on bool) Schedule {
		return Schedule{Namespace: "n", Name: name, Cron: cron, Zone: "UTC", Enabled: on, EnabledAt: at, ConsideredAt: at}
	}
	all := []Schedule{s("a", "0 3 * * *", true), s("b", "0 3 * * *", true), s("off", "0 3 * * *", false), s("bad", "TZ=0", true), s("c", "* 3 * * *", true)}
	got := Collisions(all, at, at.Add(24*time.Hour), 10)
	if len(got) != 1 || got[0].Count != 3 || got[0].Minute.Hour() != 3 || got[0].Names[0] != "n/a" {
		t.Errorf("%+v", got)
	}
}

func TestARunByHandCountsWhatIsLiveAndFallsOnNoInstantOfARule(t *testing.T) {
	now := time.Date(2026, 6, 1, 3, 0, 0, 0, time.UTC)
	s := Schedule{Cron: "0 3 * * *", Zone: "UTC", Overlap: "forbid", Live: []string{"t-1"}}
	if d := ByHand(s, Around{}, now, Hand{}); len(d.Fires) != 1 || d.Fires[0].Outcome != "forbidden" || d.Fires[0].Submit {
		t.Errorf("beside a live one: %+v", d)
	}
	s.Live = nil
	if d := ByHand(s, Around{}, now, Hand{}); !d.Fires[0].Submit || d.Fires[0].At.Equal(now) || d.Fires[0].At.Sub(now) > time.Millisecond {
		t.Errorf("%+v", d)
	}
	s.Cron = "TZ=0"
	if d := ByHand(s, Around{}, now, Hand{}); d.Broken != "" || !d.Fires[0].Submit {
		t.Errorf("a broken one by hand: %+v", d)
	}
	if d := ByHand(s, Around{}, now, Hand{Range: true, From: now.Add(-time.Hour), To: now, Most: 5}); d.Broken == "" {
		t.Errorf("a broken one replayed: %+v", d)
	}
}
