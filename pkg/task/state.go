package task

// State is where a Task stands. Terminal states never change; a retry by hand is a new Task.
type State string

// The states of a Task. Finer views (delayed, retrying, waiting, launching, canceling) are computed, never stored.
const (
	Queued    State = "queued"    // accepted; waits for its lane, its queue or its back-off
	Running   State = "running"   // holds its lane
	Succeeded State = "succeeded" // terminal
	Failed    State = "failed"    // terminal
	Canceled  State = "canceled"  // terminal: nothing of it can run any more
)

// States lists every State in the order of a Task's life.
var States = []State{Queued, Running, Succeeded, Failed, Canceled}

// Terminal reports whether s never changes again.
func (s State) Terminal() bool {
	return s == Succeeded || s == Failed || s == Canceled
}

// May reports whether a Task may move from s to next.
func (s State) May(next State) bool {
	switch s {
	case Queued:
		return next == Running || next == Canceled || next == Failed
	case Running:
		return next == Queued || next.Terminal()
	case Succeeded, Failed, Canceled:
		return false
	}
	return false
}

// AttemptState is where an Attempt stands.
type AttemptState string

// The states of an Attempt. Any of them may go straight to Finished.
const (
	Leased   AttemptState = "leased"   // the row is committed; its Job may or may not exist
	Launched AttemptState = "launched" // its Job exists
	Started  AttemptState = "started"  // a runner won start; the handler may be at work
	Finished AttemptState = "finished" // judged; see Outcome and Reason
)

// May reports whether an Attempt may move from s to next.
func (s AttemptState) May(next AttemptState) bool {
	switch s {
	case Leased:
		return next == Launched || next == Started || next == Finished
	case Launched:
		return next == Started || next == Finished
	case Started:
		return next == Finished
	case Finished:
		return false
	}
	return false
}

// Phase is the finer view of a Task that is not terminal, computed on every read.
type Phase string

// The phases of a Task; for a terminal Task the phase is its State.
const (
	Delayed   Phase = "delayed"   // its first run_at lies ahead; it stands outside its lane
	Waiting   Phase = "waiting"   // see WaitReason
	Retrying  Phase = "retrying"  // back-off after an Attempt; it holds its place at the head of its lane
	Launching Phase = "launching" // claimed; no handler at work yet
	Working   Phase = "running"   // a handler is at work
	Canceling Phase = "canceling" // cancel asked; something of it may still run
)

// WaitReason says what a waiting Task waits for.
type WaitReason string

// What a Task can wait for.
const (
	WaitLane       WaitReason = "lane"               // an earlier Task of its lane
	WaitCap        WaitReason = "cap"                // the queue's or the namespace's cap
	WaitPaused     WaitReason = "paused"             // its queue is paused or draining
	WaitRate       WaitReason = "rate"               // its queue's launch rate
	WaitDependency WaitReason = "dependency"         // a Task named in `after`
	WaitQuota      WaitReason = "quota"              // room in a ResourceQuota of its namespace
	WaitLaunch     WaitReason = "launch_unavailable" // the cluster takes no Job at the moment
	WaitFrozen     WaitReason = "frozen"             // a freeze of its namespace, its queue or everything
	WaitHeld       WaitReason = "held"               // held by hand
	WaitKindOff    WaitReason = "kind_off"           // its kind is switched off
	WaitCapacity   WaitReason = "capacity"           // a node with room for its pod
	WaitStart      WaitReason = "start"              // its container to start: the note says what is in the way
	WaitStop       WaitReason = "stopping"           // its previous Attempt has not stopped yet
	WaitDispatch   WaitReason = "dispatch"           // nothing: it is next
)
