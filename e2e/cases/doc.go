// Package cases replays failures that others met in the field, one file per case, named by its number. `make cases`
// prints one line per case and the totals.
//
// ONLY=4,26 runs some of them. FULL=1 takes the times as they were reported; without it each case says what it shrinks.
package cases
