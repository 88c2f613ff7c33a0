package task

import (
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	quota := &Refusal{Cause: RefusedQuota, Message: "full"}
	for _, c := range []struct {
		name  string
		a     Attempt
		s     Seen
		after time.Duration
		want  Action
		stop  StopReason
		wait  WaitReason
		again time.Duration // 0: not checked
	}{
		// Launching.
		{name: "a fresh claim is left to whoever claimed it", a: leased(), s: cached(nil), after: time.Second, want: ActWait, again: time.Second},
		{name: "an old claim without a Job is launched by anybody", a: leased(), s: cached(nil), after: 3 * time.Second, want: ActLaunch},
		{name: "an old claim whose Job is not recorded is adopted", a: leased(), s: cached(alive(), runningPod()), after: 3 * time.Second, want: ActLaunch},
		{name: "an hour in the quota queue is no start deadline", a: leased(), s: cached(alive(), waitingPod("ContainerCreating", "")), after: time.Hour, want: ActLaunch},
		{name: "a leased attempt whose pod already ended is finished", a: leased(), s: cached(over(), endedPod(0, "Completed", "")), after: 3 * time.Second, want: ActFinish},
		{name: "a canceled claim without a Job is checked with the server", a: stopped(leased(), StopCancel), s: cached(nil), want: ActLook},
		{name: "and ends when the server has none either", a: stopped(leased(), StopCancel), s: live(nil), want: ActFinish},

		// Waiting for a pod.
		{name: "a Job without a pod gets two seconds", a: launched(), s: cached(alive()), after: 1500 * time.Millisecond, want: ActWait, again: 500 * time.Millisecond},
		{name: "then the server is asked why there is none", a: launched(), s: cached(alive()), after: 3 * time.Second, want: ActAsk},
		{name: "also where it shows none itself", a: launched(), s: live(alive()), after: 3 * time.Second, want: ActAsk},
		{name: "a start deadline over by the cache's word is looked at", a: launched(), s: asked(cached(alive()), nil), after: 2 * time.Minute, want: ActLook},
		{name: "so is a refusal by the cache's word", a: launched(), s: asked(cached(alive()), quota), after: 3 * time.Second, want: ActLook},
		{name: "quota takes the Job back", a: launched(), s: asked(live(alive()), quota), after: 3 * time.Second, want: ActStop, stop: StopQuota, wait: WaitQuota},
		{name: "a pod that can never be rejects", a: launched(), s: asked(live(alive()), &Refusal{Cause: RefusedInvalid}), after: 3 * time.Second, want: ActStop, stop: StopInvalid},
		{name: "a namespace that ends rejects", a: launched(), s: asked(live(alive()), &Refusal{Cause: RefusedNamespace}), after: 3 * time.Second, want: ActStop, stop: StopInvalid},
		{name: "an unknown no waits and shows", a: launched(), s: asked(live(alive()), &Refusal{Cause: RefusedUnknown}), after: time.Hour, want: ActWait, wait: WaitLaunch},
		{name: "a server that wishes to be left alone is", a: launched(), s: asked(live(alive()), &Refusal{Cause: RefusedUnavailable, RetryAfter: time.Minute}), after: time.Hour, want: ActWait, wait: WaitLaunch, again: time.Minute},
		{name: "a pod that would be taken is waited for", a: launched(), s: asked(live(alive()), nil), after: 10 * time.Second, want: ActWait, again: 10 * time.Second},
		{name: "but not beyond the start deadline", a: launched(), s: asked(live(alive()), nil), after: 2 * time.Minute, want: ActStop, stop: StopStartDeadline},
		{name: "a suspended Job is somebody else's wait", a: launched(), s: cached(suspended()), after: time.Hour, want: ActWait, wait: WaitLaunch},

		// Starting.
		{name: "a bad image name fails fast", a: launched(), s: cached(alive(), waitingPod("InvalidImageName", "x:y:z")), after: time.Second, want: ActStop, stop: StopInvalid},
		{name: "a key that the kubelet has not read yet does not", a: launched(), s: cached(alive(), waitingPod("CreateContainerConfigError", "failed to sync secret cache: timed out")), after: 119 * time.Second, want: ActWait},
		{name: "a missing key fails fast", a: launched(), s: cached(alive(), waitingPod("CreateContainerConfigError", "secret not found")), after: time.Second, want: ActStop, stop: StopInvalid},
		{name: "a pull that fails has until the start deadline", a: launched(), s: cached(alive(), waitingPod("ImagePullBackOff", "no")), after: 119 * time.Second, want: ActWait, wait: WaitStart, again: time.Second},
		{name: "and not longer", a: launched(), s: cached(alive(), waitingPod("ImagePullBackOff", "no")), after: 120 * time.Second, want: ActStop, stop: StopStartDeadline},
		{name: "no node with room waits for capacity", a: launched(), s: cached(alive(), unbound().with(func(p *SeenPod) { p.Unschedulable = "0/3 nodes" })), after: 30 * time.Minute, want: ActWait, wait: WaitCapacity, again: 30 * time.Minute},
		{name: "up to a deadline of its own", a: launched(), s: cached(alive(), unbound().with(func(p *SeenPod) { p.Unschedulable = "0/3 nodes" })), after: time.Hour, want: ActStop, stop: StopStartDeadline},
		{name: "the wait for a node is not counted as starting", a: launched(), s: cached(alive(), waitingPod("ContainerCreating", "").with(func(p *SeenPod) { p.Waited = 30 * time.Minute })), after: 31 * time.Minute, want: ActWait, again: time.Minute},
		{name: "starting after it has its own time", a: launched(), s: cached(alive(), waitingPod("ContainerCreating", "").with(func(p *SeenPod) { p.Waited = 30 * time.Minute })), after: 32 * time.Minute, want: ActStop, stop: StopStartDeadline},
		{name: "a clock that runs wild cannot stretch it", a: launched(), s: cached(alive(), runningPod().with(func(p *SeenPod) { p.Waited = -time.Hour })), after: 2 * time.Minute, want: ActStop, stop: StopStartDeadline},
		{name: "a pod whose Job was orphaned still has a start deadline", a: launched(), s: live(nil, waitingPod("ContainerCreating", "")), after: 2 * time.Minute, want: ActStop, stop: StopStartDeadline},

		// Deleted by somebody while it may still run.
		{name: "a pod that was deleted at work is waited for", a: started(), s: cached(deleting(), runningPod().with(gone)), after: time.Minute, want: ActWait, wait: WaitStop, again: lookAgain},
		{name: "one that was deleted while it starts, too", a: launched(), s: cached(alive(), waitingPod("ContainerCreating", "").with(gone)), after: time.Second, want: ActWait, wait: WaitStop},
		{name: "but not beyond the run deadline", a: beating(started(), 10*time.Minute), s: cached(deleting(), runningPod().with(gone)), after: 10 * time.Minute, want: ActStop, stop: StopRunDeadline},
		{name: "nor once it has ended", a: started(), s: cached(deleting(), endedPod(0, "Completed", "").with(gone)), after: time.Minute, want: ActFinish},

		// At work.
		{name: "work is left alone", a: beating(started(), 9*time.Minute), s: cached(alive(), runningPod()), after: 9 * time.Minute, want: ActWait, again: time.Minute},
		{name: "up to the run deadline", a: beating(started(), 10*time.Minute), s: cached(alive(), runningPod()), after: 10 * time.Minute, want: ActStop, stop: StopRunDeadline},
		{name: "a pod that is not in the cache is looked for before a stop", a: beating(started(), 10*time.Minute), s: cached(alive()), after: 10 * time.Minute, want: ActLook},
		{name: "an early report is not overtaken by the deadline", a: beating(saying(started(), OutcomeSucceeded, ""), 11*time.Minute), s: cached(alive(), runningPod()), after: 11 * time.Minute, want: ActHalt},
		{name: "a reported end waits for the pod", a: saying(started(), OutcomeSucceeded, ""), s: cached(alive(), runningPod()), after: 20 * time.Second, want: ActWait, again: 10 * time.Second},
		{name: "a pod that stays after its report is stopped", a: saying(started(), OutcomeSucceeded, ""), s: cached(alive(), runningPod()), after: 31 * time.Second, want: ActHalt},
		{name: "a silent runner is looked at on its node", a: started(), s: cached(alive(), runningPod()), after: fence + time.Second, want: ActLook},
		{name: "and fenced", a: started(), s: live(alive(), runningPod()), after: fence + time.Second, want: ActFinish},
		{name: "and not before", a: started(), s: cached(alive(), runningPod()), after: fence, want: ActWait},
		{name: "a start long after the claim begins the silence anew", a: restarted(fence), s: cached(over(), runningPod()), after: fence + time.Minute, want: ActWait},

		// What stands beside the work.
		{name: "a second container that runs on is noted", a: started(), s: cached(alive(), beside()), want: ActStop, stop: StopEnded},
		{name: "and has the grace period", a: stopped(started(), StopEnded), s: cached(alive(), beside()), after: 29 * time.Second, want: ActWait, wait: WaitStop, again: time.Second},
		{name: "and is stopped then", a: stopped(started(), StopEnded), s: cached(alive(), beside()), after: 30 * time.Second, want: ActHalt},
		{name: "a marked pod is left to who marked it", a: started(), s: cached(alive(), beside().with(func(p *SeenPod) { p.Deleting = true })), want: ActWait},
		{name: "a reported end comes first", a: saying(started(), OutcomeSucceeded, ""), s: cached(alive(), beside()), want: ActWait},
		{name: "another pod beside an ended one is noted", a: started(), s: live(alive(), endedPod(0, "Completed", ""), second(runningPod())), want: ActStop, stop: StopEnded},

		// Ends.
		{name: "the pod's end is the end, before the Job says so", a: started(), s: cached(alive(), endedPod(0, "Completed", "")), want: ActFinish},
		{name: "a pod that is gone from the cache is looked for", a: launched(), s: cached(over()), want: ActLook},
		{name: "a pod that started is looked for too: it may have been closed before the database was restored", a: started(), s: cached(over()), want: ActLook},
		{name: "an ended Job without a pod in the cache is looked at", a: having(launched(), KnownPod{UID: "pod-1"}), s: cached(over()), want: ActWait},
		{name: "a Job that is gone is looked for", a: launched(), s: cached(nil), want: ActLook},
		{name: "and is lost when never bound", a: launched(), s: live(nil), want: ActFinish},
		{name: "a known pod that is gone is waited for", a: having(started(), KnownPod{UID: "pod-1"}), s: live(nil), after: time.Minute, want: ActWait},
		{name: "so is the pod that won start and was never seen", a: started(), s: live(nil), after: time.Minute, want: ActWait},
		{name: "until fence time", a: started(), s: live(nil), after: fence + time.Second, want: ActFinish},
		{name: "but never from a cache", a: started(), s: cached(nil), after: fence + time.Second, want: ActLook},
		{name: "a pod deleted before it was bound ends it", a: launched(), s: live(alive(), unbound().with(func(p *SeenPod) { p.Deleting = true })), want: ActFinish},

		// Stops.
		{name: "a stop halts", a: stopped(started(), StopCancel), s: cached(alive(), runningPod()), want: ActHalt, wait: WaitStop, again: time.Second},
		{name: "also what was not started", a: stopped(launched(), StopCancel), s: cached(alive()), want: ActHalt},
		{name: "a second pod is halted too", a: stopped(started(), StopCancel), s: live(deleting(), endedPod(0, "Completed", ""), second(runningPod())), want: ActHalt},
		{name: "a stop ends with the pod", a: stopped(started(), StopCancel), s: cached(alive(), endedPod(143, "Error", "")), want: ActFinish},
		{name: "a judged attempt is left alone", a: with(started(), func(a *Attempt) { a.State = Finished }), s: cached(nil), want: ActWait},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(someTask(), c.a, c.s, at(c.after))
			if d.Action != c.want || d.Stop != c.stop {
				t.Fatalf("got %s %q (%s), want %s %q", d.Action, d.Stop, d.Why, c.want, c.stop)
			}
			if c.wait != "" && d.Wait != c.wait {
				t.Errorf("waits for %q, want %q", d.Wait, c.wait)
			}
			if c.again != 0 && d.Again != c.again {
				t.Errorf("looks again in %v, want %v", d.Again, c.again)
			}
		})
	}
}

func with(a Attempt, change func(*Attempt)) Attempt {
	change(&a)
	return a
}

func beating(a Attempt, last time.Duration) Attempt {
	return with(a, func(a *Attempt) { a.Beat = at(last) })
}

// restarted is an Attempt that started so long after its claim.
func restarted(after time.Duration) Attempt {
	return with(started(), func(a *Attempt) { a.StartedAt = at(after) })
}

func TestOver(t *testing.T) {
	gc := func(p *SeenPod) { p.Disruption = "DeletionByPodGC" }
	known := KnownPod{UID: "pod-1", Name: "p1", Node: "node"}
	for _, c := range []struct {
		name  string
		a     Attempt
		s     Seen
		after time.Duration
		want  bool
	}{
		{"a running pod", started(), live(alive(), runningPod()), time.Minute, false},
		{"a terminated pod", started(), live(alive(), endedPod(0, "Completed", "")), 0, true},
		{"a terminated pod of an orphaned Job", started(), live(nil, endedPod(1, "Error", "")), 0, true},
		{"a terminal phase with a container that still runs", started(), live(over(), runningPod().with(func(p *SeenPod) { p.Phase = "Failed" })), 0, false},
		{"a phase written by pod GC over a running container", started(), live(over(), runningPod().with(func(p *SeenPod) { p.Phase = "Failed" }).with(gc)), 0, false},
		{"a phase written by pod GC over a container that was creating", started(), live(over(), waitingPod("ContainerCreating", "").with(func(p *SeenPod) { p.Phase = "Failed" }).with(gc)), 0, false},
		{"a phase written by pod GC without any status", started(), live(over(), pod("Failed").with(gc)), 0, false},
		{"the same after fence time", started(), live(over(), pod("Failed").with(gc)), fence + time.Second, true},
		{"a phase written by pod GC over a gate that ended alone", launched(), live(over(), pod("Failed").with(gc).with(func(p *SeenPod) {
			p.Containers = []SeenContainer{{Name: GateContainer, Terminated: &Terminated{}}, {Name: "main", Main: true, Waiting: "PodInitializing"}}
		})), 0, false},
		{"a phase written by pod GC over a terminated container", started(), live(over(), endedPod(1, "Error", "").with(gc)), 0, true},
		{"an unbound pod ended by pod GC", launched(), live(over(), pod("Failed").with(gc).with(func(p *SeenPod) { p.Node = "" })), 0, true},
		{"a pod refused by the node", launched(), live(over(), pod("Failed").with(func(p *SeenPod) { p.Reason = "OutOfcpu" })), 0, true},
		{"an evicted pod whose container the kubelet could not find", started(), live(over(), endedPod(137, "ContainerStatusUnknown", "").with(func(p *SeenPod) { p.Disruption = "EvictionByEvictionAPI" })), 0, true},
		{"an unbound pod", launched(), live(alive(), unbound()), 0, false},
		{"an unbound pod long after the claim", launched(), live(alive(), unbound()), time.Hour, false},
		{"an unbound pod that is being deleted", launched(), live(deleting(), unbound().with(func(p *SeenPod) { p.Deleting = true })), 0, true},
		{"a bound pod that is being deleted", launched(), live(deleting(), waitingPod("", "").with(func(p *SeenPod) { p.Deleting = true })), 0, false},
		{"nothing at all after the launch", launched(), live(nil), 0, true},
		{"nothing at all before the launch", leased(), live(nil), time.Hour, false},
		{"nothing at all before the launch, stopped", stopped(leased(), StopCancel), live(nil), 0, true},
		{"a known pod that is gone", having(started(), known), live(nil), time.Minute, false},
		{"a known pod that is gone, and ended before", having(started(), KnownPod{UID: "pod-1", Ended: true}), live(nil), 0, true},
		{"a winner that was never noted and is gone", started(), live(nil), fence, false},
		{"the same after fence time", started(), live(nil), fence + time.Second, true},
		{"the same with a heartbeat in between", beating(started(), time.Minute), live(nil), fence + time.Second, false},
		{"a noted pod gone before any start", having(launched(), known), live(nil), fence, false},
		{"an ended pod beside a known one that is gone", having(started(), known), live(over(), second(endedPod(121, "Error", ""))), 0, false},
		{"a second pod that runs beside an ended one", started(), live(over(), endedPod(0, "Completed", ""), second(runningPod())), 0, false},
		{"a pod refused at the gate while its Job still stands", launched(), live(alive(), endedPod(ExitGateRefused, "Error", "")), 0, false},
		{"a pod refused at the gate whose Job has ended", launched(), live(over(), endedPod(ExitGateRefused, "Error", "")), 0, true},
		{"a started command that ends with the gate's code", started(), live(alive(), endedPod(ExitGateRefused, "Error", "")), 0, true},
		{"a silent node under a standing Job", started(), live(alive(), runningPod()), fence + time.Second, true},
		{"a suspended Job", launched(), live(suspended()), time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, why := Over(someTask().Spec, c.a, c.s, at(c.after))
			if got != c.want {
				t.Fatalf("got %v (%s), want %v", got, why, c.want)
			}
			if got && why == "" {
				t.Error("over, and nothing says why")
			}
		})
	}
}

func gone(p *SeenPod) { p.Deleting = true }

func TestWhatIsBeingStoppedSaysForHowLongAtMost(t *testing.T) {
	spec, a := someTask().Spec, started()
	if got := Stopping(spec, a); got != "waiting for attempt 1 to stop, at most 6m0s after its last sign of life" {
		t.Errorf("with a runner inside: %s", got)
	}
	spec.Pod.Wrap = WrapNone
	if got := Stopping(spec, a); got != "waiting for attempt 1 to stop, until the kubelet says so or its node is gone" {
		t.Errorf("without: %s", got)
	}
	if got := Stopping(spec, launched()); got != "waiting for attempt 1 to stop, at most 6m0s after its last sign of life" {
		t.Errorf("before its gate was passed: %s", got)
	}
}

func TestAVerdictSaysUnderWhichStopItWasMade(t *testing.T) {
	if v := Judge(someTask().Spec, stopped(started(), StopCancel), live(over(), endedPod(0, "Completed", ""))); v.Stop != StopCancel || v.Outcome != OutcomeCanceled {
		t.Errorf("got %+v", v)
	}
}
