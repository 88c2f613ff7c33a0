package dispatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// with makes a world that begins with some queued Tasks.
func with(n int, change func(*world)) func() *world {
	return func() *world {
		w := newWorld()
		w.queued["q"] = nil
		w.add("q", "shop", n)
		if change != nil {
			change(w)
		}
		return w
	}
}

func refuse(cause task.RefusalCause) func(task.Attempt) error {
	return func(task.Attempt) error { return &task.Refusal{Cause: cause, Message: "no: " + string(cause)} }
}

func TestEveryClaimIsLaunchedOnceAndRecorded(t *testing.T) {
	dispatching(t, with(100, nil), func(t *testing.T, w *world) {
		if n := get(w, func() int { return len(w.recorded) }); n != 100 {
			t.Fatalf("%d of 100 are recorded without any time passing", n)
		}
		for id, n := range w.launches {
			if n != 1 || w.recorded[id] == "" || w.followed[id] != 1 {
				t.Errorf("attempt %d: launched %d times, recorded %q, followed %d times", id, n, w.recorded[id], w.followed[id])
			}
		}
		if w.dryRuns != 1 {
			t.Errorf("%d dry runs of one template", w.dryRuns)
		}
	})
}

func TestAWakeClaimsAtOnceAndPollingFindsTheRest(t *testing.T) {
	dispatching(t, with(0, nil), func(t *testing.T, w *world) {
		time.Sleep(100 * time.Millisecond)
		w.add("q", "shop", 1)
		w.wakes <- "q"
		if n := get(w, func() int { return len(w.recorded) }); n != 1 {
			t.Fatal("a wake did not launch")
		}
		w.add("q", "shop", 1)
		time.Sleep(time.Second)
		if n := get(w, func() int { return len(w.recorded) }); n != 2 {
			t.Fatal("polling found nothing within a second")
		}
		w.wakes <- "a queue that does not exist"
		before := get(w, func() int { return w.claims })
		time.Sleep(10 * time.Second)
		if n := get(w, func() int { return w.claims }) - before; n > 11 {
			t.Errorf("%d claims in ten seconds: a queue that does not exist is polled", n)
		}
	})
}

func TestLaunchesAtTheSameTimeAreBounded(t *testing.T) {
	slow := func(w *world) { w.takes = time.Second }
	dispatching(t, with(100, slow), func(t *testing.T, w *world) {
		time.Sleep(30 * time.Second)
		if n := get(w, func() int { return len(w.recorded) }); n != 100 {
			t.Errorf("%d of 100 are recorded", n)
		}
		if w.mostOnce != 8 {
			t.Errorf("%d launches at the same time, want 8", w.mostOnce)
		}
	})
}

func TestARefusalForGoodEndsTheAttempt(t *testing.T) {
	for cause, reason := range map[task.RefusalCause]task.Reason{
		task.RefusedInvalid: task.ReasonInvalid, task.RefusedNamespace: task.ReasonNamespace,
	} {
		dispatching(t, with(1, func(w *world) { w.launchErr = refuse(cause) }), func(t *testing.T, w *world) {
			v := get(w, func() task.Verdict { return w.finished[1] })
			if v.Outcome != task.OutcomeRejected || v.Reason != reason {
				t.Errorf("%s: got %+v", cause, v)
			}
			if len(w.waits) != 0 || w.launches[1] != 1 {
				t.Errorf("%s: it was tried again", cause)
			}
		})
	}
}

func TestADryRunThatIsRefusedLaunchesNothing(t *testing.T) {
	dispatching(t, with(1, func(w *world) { w.dryErr = refuse(task.RefusedQuota) }), func(t *testing.T, w *world) {
		waits := get(w, func() []wait { return w.waits[1] })
		if len(waits) != 1 || waits[0].why != task.WaitQuota || waits[0].again < time.Second || w.launches[1] != 0 {
			t.Errorf("waits %+v, launches %d", waits, w.launches[1])
		}
	})
}

func TestATemplateIsAskedAboutOnceAMinute(t *testing.T) {
	dispatching(t, with(5, nil), func(t *testing.T, w *world) {
		for range 3 {
			time.Sleep(50 * time.Second)
			w.add("q", "shop", 5)
		}
		time.Sleep(2 * time.Second)
		if n := get(w, func() int { return w.dryRuns }); n != 2 { // at 0 and at 100 s
			t.Errorf("%d dry runs in 150 s, want 2", n)
		}
		w.add("q", "other", 1)
		time.Sleep(2 * time.Second)
		if n := get(w, func() int { return w.dryRuns }); n != 3 {
			t.Errorf("another namespace was not asked about: %d", n)
		}
	})
}

func TestANameThatIsTakenEndsTheNumberAndSpendsNothing(t *testing.T) {
	taken := func(task.Attempt) error { return errors.Join(errors.New("adopt"), task.ErrTaken) }
	dispatching(t, with(1, func(w *world) { w.launchErr = taken }), func(t *testing.T, w *world) {
		v := get(w, func() task.Verdict { return w.finished[1] })
		if v.Outcome != task.OutcomeLost || v.Reason != task.ReasonNameTaken || v.Spends != task.SpendsNothing {
			t.Errorf("got %+v", v)
		}
	})
}

func TestAFullCountQuotaLetsGoOfClosedJobsFirst(t *testing.T) {
	change := func(w *world) {
		w.closed["shop"], w.closed["elsewhere"] = 7, 1
		w.launchErr = func(task.Attempt) error {
			if w.closed["shop"] == 7 {
				return &task.Refusal{Cause: task.RefusedQuota, JobCount: true, Message: "exceeded"}
			}
			return nil
		}
	}
	dispatching(t, with(1, change), func(t *testing.T, w *world) {
		if n := get(w, func() int { return len(w.recorded) }); n != 1 {
			t.Fatalf("not launched: %+v", w.waits)
		}
		if w.closed["shop"] != 7-closedAtOnce || w.closed["elsewhere"] != 1 {
			t.Errorf("left standing: %v", w.closed)
		}
	})
}

func TestBackOffGrowsAndHonoursTheServersWish(t *testing.T) {
	wish := time.Duration(0)
	change := func(w *world) {
		w.launchErr = func(task.Attempt) error {
			return &task.Refusal{Cause: task.RefusedUnknown, Message: "no", RetryAfter: wish}
		}
	}
	dispatching(t, with(1, change), func(t *testing.T, w *world) {
		w.set(func() { w.overdue = []Claim{claimOf(1, "shop")} })
		time.Sleep(2 * time.Minute)
		waits := get(w, func() []wait { return w.waits[1] })
		last := time.Duration(0)
		for i, wt := range waits {
			if wt.again <= 0 || wt.again > longestPause {
				t.Fatalf("wait %d: %v", i, wt.again)
			}
			last = max(last, wt.again)
		}
		if last != longestPause {
			t.Errorf("it never grew to %v: %+v", longestPause, waits)
		}
		if n := get(w, func() int { return w.launches[1] }); n > 15 {
			t.Errorf("%d launches in two minutes: the namespace was not paused", n)
		}
		w.set(func() { wish = 3 * time.Minute })
		time.Sleep(2 * time.Minute)
		waits = get(w, func() []wait { return w.waits[1] })
		found := false
		for _, wt := range waits {
			found = found || wt.again >= 2*time.Minute
		}
		if !found {
			t.Error("the server's wish was not honoured")
		}
	})
}

func TestOneNamespacesTroubleIsNotAnothers(t *testing.T) {
	change := func(w *world) {
		w.launchErr = func(a task.Attempt) error {
			if a.Namespace == "full" {
				return &task.Refusal{Cause: task.RefusedQuota, Message: "full"}
			}
			return nil
		}
		w.add("q", "full", 50)
		w.add("q", "shop", 50)
	}
	dispatching(t, with(0, change), func(t *testing.T, w *world) {
		time.Sleep(time.Second)
		if n := get(w, func() int { return len(w.recorded) }); n != 50 {
			t.Errorf("%d of 50 of the other namespace are launched", n)
		}
		tried := 0
		for _, n := range w.launches {
			tried += n
		}
		if refusals := tried - 50; refusals < enough || refusals > enough+9 {
			t.Errorf("the full namespace was tried %d times at once", refusals)
		}
		for id := range w.waits {
			if w.waits[id][0].why != task.WaitQuota {
				t.Errorf("attempt %d waits for %q", id, w.waits[id][0].why)
			}
		}
	})
}

func TestAClusterThatDoesNotAnswerPausesEverythingUntilAProbePasses(t *testing.T) {
	change := func(w *world) { w.launchErr = refuse(task.RefusedUnavailable); w.add("q", "shop", 500) }
	dispatching(t, with(0, change), func(t *testing.T, w *world) {
		time.Sleep(time.Minute)
		claimed := get(w, func() int { return len(w.launches) })
		if claimed > 40 {
			t.Errorf("%d attempts were claimed while nothing could be launched", claimed)
		}
		if v := len(w.finished); v != 0 {
			t.Errorf("%d attempts ended by an outage", v)
		}
		w.set(func() { w.launchErr = nil })
		time.Sleep(longestPause + 2*time.Second)
		left := get(w, func() int { return len(w.queued["q"]) })
		if left != 0 {
			t.Errorf("%d are still queued after the cluster came back", left)
		}
		if begun, ended := w.logged("launches are paused"), w.logged("launches go on"); begun != 1 || ended != 1 {
			t.Errorf("the pause was told %d times and its end %d times", begun, ended)
		}
	})
}

func TestABlipThatManyLaunchesMeetAtOncePausesThemNoLongerThanOne(t *testing.T) {
	change := func(w *world) { w.launchErr, w.takes = refuse(task.RefusedUnavailable), 100*time.Millisecond }
	dispatching(t, with(8, change), func(t *testing.T, w *world) {
		time.Sleep(150 * time.Millisecond)
		w.set(func() { w.launchErr = nil })
		w.add("q", "shop", 20)
		time.Sleep(5 * time.Second)
		if n := get(w, func() int { return len(w.queued["q"]) }); n != 0 {
			t.Errorf("%d are still queued 5 s after the cluster came back", n)
		}
	})
}

func TestWhatCannotBeRecordedIsTriedAndThenLeftToTheNextLaunch(t *testing.T) {
	failures := 2
	change := func(w *world) {
		w.recordErr = func() error {
			if failures > 0 {
				failures--
				return task.ErrUnavailable
			}
			return nil
		}
	}
	dispatching(t, with(1, change), func(t *testing.T, w *world) {
		if n := get(w, func() int { return len(w.recorded) }); n != 1 {
			t.Error("not recorded at the third try")
		}
	})
}

func TestAJobOfAnAttemptThatHasEndedIsHandedToReconcile(t *testing.T) {
	change := func(w *world) { w.recordErr = func() error { return task.ErrStale } }
	dispatching(t, with(1, change), func(t *testing.T, w *world) {
		if n := get(w, func() int { return w.followed[1] }); n != 2 {
			t.Errorf("followed %d times, want again after the stale record", n)
		}
	})
}

func TestOverdueClaimsAreLaunchedByAnyReplica(t *testing.T) {
	ours, theirs := claimOf(1, "shop"), claimOf(2, "shop")
	theirs.Attempt.Replica = "them"
	change := func(w *world) { w.overdue = []Claim{ours, theirs} }
	dispatching(t, with(0, change), func(t *testing.T, w *world) {
		if n := get(w, func() int { return w.launches[1] }); n == 0 {
			t.Error("our own was not launched again")
		}
		if n := get(w, func() int { return w.launches[2] }); n != 0 {
			t.Error("another replica's was launched without giving it time")
		}
		time.Sleep(5 * time.Second)
		if n := get(w, func() int { return w.launches[2] }); n == 0 {
			t.Error("another replica's was left alone for ever")
		}
	})
}

func TestAJobThatWasDeletedBeforeItsRecordIsNotCreatedTwice(t *testing.T) {
	change := func(w *world) { w.left, w.overdue = "job-of-the-first-launch", []Claim{claimOf(1, "shop")} }
	dispatching(t, with(0, change), func(t *testing.T, w *world) {
		if n := get(w, func() int { return w.launches[1] }); n != 0 {
			t.Errorf("created %d times more, although a pod of the first Job is there", n)
		}
		if name := get(w, func() string { return w.recorded[1] }); name != "job-of-the-first-launch" {
			t.Errorf("recorded as %q", name)
		}
	})
}

func TestALaunchUnderWayIsNotOverdue(t *testing.T) {
	change := func(w *world) { w.takes, w.overdue = 10*time.Second, []Claim{claimOf(1, "shop")} }
	dispatching(t, with(1, change), func(t *testing.T, w *world) {
		time.Sleep(9 * time.Second)
		if n := get(w, func() int { return w.launches[1] }); n != 1 {
			t.Errorf("launched %d times at the same time", n)
		}
	})
}

func TestTheEndWaitsForTheRecordOfTheLastLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := with(1, nil)()
		released := make(chan struct{})
		w.launchErr = func(task.Attempt) error { return nil }
		d := New(Config{Queues: w, Records: slowRecords{w, released}, Cluster: w, Shelf: w, Replica: "us", Wakes: w.wakes})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("ended before the launch was recorded")
		default:
		}
		close(released)
		if err := <-done; err != nil || w.recorded[1] == "" {
			t.Errorf("got %v, recorded %q", err, w.recorded[1])
		}
	})
}

// slowRecords records when it is let.
type slowRecords struct {
	*world
	released chan struct{}
}

func (r slowRecords) MarkLaunched(ctx context.Context, attempt, fence int64, name, uid string) error {
	select {
	case <-r.released:
	case <-ctx.Done():
		return ctx.Err()
	}
	return r.world.MarkLaunched(ctx, attempt, fence, name, uid)
}

func TestNothingIsClaimedBeforeItMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, after := with(1, nil)(), make(chan struct{})
		d := New(Config{Queues: w, Records: w, Cluster: w, Shelf: w, Wakes: w.wakes, After: after})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(time.Minute)
		if n := get(w, func() int { return w.claims }); n != 0 {
			t.Error("claimed too early")
		}
		close(after)
		if n := get(w, func() int { return len(w.recorded) }); n != 1 {
			t.Error("did not begin")
		}
		cancel()
		<-done
	})
}
