// Package logs finds the log of an Attempt: live from its pod while that is there, else the tail that was kept. Where
// there is neither it says why, in its own words, and never gives another Attempt's text instead. Reading a log
// decides nothing.
//
// Allowed imports: pkg/task and the standard library.
package logs
