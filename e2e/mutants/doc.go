// Command mutants breaks Slipway on purpose, one rule at a time, and sees that the test which holds the rule notices.
//
// Each NN-name.patch says above its diff what it breaks and which test must fail:
//
//	Breaks: a heartbeat with a stale fence is taken.
//	Caught by: ./controlplane/internal/store TestAStaleFence
//
// A mutant is caught if its test passes without the patch, the patched tree builds, and the test then fails. The work
// is done on a copy of the tree.
//
// Allowed imports: the standard library.
package main
