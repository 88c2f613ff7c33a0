// Package promises holds the README to its word: each sentence of "What Slipway promises" links to the test that proves
// it, and that test is there and runs.
//
// Allowed imports: the standard library.
package promises
