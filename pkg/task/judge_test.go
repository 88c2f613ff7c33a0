package task

import (
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	final := func(o Outcome, r Reason) string {
		return Termination{Attempt: 7, Fence: 41, Outcome: o, Reason: r, Text: "said"}.String()
	}
	evicted := func(p *SeenPod) { p.Disruption, p.Deleting = "EvictionByEvictionAPI", true }
	deleted := func(p *SeenPod) { p.Deleting = true }
	reason := func(r string) func(*SeenPod) { return func(p *SeenPod) { p.Reason = r } }
	cancel := stopped(started(), StopCancel)
	late := with(saying(cancel, OutcomeSucceeded, ""), func(a *Attempt) { a.Late = true })
	for _, c := range []struct {
		name   string
		a      Attempt
		s      Seen
		want   Outcome
		reason Reason
		spends Budget
		rule   string
	}{
		// Rule 0.
		{"a cancel decides over the exit code", cancel, live(over(), endedPod(0, "Completed", "")), OutcomeCanceled, ReasonCanceled, SpendsNothing, "0"},
		{"a cancel decides over a report that came after it", late, live(over(), endedPod(0, "Completed", "")), OutcomeCanceled, ReasonCanceled, SpendsNothing, "0"},
		{"a report that came first decides over a cancel", saying(cancel, OutcomeSucceeded, ""), live(over(), endedPod(0, "Completed", "")), OutcomeSucceeded, "", SpendsRetry, "1"},
		{"a runner that calls itself canceled is not in its way", saying(cancel, OutcomeCanceled, ""), live(over(), endedPod(143, "Error", "")), OutcomeCanceled, ReasonCanceled, SpendsNothing, "0"},
		{"superseded", stopped(started(), StopSuperseded), live(nil), OutcomeCanceled, ReasonSuperseded, SpendsNothing, "0"},
		{"run deadline", stopped(started(), StopRunDeadline), live(over(), endedPod(0, "Completed", "")), OutcomeTimedOut, ReasonRunDeadline, SpendsRetry, "0"},
		{"start deadline without a cause is ours", stopped(launched(), StopStartDeadline), live(nil), OutcomeTimedOut, ReasonStartDeadline, SpendsLost, "0"},
		{"no node is ours", noted(StopStartDeadline, "Unschedulable: 0/3 nodes"), live(nil), OutcomeTimedOut, ReasonUnschedulable, SpendsLost, "0"},
		{"a missing image is the user's, though the pod is gone", noted(StopStartDeadline, "ImagePullBackOff: not found"), live(nil), OutcomeTimedOut, ReasonImagePull, SpendsRetry, "0"},
		{"a missing image that the pod still shows", stopped(launched(), StopStartDeadline), live(deleting(), waitingPod("ErrImagePull", "x")), OutcomeTimedOut, ReasonImagePull, SpendsRetry, "0"},
		{"a registry that is away is not the user's", noted(StopStartDeadline, "ErrImagePull: dial tcp: connect: connection refused"), live(nil), OutcomeTimedOut, ReasonRegistry, SpendsLost, "0"},
		{"a container that crashes before it can start", noted(StopStartDeadline, "CrashLoopBackOff: back-off"), live(nil), OutcomeTimedOut, ReasonCannotRun, SpendsRetry, "0"},
		{"a Secret that was never read", noted(StopStartDeadline, "CreateContainerConfigError: failed to sync secret cache"), live(nil), OutcomeTimedOut, ReasonStartDeadline, SpendsLost, "0"},
		{"a bad image name rejects", noted(StopInvalid, "InvalidImageName: x:y"), live(nil), OutcomeRejected, ReasonConfig, SpendsRetry, "0"},
		{"a refused pod rejects", noted(StopInvalid, "pods is forbidden: violates PodSecurity"), live(nil), OutcomeRejected, ReasonInvalid, SpendsRetry, "0"},
		{"quota spends nothing", stopped(launched(), StopQuota), live(nil), OutcomeLost, ReasonQuota, SpendsNothing, "0"},
		{"an unknown stop", stopped(launched(), "strange"), live(nil), OutcomeLost, ReasonDeleted, SpendsLost, "0"},

		// Rule 1.
		{"a report is the record, whatever the pod shows", saying(started(), OutcomeSucceeded, ""), live(over(), endedPod(137, "OOMKilled", "").with(evicted)), OutcomeSucceeded, "", SpendsRetry, "1"},
		{"also without a pod", saying(started(), OutcomeFailed, "exit_code"), live(nil), OutcomeFailed, ReasonExitCode, SpendsRetry, "1"},
		{"a report that names no outcome", saying(started(), "done", ""), live(nil), OutcomeFailed, ReasonReportMalformed, SpendsRetry, "1"},
		{"told to stop, and the pod says by an eviction", saying(started(), OutcomeLost, ReasonTerminated), live(over(), endedPod(143, "Error", "").with(evicted)), OutcomeLost, ReasonEvicted, SpendsLost, "1"},
		{"told to stop, and the pod says by its deadline", saying(started(), OutcomeLost, ReasonTerminated), live(over(), endedPod(143, "Error", "").with(reason("DeadlineExceeded"))), OutcomeTimedOut, ReasonRunDeadline, SpendsRetry, "1"},
		{"told to stop, and nobody says by whom", saying(started(), OutcomeLost, ReasonTerminated), live(nil), OutcomeLost, ReasonTerminated, SpendsLost, "1"},
		{"nobody canceled, and the runner says canceled", saying(started(), OutcomeCanceled, ""), live(over(), endedPod(143, "Error", "").with(evicted)), OutcomeLost, ReasonEvicted, SpendsLost, "1"},

		// Rule 2.
		{"a termination message decides", started(), live(over(), endedPod(3, "Error", final(OutcomeFailed, ReasonExitCode)).with(deleted)), OutcomeFailed, ReasonExitCode, SpendsRetry, "2"},
		{"a success in it survives a later delete", started(), live(deleting(), endedPod(0, "Completed", final(OutcomeSucceeded, "")).with(deleted)), OutcomeSucceeded, "", SpendsRetry, "2"},
		{"started is no end", started(), live(over(), endedPod(137, "OOMKilled", final(TerminationStarted, ""))), OutcomeFailed, ReasonOOMKilled, SpendsRetry, "6"},
		{"another fence says nothing", started(), live(over(), endedPod(0, "Completed", "v1 7 40 failed exit_code")), OutcomeSucceeded, "", SpendsRetry, "9"},
		{"another attempt says nothing", started(), live(over(), endedPod(0, "Completed", "v1 8 41 failed exit_code")), OutcomeSucceeded, "", SpendsRetry, "9"},
		{"a pod that did not win start says nothing", launched(), live(over(), endedPod(0, "Completed", final(OutcomeSucceeded, ""))), OutcomeLost, ReasonNoReport, SpendsLost, "9"},
		{"unreachable for fence_after, in the message", started(), live(over(), endedPod(122, "Error", final(OutcomeLost, ReasonHeartbeat))), OutcomeLost, ReasonHeartbeat, SpendsLost, "2"},

		// Rule 3.
		{"evicted and exit 0", started(), live(over(), endedPod(0, "Completed", "").with(evicted)), OutcomeLost, ReasonEvicted, SpendsLost, "3"},
		{"deleted and exit 0", started(), live(over(), endedPod(0, "Completed", "").with(deleted)), OutcomeLost, ReasonDeleted, SpendsLost, "3"},
		{"evicted for node pressure", started(), live(over(), endedPod(137, "Error", "").with(reason("Evicted"))), OutcomeLost, ReasonEvicted, SpendsLost, "3"},
		{"killed for memory while evicted", started(), live(over(), endedPod(137, "OOMKilled", "").with(reason("Evicted"))), OutcomeLost, ReasonEvicted, SpendsLost, "3"},
		{"preempted by the scheduler", started(), live(over(), endedPod(0, "Completed", "").with(func(p *SeenPod) { p.Disruption = "PreemptionByScheduler" })), OutcomeLost, ReasonPreempted, SpendsLost, "3"},
		{"preempted by the kubelet", started(), live(over(), endedPod(0, "Completed", "").with(reason("Preempting")).with(func(p *SeenPod) { p.Disruption = "TerminationByKubelet" })), OutcomeLost, ReasonPreempted, SpendsLost, "3"},
		{"node shut down", started(), live(over(), endedPod(0, "Completed", "").with(reason("Terminated")).with(func(p *SeenPod) { p.Disruption = "TerminationByKubelet" })), OutcomeLost, ReasonNodeLost, SpendsLost, "3"},
		{"node lost", started(), live(over(), endedPod(1, "Error", "").with(reason("NodeLost"))), OutcomeLost, ReasonNodeLost, SpendsLost, "3"},
		{"collected with its node", started(), live(over(), pod("Failed").with(func(p *SeenPod) { p.Disruption = "DeletionByPodGC" })), OutcomeLost, ReasonNodeLost, SpendsLost, "3"},
		{"tainted away", started(), live(over(), endedPod(143, "Error", "").with(func(p *SeenPod) { p.Disruption = "DeletionByTaintManager" })), OutcomeLost, ReasonNodeLost, SpendsLost, "3"},
		{"a node that went after the end changes nothing", started(), live(over(), endedPod(0, "Completed", "").with(func(p *SeenPod) { p.NodeGone = true })), OutcomeSucceeded, "", SpendsRetry, "9"},
		{"deleted before it was bound, then collected", launched(), live(over(), pod("Failed").with(deleted).with(func(p *SeenPod) { p.Node, p.Disruption = "", "DeletionByPodGC" })), OutcomeLost, ReasonDeleted, SpendsLost, "3"},
		{"no room at the node", launched(), live(over(), pod("Failed").with(reason("OutOfmemory"))), OutcomeLost, ReasonAdmission, SpendsLost, "3"},
		{"affinity no longer met", launched(), live(over(), pod("Failed").with(reason("NodeAffinity"))), OutcomeLost, ReasonAdmission, SpendsLost, "3"},
		{"a disruption of a new name", started(), live(over(), endedPod(0, "Completed", "").with(func(p *SeenPod) { p.Disruption = "SomethingNew" })), OutcomeLost, ReasonEvicted, SpendsLost, "3"},

		// Rule 4.
		{"a deadline and exit 0", started(), live(over(), endedPod(0, "Completed", "").with(reason("DeadlineExceeded"))), OutcomeTimedOut, ReasonRunDeadline, SpendsRetry, "4"},
		{"a deadline, and deleted later", started(), live(deleting(), endedPod(0, "Completed", "").with(reason("DeadlineExceeded")).with(deleted)), OutcomeTimedOut, ReasonRunDeadline, SpendsRetry, "4"},

		// Rules 5 to 9.
		{"a status that nobody knows", started(), live(over(), endedPod(137, "ContainerStatusUnknown", "")), OutcomeLost, ReasonNodeLost, SpendsLost, "5"},
		{"unknown comes before a side container's memory", started(), live(over(), endedPod(137, "ContainerStatusUnknown", "").with(sideOOM)), OutcomeLost, ReasonNodeLost, SpendsLost, "5"},
		{"a command that does not exist", launched(), live(over(), endedPod(128, "StartError", "exec: no such file")), OutcomeRejected, ReasonCannotRun, SpendsRetry, "5"},
		{"a container that cannot run", launched(), live(over(), endedPod(127, "ContainerCannotRun", "")), OutcomeRejected, ReasonCannotRun, SpendsRetry, "5"},
		{"killed for memory with exit 0", started(), live(over(), endedPod(0, "OOMKilled", "")), OutcomeFailed, ReasonOOMKilled, SpendsRetry, "6"},
		{"killed for memory by signal", started(), live(over(), endedPod(137, "OOMKilled", "")), OutcomeFailed, ReasonOOMKilled, SpendsRetry, "6"},
		{"a side container killed for memory", started(), live(over(), endedPod(0, "Completed", "").with(sideOOM)), OutcomeFailed, ReasonOOMKilled, SpendsRetry, "6"},
		{"refused at the gate, and no other pod", launched(), live(over(), endedPod(ExitGateRefused, "Error", "")), OutcomeLost, ReasonNoReport, SpendsLost, "7"},
		{"refused at the gate beside one that ran", launched(), live(over(), endedPod(3, "Error", ""), second(endedPod(ExitGateRefused, "Error", ""))), OutcomeFailed, ReasonExitCode, SpendsRetry, "8"},
		{"a started command may end with 121", started(), live(over(), endedPod(ExitGateRefused, "Error", "")), OutcomeFailed, ReasonExitCode, SpendsRetry, "8"},
		{"unreachable before start", launched(), live(over(), endedPod(ExitUnreachable, "Error", "")), OutcomeLost, ReasonUnreachable, SpendsLost, "7"},
		{"a started command may end with 122", started(), live(over(), endedPod(ExitUnreachable, "Error", "")), OutcomeFailed, ReasonExitCode, SpendsRetry, "8"},
		{"killed", started(), live(over(), endedPod(137, "Error", "")), OutcomeFailed, ReasonSignal, SpendsRetry, "8"},
		{"255 is no signal", started(), live(over(), endedPod(255, "Error", "")), OutcomeFailed, ReasonExitCode, SpendsRetry, "8"},
		{"exit 3", started(), live(over(), endedPod(3, "Error", "")), OutcomeFailed, ReasonExitCode, SpendsRetry, "8"},
		{"a phase Failed without a container", started(), live(over(), pod("Failed")), OutcomeFailed, ReasonNoReport, SpendsRetry, "8"},
		{"exit 0 after a start", started(), live(over(), endedPod(0, "Completed", "")), OutcomeSucceeded, "", SpendsRetry, "9"},
		{"exit 0 and no runner had asked", launched(), live(over(), endedPod(0, "Completed", "")), OutcomeLost, ReasonNoReport, SpendsLost, "9"},
		{"a phase Succeeded and no runner had asked", launched(), live(over(), pod("Succeeded")), OutcomeLost, ReasonNoReport, SpendsLost, "9"},
		{"the runner could not be copied in", launched(), live(over(), initFailed(RunnerContainer, ExitUnreachable)), OutcomeLost, ReasonUnreachable, SpendsLost, "7"},

		// Rule 10.
		{"nothing is left", launched(), live(nil), OutcomeLost, ReasonDeleted, SpendsLost, "10"},
		{"the winner is gone, another pod is not asked", started(), live(over(), second(endedPod(0, "Completed", ""))), OutcomeLost, ReasonDeleted, SpendsLost, "10"},
		{"fenced while it runs", started(), live(alive(), runningPod()), OutcomeLost, ReasonNoReport, SpendsLost, "10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Judge(Spec{}, c.a, c.s)
			if v.Outcome != c.want || v.Reason != c.reason || v.Spends != c.spends || !strings.HasPrefix(v.Rule, c.rule) {
				t.Fatalf("got %s/%s, spends %q, by rule %q; want %s/%s, %q, %q", v.Outcome, v.Reason, v.Spends, v.Rule, c.want, c.reason, c.spends, c.rule)
			}
		})
	}
}

// noted is a launched Attempt that was stopped with a note.
func noted(why StopReason, note string) Attempt {
	a := stopped(launched(), why)
	a.StopNote = note
	return a
}

func sideOOM(p *SeenPod) {
	p.Containers = append(p.Containers, SeenContainer{Name: "mesh", Terminated: &Terminated{ExitCode: 137, Reason: "OOMKilled"}})
	p.Phase = "Failed"
}

func TestAStartedHandlerIsKnownAsStarted(t *testing.T) {
	for name, a := range map[string]Attempt{
		"by state": {State: Started}, "by pod": {State: Launched, PodUID: "x"}, "by time": {State: Launched, StartedAt: t0},
	} {
		if v := Judge(Spec{}, a, live(nil)); !v.Started {
			t.Errorf("%s: not known as started", name)
		}
	}
	if v := Judge(Spec{}, launched(), live(nil)); v.Started {
		t.Error("never started, and called so")
	}
}

// everything yields the product of all shapes of Attempts and sights that the pieces below make.
func everything(visit func(a Attempt, s Seen)) {
	end := func(code int, reason string) SeenPod { return endedPod(code, reason, "") }
	pods := [][]SeenPod{
		nil,
		{runningPod()},
		{unbound()},
		{unbound().with(func(p *SeenPod) { p.Deleting = true })},
		{unbound().with(func(p *SeenPod) { p.Unschedulable = "no" })},
		{waitingPod("ImagePullBackOff", "x")},
		{waitingPod("InvalidImageName", "x")},
		{runningPod().with(func(p *SeenPod) { p.Deleting = true })},
		{runningPod().with(func(p *SeenPod) { p.Phase, p.Disruption = "Failed", "DeletionByPodGC" })},
		{runningPod().with(func(p *SeenPod) { p.Phase = "Unknown" })},
		{end(0, "Completed")},
		{end(3, "Error")},
		{end(121, "Error")},
		{end(122, "Error")},
		{end(137, "OOMKilled")},
		{end(0, "Completed").with(func(p *SeenPod) { p.Disruption = "EvictionByEvictionAPI" })},
		{end(121, "Error"), second(runningPod())},
		{end(0, "Completed"), second(unbound())},
		{pod("Failed")},
		{pod("Succeeded")},
		{pod("")},
	}
	jobs := []*SeenJob{nil, alive(), over(), deleting(), suspended()}
	attempts := []Attempt{leased(), launched(), started(), beating(started(), 5*time.Minute)}
	stops := []StopReason{StopNone, StopCancel, StopSuperseded, StopRunDeadline, StopStartDeadline, StopQuota, StopInvalid}
	for _, a := range attempts {
		for _, stop := range stops {
			for _, report := range []Outcome{"", OutcomeSucceeded, OutcomeCanceled, "nonsense"} {
				for _, known := range [][]KnownPod{nil, {{UID: "pod-1"}}, {{UID: "pod-9"}}, {{UID: "pod-9", Ended: true}}} {
					a := a
					a.Pods = known
					if stop != StopNone {
						a = stopped(a, stop)
					}
					if report != "" {
						a = saying(a, report, "")
					}
					for _, j := range jobs {
						for _, p := range pods {
							for _, isLive := range []bool{false, true} {
								visit(a, Seen{Live: isLive, Job: j, Pods: p})
								if len(p) == 0 {
									visit(a, Seen{Live: isLive, Job: j, Asked: true, Refusal: &Refusal{Cause: RefusedQuota}})
								}
							}
						}
					}
				}
			}
		}
	}
}

func TestDecideHasOneAnswerForEveryShape(t *testing.T) {
	shapes := 0
	for _, task := range []Task{someTask(), unwrapped()} {
		everything(func(a Attempt, s Seen) { shapes += answered(t, task, a, s) })
	}
	t.Logf("%d shapes", shapes)
}

// answered holds every answer for one shape against what each answer must be.
func answered(t *testing.T, task Task, a Attempt, s Seen) (shapes int) {
	t.Helper()
	for _, after := range []time.Duration{0, 3 * time.Second, 3 * time.Minute, time.Hour, 48 * time.Hour} {
		shapes++
		now := at(after)
		d := Decide(task, a, s, now)
		over, _ := Over(task.Spec, a, s, now)
		fail := func(what string) {
			t.Helper()
			t.Fatalf("%s: %+v\nattempt %+v\nseen %+v\nafter %v", what, d, a, s, after)
		}
		switch d.Action {
		case ActWait, ActHalt, ActLaunch:
			if d.Again <= 0 {
				fail("nobody looks again")
			}
		case ActStop:
			if d.Stop == StopNone || a.Stop != StopNone {
				fail("stops without a reason, or twice")
			}
		case ActFinish:
			if !over {
				fail("finishes what is not over")
			}
			if len(s.Pods) == 0 && !s.Live {
				fail("decides by an absence in the cache")
			}
			if !(Termination{Outcome: d.Verdict.Outcome}).Final() || d.Verdict.Rule == "" {
				fail("a verdict without outcome or rule")
			}
		case ActLook:
			if s.Live {
				fail("looks for ever")
			}
		case ActAsk:
			if s.Asked {
				fail("asks for ever")
			}
		default:
			fail("no action")
		}
		if d.Wait == "" && d.Action == ActHalt {
			fail("halts and does not say that it waits")
		}
	}
	return shapes
}

func TestNoLaneIsHandedOnOverARunningContainerBeforeFenceTime(t *testing.T) {
	task := someTask()
	everything(func(a Attempt, s Seen) {
		last := a.lastSign()
		if over, why := Over(task.Spec, a, s, last.Add(fence)); over {
			for _, p := range s.Pods {
				for _, c := range p.Containers {
					if c.Running {
						t.Fatalf("handed on (%s) over a running container: %+v %+v", why, a, s)
					}
				}
				if p.Node != "" && p.Phase != "Succeeded" && p.Phase != "Failed" {
					t.Fatalf("handed on (%s) over a bound pod in phase %q", why, p.Phase)
				}
			}
		}
	})
}

func TestWhatIsOverStaysOver(t *testing.T) {
	task := someTask()
	everything(func(a Attempt, s Seen) {
		before := false
		for _, after := range []time.Duration{0, time.Second, time.Minute, 5 * time.Minute, fence + time.Second, 5*time.Minute + fence + time.Second, 48 * time.Hour} {
			over, _ := Over(task.Spec, a, s, at(after))
			if before && !over {
				t.Fatalf("over, and later not: %+v %+v", a, s)
			}
			before = over
		}
	})
}

func TestAStopDecidesUnlessTheReportWasFirst(t *testing.T) {
	everything(func(a Attempt, s Seen) {
		if a.Stop != StopCancel {
			return
		}
		v := Judge(Spec{}, a, s)
		first := a.Report != nil && a.Report.Outcome != OutcomeCanceled
		if !first && v.Outcome != OutcomeCanceled {
			t.Fatalf("canceled, and judged %s by %s", v.Outcome, v.Rule)
		}
		a.Late = true
		if v := Judge(Spec{}, a, s); v.Outcome != OutcomeCanceled {
			t.Fatalf("canceled before its report, and judged %s by %s", v.Outcome, v.Rule)
		}
	})
}

func TestWhatAStoppedHandlerLeftBehindIsInTheMessage(t *testing.T) {
	const left = "the task was canceled: leftover snapshot data-1"
	cancel := noted(StopCancel, "wrong one")
	cancel.State, cancel.PodUID = Started, started().PodUID
	quiet := with(cancel, func(a *Attempt) { a.StopNote = "" })
	reported := func(a Attempt, o Outcome, late bool) Attempt {
		return with(a, func(a *Attempt) { a.Report, a.Late = &Report{Outcome: o, Message: left}, late })
	}
	message := endedPod(1, "Error", Termination{Attempt: 7, Fence: 41, Outcome: OutcomeCanceled, Reason: ReasonCanceled, Text: left}.String())
	for _, c := range []struct {
		name string
		a    Attempt
		s    Seen
		want string
	}{
		{"a late report", reported(cancel, OutcomeFailed, true), live(over()), "wrong one; " + left},
		{"of one that calls itself canceled", reported(cancel, OutcomeCanceled, false), live(over()), "wrong one; " + left},
		{"nobody said why it is stopped", reported(quiet, OutcomeCanceled, true), live(over()), left},
		{"a run deadline", reported(with(cancel, func(a *Attempt) { a.Stop = StopRunDeadline }), OutcomeTimedOut, true), live(over()), "wrong one; " + left},
		{"a termination message, where no report came", cancel, live(over(), message), "wrong one; " + left},
		{"a success leaves nothing", reported(cancel, OutcomeSucceeded, true), live(over()), "wrong one"},
		{"nothing was said", cancel, live(over(), endedPod(143, "Error", "")), "wrong one"},
		{"a termination message of another fence", with(cancel, func(a *Attempt) { a.Fence++ }), live(over(), message), "wrong one"},
	} {
		if v := Judge(Spec{}, c.a, c.s); v.Message != c.want || v.Outcome == OutcomeFailed {
			t.Errorf("%s: %s %q, want %q", c.name, v.Outcome, v.Message, c.want)
		}
	}
}

func TestInfrastructureTroubleNeverSpendsTheUsersBudget(t *testing.T) {
	everything(func(a Attempt, s Seen) {
		v := Judge(Spec{}, a, s)
		if (v.Outcome == OutcomeLost || v.Outcome == OutcomeCanceled) && v.Spends == SpendsRetry {
			t.Fatalf("%s/%s spends the user's budget", v.Outcome, v.Reason)
		}
		if v.Outcome == OutcomeFailed && v.Spends != SpendsRetry {
			t.Fatalf("a failure spends %q", v.Spends)
		}
	})
}

func TestAHandlerThatWasCutOffWithoutAWordIsKnownAsSilent(t *testing.T) {
	said := Termination{Attempt: 7, Fence: 41, Outcome: OutcomeFailed, Reason: ReasonExitCode, Text: "taken back"}.String()
	begun := Termination{Attempt: 7, Fence: 41, Outcome: "started"}.String()
	var unwrapped Spec
	unwrapped.Pod.Wrap = WrapNone
	for name, c := range map[string]struct {
		spec Spec
		a    Attempt
		s    Seen
		want bool
	}{
		"nothing is left of it":                {Spec{}, started(), live(nil), true},
		"killed":                               {Spec{}, started(), live(over(), endedPod(137, "Error", begun)), true},
		"killed for memory":                    {Spec{}, started(), live(over(), endedPod(137, "OOMKilled", "")), true},
		"killed while it was being stopped":    {Spec{}, stopped(started(), StopCancel), live(over(), endedPod(137, "Error", "")), true},
		"its runner fell over":                 {Spec{}, started(), live(over(), endedPod(2, "Error", "")), true},
		"it never started":                     {Spec{}, launched(), live(nil), false},
		"it reported its failure":              {Spec{}, saying(started(), OutcomeFailed, ""), live(over(), endedPod(1, "Error", "")), false},
		"it reported late":                     {Spec{}, with(saying(stopped(started(), StopCancel), OutcomeCanceled, ""), func(a *Attempt) { a.Late = true }), live(over()), false},
		"its last message says it":             {Spec{}, started(), live(over(), endedPod(1, "Error", said)), false},
		"it succeeded":                         {Spec{}, saying(started(), OutcomeSucceeded, ""), live(over(), endedPod(0, "Completed", "")), false},
		"no runner inside, an exit by itself":  {unwrapped, started(), live(over(), endedPod(3, "Error", "")), false},
		"no runner inside, a success":          {unwrapped, started(), live(over(), endedPod(0, "Completed", "")), false},
		"no runner inside, killed":             {unwrapped, started(), live(over(), endedPod(137, "Error", "")), true},
		"no runner inside, nothing is left":    {unwrapped, started(), live(nil), true},
		"no runner inside, it obeyed a cancel": {unwrapped, stopped(started(), StopCancel), live(over(), endedPod(143, "Error", "")), false},
		"a replica that ran it fell silent":    {Spec{}, with(started(), func(a *Attempt) { a.Executor = ExecutorInline }), live(nil), true},
	} {
		if v := Judge(c.spec, c.a, c.s); v.Silent != c.want {
			t.Errorf("%s: silent %v (%s/%s by %s)", name, v.Silent, v.Outcome, v.Reason, v.Rule)
		}
	}
	if v := ForceRelease(Spec{}, started(), "ada", "its node burns"); !v.Silent {
		t.Error("its lane was taken from it: not silent")
	}
	if v := ForceRelease(Spec{}, launched(), "ada", "its node burns"); v.Silent {
		t.Error("its lane was taken from it before it started: silent")
	}
	everything(func(a Attempt, s Seen) {
		if v := Judge(Spec{}, a, s); v.Silent && (!v.Started || v.Heard || v.Outcome == OutcomeSucceeded) {
			t.Fatalf("silent, and %+v", v)
		}
	})
}
