package task

// Outcome is why an Attempt ended.
type Outcome string

// The outcomes of an Attempt.
const (
	OutcomeSucceeded Outcome = "succeeded" // the runner's report, or exit 0 where no runner is inside
	OutcomeFailed    Outcome = "failed"    // report, non-zero exit, signal, out of memory
	OutcomeRejected  Outcome = "rejected"  // the handler says permanent, or the spec was refused as invalid
	OutcomeTimedOut  Outcome = "timed_out" // run deadline or start deadline
	OutcomeLost      Outcome = "lost"      // evicted, preempted, node gone, Job or pod deleted, no report
	OutcomeCanceled  Outcome = "canceled"  // a cancel was honoured
)

// Outcomes lists every Outcome.
var Outcomes = []Outcome{
	OutcomeSucceeded, OutcomeFailed, OutcomeRejected, OutcomeTimedOut, OutcomeLost, OutcomeCanceled,
}

// Reason is the machine-readable cause of an end. Handlers may report their own; the ones below are Slipway's.
type Reason string

// Causes that Slipway itself records.
const (
	ReasonNone            Reason = ""
	ReasonExitCode        Reason = "exit_code"         // the command ended with a code other than 0
	ReasonSignal          Reason = "signal"            // the command was ended by a signal
	ReasonOOMKilled       Reason = "oom_killed"        // a process of the container was killed for memory, whatever the exit code
	ReasonPanic           Reason = "panic"             // the handler panicked
	ReasonError           Reason = "error"             // the handler returned an error without a reason of its own
	ReasonEvicted         Reason = "evicted"           // eviction, drain or disruption
	ReasonPreempted       Reason = "preempted"         // made room for a more important pod
	ReasonNodeLost        Reason = "node_lost"         // the node went away
	ReasonDeleted         Reason = "deleted"           // Job or pod deleted by somebody else
	ReasonTerminated      Reason = "terminated"        // the runner was told to stop from outside; the pod says by whom
	ReasonNoReport        Reason = "no_report"         // the pod ended without an answer that can be trusted
	ReasonUnreachable     Reason = "unreachable"       // the runner could not reach the control plane before start
	ReasonHeartbeat       Reason = "heartbeat"         // the runner stopped itself: no acknowledged heartbeat for fence_after
	ReasonAdmission       Reason = "admission"         // the node refused the pod
	ReasonImagePull       Reason = "image_pull"        // the registry has no such image, or does not give it to us
	ReasonRegistry        Reason = "registry"          // the registry that has the image cannot be reached
	ReasonConfig          Reason = "config"            // a Secret, ConfigMap, key or image name in the pod is wrong
	ReasonUnschedulable   Reason = "unschedulable"     // no node takes the pod
	ReasonQuota           Reason = "quota"             // a ResourceQuota has no room
	ReasonInvalid         Reason = "invalid"           // the API server refused the spec as invalid or forbidden
	ReasonCannotRun       Reason = "cannot_run"        // the command does not exist or cannot be executed
	ReasonNamespace       Reason = "namespace_gone"    // the namespace does not exist or is being deleted
	ReasonForceReleased   Reason = "force_released"    // somebody took its lane from it by hand
	ReasonNameTaken       Reason = "name_taken"        // another's Job bears the name: the next number is taken
	ReasonRunDeadline     Reason = "deadline"          // the run deadline passed
	ReasonStartDeadline   Reason = "start"             // nothing started before the start deadline
	ReasonQueueDeadline   Reason = "queue_deadline"    // not claimed before the queue deadline
	ReasonCanceled        Reason = "cancel"            // somebody asked
	ReasonSuperseded      Reason = "superseded"        // a newer Task of the lane replaced it
	ReasonDependency      Reason = "dependency_failed" // a Task that it waited for did not succeed
	ReasonChildFailed     Reason = "child_failed"      // a child Task did not succeed
	ReasonInterrupted     Reason = "interrupted_not_idempotent"
	ReasonUnknownKind     Reason = "unknown_kind"     // the runner has no handler of that name
	ReasonReportMalformed Reason = "report_malformed" // the runner's answer could not be read
)

// StopReason is why Slipway itself asked an Attempt to stop. Stored before the end, it decides the outcome.
type StopReason string

// Why an Attempt is stopped.
const (
	StopNone          StopReason = ""
	StopCancel        StopReason = "cancel"
	StopSuperseded    StopReason = "superseded"
	StopRunDeadline   StopReason = "run_deadline"
	StopStartDeadline StopReason = "start_deadline"
	StopQuota         StopReason = "quota"   // the pod is refused for quota: the Job is taken back, the Task waits in its queue
	StopInvalid       StopReason = "invalid" // the pod can never be created as it is
	// StopEnded is no reason of its own: the work had ended by itself, without a mark on its pod, and what stood beside
	// it ran on. What is left is stopped, and the main container's own end decides.
	StopEnded StopReason = "ended"
)

// Budget names what an Outcome spends.
type Budget string

// What the end of an Attempt spends.
const (
	SpendsNothing Budget = ""
	SpendsRetry   Budget = "retry" // the user's attempts
	SpendsLost    Budget = "lost"  // the infrastructure's own budget
)

// Verdict is how an Attempt ended, and why we say so.
type Verdict struct {
	Outcome Outcome
	Reason  Reason
	Message string // for people; cleaned of what cannot be stored, at most 4 KiB
	Rule    string // the rule of Decide that fired, for `slipway explain`
	Spends  Budget
	// Started tells whether a handler may have been at work: it decides whether a Task that is not idempotent may
	// be tried again.
	Started bool
	// Silent tells that the handler was cut off without a word of its own: what it had begun may go on. A Task that is tried
	// again takes it over; the end of one that is not says so.
	Silent   bool
	ExitCode *int
	// Heard tells that the runner's report was there when the verdict was made. A verdict made without it must not be
	// stored once there is one.
	Heard bool
	// Stop is the stop that stood on the Attempt when the verdict was made. A verdict made under another one must not be
	// stored: a stop that was stored before the end decides.
	Stop StopReason
	// RetryAfter is the handler's own wish for the next try; zero leaves it to the policy.
	RetryAfter Seconds
}
