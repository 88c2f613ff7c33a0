// Package task is Slipway's vocabulary: what a Task, an Attempt, a Kind and an Outcome are, which moves between
// states are legal, how an Attempt is judged and when it is tried again. Everything that decides is a pure function
// with time as an argument; nothing here talks to a database, a cluster or a clock.
//
// Read it first. The words, one per thing:
//
//   - A [Task] is one requested unit of work with parameters, from submit to a terminal [State].
//   - An [Attempt] is one numbered try of a Task: at most one Kubernetes Job, or a goroutine of the control plane.
//   - A [Kind] is the name of what is done, with its defaults. Its code is a handler.
//   - A queue is a named line with caps. A lane is the key under which work is ordered, one live Attempt at a time.
//   - A fence is a number from one global sequence, drawn at every claim of a lane; every write on behalf of an
//     Attempt carries it, and a stale one changes nothing.
//   - An [Outcome] is why an Attempt ended; its [Reason] is the machine-readable cause.
//   - [Decide] reads what is known of an Attempt and what is [Seen] in the cluster, and says what to do.
//   - [After] says what an ended Attempt makes of its Task.
//
// Allowed imports: the standard library.
package task
