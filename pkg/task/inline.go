package task

import (
	"fmt"
	"slices"
	"time"
)

// Bounds of an Attempt that runs in the control plane's own process (ExecutorInline). Its replica counts from the last
// heartbeat that it knows to be stored, on its own monotonic clock.
const (
	// InlineMost is the longest run deadline that such a Task may have.
	InlineMost Seconds = 60
	// InlineFenceAfter is the silence after which nothing of it runs any more.
	InlineFenceAfter Seconds = 30
	// InlineCancelAfter is the silence after which its replica tells the handler to stop.
	InlineCancelAfter Seconds = 20
	// InlineExitAfter is the silence after which its replica exits, if the handler has not returned.
	InlineExitAfter Seconds = 25
	// InlineGrace is the longest that a handler gets to return where it is told to stop.
	InlineGrace Seconds = 10
	// InlineBeat is how often it beats.
	InlineBeat Seconds = 3
	// InlineSilence is the silence after which its lane is handed on without a word of its end. The grace period lies
	// within the fence time here.
	InlineSilence = InlineFenceAfter + HandOverMargin
)

// decideInline is Decide for an Attempt that runs in a replica: there is nothing to see in the cluster, and only the
// replica's own word, its start anew, or its silence, says that the handler has returned. Before it has started, a stored stop is enough:
// the start is refused from then on.
func decideInline(t Task, a Attempt, now time.Time) Decision {
	silence := now.Sub(a.lastSign())
	finish := func(why string) Decision {
		return Decision{Action: ActFinish, Verdict: Judge(t.Spec, a, Seen{}), Why: why}
	}
	switch {
	case a.State == Finished:
		return Decision{Action: ActWait, Why: "judged", Again: lookAgain}
	case a.Report != nil:
		return finish("its handler has returned")
	case !a.started() && a.Stop != StopNone:
		return finish("it never started, and cannot any more")
	case !a.started():
		return untilDeadline(t.Spec.StartDeadline.Duration(), now.Sub(a.ClaimedAt), "no replica had room to run it inline", Decision{
			Action: ActLaunch, Why: "a replica is to run it inline", Wait: a.Wait, Again: podOverdue,
		})
	case slices.ContainsFunc(a.Pods, func(p KnownPod) bool { return p.UID == a.PodUID && p.Ended }):
		return finish("its replica's container has terminated, and was started anew")
	case silence >= InlineSilence.Duration():
		return finish("its replica was not heard for fence time")
	}
	left := InlineSilence.Duration() - silence
	if a.Stop != StopNone {
		return Decision{Action: ActWait, Why: "asked to stop: " + string(a.Stop), Wait: WaitStop, Again: left}
	}
	ran := now.Sub(a.StartedAt)
	if ran >= t.Spec.RunDeadline.Duration()+InlineGrace.Duration() {
		return Decision{Action: ActStop, Stop: StopRunDeadline, Why: fmt.Sprintf("ran longer than %v", t.Spec.RunDeadline.Duration())}
	}
	return Decision{Action: ActWait, Why: "a handler is at work inline", Again: min(left, t.Spec.RunDeadline.Duration()+InlineGrace.Duration()-ran)}
}

// InlineBar names the first thing in s that keeps a Task from running inline, as a field of Spec on the wire and why;
// empty where nothing does. With must, the Task can run nowhere else, and need not be idempotent.
func InlineBar(s Spec, must bool) (field, reason string) {
	for _, bar := range []struct {
		is            bool
		field, reason string
	}{
		{!s.Idempotent && !must, "idempotent", "is needed"},
		{s.RunDeadline <= 0 || s.RunDeadline > InlineMost, "run_deadline", fmt.Sprintf("must be above 0 and at most %v seconds", float64(InlineMost))},
		{s.Image != "", "image", "needs a pod"},
		{s.ServiceAccount != "", "service_account", "needs a pod"},
		{len(s.Requests) > 0, "requests", "need a pod"},
		{len(s.Limits) > 0, "limits", "need a pod"},
		{len(s.NodeSelector) > 0, "node_selector", "needs a pod"},
		{!s.Pod.empty(), "pod", "needs a pod"},
	} {
		if bar.is {
			return bar.field, bar.reason
		}
	}
	return "", ""
}
