package task

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// dice makes random Attempts and sights of them, in and out of all order that a cluster keeps.
type dice struct{ *rand.Rand }

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// moment is a time around the tests' Attempts, rarely a zero one.
func (d dice) moment() time.Time {
	if d.chance(10) {
		return time.Time{}
	}
	return at(time.Duration(d.Int64N(int64(4*fence))) - fence)
}

func (d dice) spec() Spec {
	s := someTask().Spec
	s.Pod.Wrap = pick(d, WrapOwn, WrapExec, WrapNone)
	s.Idempotent = d.chance(50)
	if d.chance(10) {
		s.StartDeadline, s.RunDeadline, s.Capacity, s.Grace, s.FenceAfter = 0, 0, 0, 0, 0
	}
	return s
}

func (d dice) attempt() Attempt {
	a := Attempt{ID: 7, Fence: 41, State: pick(d, Leased, Launched, Launched, Started, Started), ClaimedAt: d.moment(), LaunchedAt: d.moment()}
	if a.State == Started || d.chance(10) {
		a.PodUID, a.StartedAt, a.Beat, a.Node = d.uid(), d.moment(), d.moment(), d.node()
	}
	if d.chance(30) {
		a.Stop = pick(d, StopCancel, StopSuperseded, StopRunDeadline, StopStartDeadline, StopQuota, StopInvalid, StopEnded, "new")
		a.StopAt, a.StopNote = d.moment(), d.word()+": "+d.note()
	}
	if d.chance(30) {
		a.Report = &Report{Outcome: pick(d, append(Outcomes, "", "done")...), Reason: Reason(d.word()), At: d.moment()}
		a.Late = a.Stop != StopNone && d.chance(50)
	}
	for range d.IntN(3) {
		a.Pods = append(a.Pods, KnownPod{UID: d.uid(), Node: d.node(), Ended: d.chance(50)})
	}
	return a
}

func (d dice) uid() string  { return pick(d, "pod-1", "pod-1", "pod-2", "pod-3") }
func (d dice) node() string { return pick(d, "", "node", "node", "other") }

func (d dice) word() string {
	return pick(d, "", "Unschedulable", "InvalidImageName", "ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError",
		"ContainerCreating", "PodInitializing", "CrashLoopBackOff", "OOMKilled", "Error", "Completed", "ContainerStatusUnknown", "StartError",
		"Evicted", "Preempting", "DeadlineExceeded", "NodeLost", "OutOfcpu", "Terminated", "new")
}

func (d dice) note() string {
	return pick(d, "", "not found", "connect: connection refused", "failed to sync secret cache", "v1 7 41 succeeded -",
		"v1 7 41 failed exit_code x", "v1 7 40 failed x", "v1 7 41 started -", "v1 7 41 canceled -", "v1 7 41 lost terminated", "\x00\xff")
}

func (d dice) container() SeenContainer {
	c := SeenContainer{Name: pick(d, "main", "main", "mesh", GateContainer, RunnerContainer), Main: d.chance(60), Before: d.chance(20)}
	switch d.IntN(4) {
	case 0:
		c.Running = true
	case 1:
		c.Waiting, c.WaitingFor = d.word(), d.note()
	case 2:
		c.Terminated = &Terminated{
			Ran: d.chance(80), ExitCode: pick(d, 0, 0, 1, 3, 121, 122, 128, 137, 143, 255, -1), Signal: pick(d, 0, 0, 9), Reason: d.word(), Message: d.note(),
		}
	}
	return c
}

func (d dice) pod() SeenPod {
	p := SeenPod{
		UID: d.uid(), Name: "p", Node: d.node(), Created: d.moment(), Waited: time.Duration(d.Int64N(int64(time.Hour))) - time.Minute,
		Phase: pick(d, "", "Pending", "Running", "Running", "Succeeded", "Failed", "Failed", "Unknown"), Deleting: d.chance(25),
		NodeGone: d.chance(10), NodeSilent: d.chance(10),
	}
	if d.chance(25) {
		p.Reason, p.Message = d.word(), d.note()
	}
	if d.chance(20) {
		p.Disruption = pick(d, "EvictionByEvictionAPI", "DeletionByPodGC", "DeletionByTaintManager", "PreemptionByScheduler", "TerminationByKubelet", "new")
	}
	if d.chance(10) {
		p.Unschedulable = d.note()
	}
	for range d.IntN(4) {
		p.Containers = append(p.Containers, d.container())
	}
	return p
}

func (d dice) seen() Seen {
	s := Seen{Live: d.chance(50)}
	if d.chance(75) {
		s.Job = &SeenJob{Deleting: d.chance(25), Suspended: d.chance(10), Ended: d.chance(40), Waited: time.Duration(d.Int64N(int64(time.Hour))) - time.Minute}
	}
	for range pick(d, 0, 1, 1, 1, 2, 3) {
		if p := d.pod(); find(s.Pods, p.UID) == nil {
			s.Pods = append(s.Pods, p)
		}
	}
	if d.chance(30) {
		s.Asked = true
		s.Refusal = pick(d, nil, &Refusal{Cause: RefusedQuota}, &Refusal{Cause: RefusedInvalid}, &Refusal{Cause: RefusedUnknown}, &Refusal{Cause: "new"})
	}
	if d.chance(20) {
		s.GoneNodes = []string{"node"}
	}
	return s
}

// Whatever is seen, there is one verdict or a stated wait; an end is an end at every later moment, and the same one; a stop
// and a report that was first are never overturned; and no lane is handed on over a container that may run.
func TestRandomShapesHaveOneAnswerThatTimeNeverTakesBack(t *testing.T) {
	const many = 100_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	d := dice{rand.New(rand.NewPCG(seed, 0))}
	ends := 0
	for range many {
		task := Task{ID: someTask().ID, Spec: d.spec()}
		a, s := d.attempt(), d.seen()
		answered(t, task, a, s)
		ends += lasting(t, task, a, s)
		safe(t, task, a, s)
	}
	if ends < many/10 {
		t.Errorf("%d of %d shapes end: the dice are loaded", ends, many)
	}
}

// lasting holds a shape against later moments.
func lasting(t *testing.T, task Task, a Attempt, s Seen) (ends int) {
	t.Helper()
	var first *Decision
	for _, after := range []time.Duration{0, time.Second, time.Minute, fence, 3 * fence, 6 * fence, 48 * time.Hour} {
		now := at(after)
		d := Decide(task, a, s, now)
		switch {
		case d.Action == ActFinish && first == nil:
			first, ends = &d, 1
		case first != nil && d.Action != ActFinish:
			t.Fatalf("it ended, and after %v it does not: %+v\n%+v\n%+v", after, d, a, s)
		case first != nil && (d.Verdict.Outcome != first.Verdict.Outcome || d.Verdict.Reason != first.Verdict.Reason || d.Verdict.Rule != first.Verdict.Rule):
			t.Fatalf("it ended as %+v, and after %v as %+v\n%+v\n%+v", first.Verdict, after, d.Verdict, a, s)
		}
		move := After(task, d.Verdict)
		if d.Action == ActFinish && !move.State.Terminal() && (move.State != Queued || move.Delay <= 0) {
			t.Fatalf("the Task becomes %+v", move)
		}
	}
	return ends
}

// safe holds a shape against what no end may do.
func safe(t *testing.T, task Task, a Attempt, s Seen) {
	t.Helper()
	limit := (task.Spec.FenceAfter + task.Spec.Grace + HandOverMargin).Duration()
	if over, why := Over(task.Spec, a, s, a.lastSign().Add(limit)); over {
		for _, p := range s.Pods {
			gone := !task.Spec.Pod.Wrap.Runner() && a.started() && p.nodeless()
			running := slices.ContainsFunc(p.Containers, func(c SeenContainer) bool { return c.Running })
			if (running || p.Node != "" && p.Phase != "Succeeded" && p.Phase != "Failed") && !gone && !p.unborn() {
				t.Fatalf("handed on (%s) before fence time, over %+v\n%+v", why, p, a)
			}
		}
	}
	v := Judge(task.Spec, a, s)
	first := a.Report != nil && !a.Late && a.Report.Outcome != OutcomeCanceled
	switch {
	case a.Stop == StopCancel && !first && v.Outcome != OutcomeCanceled:
		t.Fatalf("canceled, and judged %+v\n%+v", v, a)
	case first && v.Outcome != OutcomeLost && v.Outcome != a.Report.Outcome && slices.Contains(Outcomes, a.Report.Outcome) && a.Report.Reason != ReasonTerminated:
		t.Fatalf("reported %s, and judged %+v", a.Report.Outcome, v)
	case (v.Outcome == OutcomeLost || v.Outcome == OutcomeCanceled) && v.Spends == SpendsRetry:
		t.Fatalf("%+v spends the user's budget", v)
	}
}
