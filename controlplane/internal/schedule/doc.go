// Package schedule says when recurring work is due, and what becomes of every instant that was due (DESIGN 8). It is
// pure: time and state are arguments, nothing here reads a clock, a database, the environment or the machine's zone data.
//
// # The words
//
//   - A [Rule] is when: a cron expression of five fields in a zone, or an interval counted from an anchor.
//   - An [Instant] is one moment that a Rule names, with the wall time it was meant for.
//   - A [Policy] is what to do about instants that came too late or meet a run that has not ended.
//   - A [Blackout] is a time in which nothing fires.
//   - A [Plan] is what one look at a [Schedule] decides: a ledger line per instant, and when to look again.
//
// # The rules
//
//  1. A zone is a name of the built-in zone data, never the machine's. An instant is in UTC and whole seconds.
//  2. An entry with *, ? or a step in minute or hour is counted in real intervals: it fires whenever the wall clock
//     shows a time that it names, so twice in the hour that autumn repeats, and not at all for times that spring leaves
//     out. The ledger says gap for those. Every other entry names fixed times; a full set written out (0-59) too.
//  3. A fixed time that spring leaves out fires once, at the first instant after the gap. Several of them, and a time that
//     falls on that instant anyway, are one run. A fixed time that autumn repeats fires once, at the first pass.
//  4. Day of month and day of week, where both are limited, are OR: either is enough. A step limits (*/2), a lone * does not.
//  5. An interval is counted from its anchor, never from a start of a process: anchor, anchor + every, and so on.
//  6. A look settles every instant since the last one that was settled, once, in order. Each gets a ledger line with its
//     [Outcome] and the reason. More than [MaxLines] are not listed one by one: the newest are, the rest is counted.
//  7. Only what lies after both Last and Since is looked at. A clock that is set back therefore repeats nothing, and time
//     spent disabled, or under an earlier expression, owes nothing.
//  8. The newest due instant is on time as long as it is within the window; all older ones are behind, and the missed policy
//     decides over them: skip leaves them out, latest runs the newest only, all runs up to N, within runs those not older
//     than W. Then the overlap policy looks at what has not ended: forbid, allow, replace, queue.
//  9. What falls into a blackout is never made up. What was due before one and comes late into it waits for its end.
//  10. Spread moves a run later by a stable part of itself, never as far as the next instant: runs never change places.
//
// Allowed imports: the standard library and the parser of robfig/cron.
package schedule
