// Package proxy stands between a control plane and what it depends on, and breaks the talk on purpose: it keeps silent
// without closing, delays, refuses, cuts before and after what it forwards, and answers in the server's place. Faults are
// switched at run time and counted, and what is left to chance follows from a seed.
//
// Allowed imports: the standard library, the protocols' own libraries, e2e/authority; nothing of the product's: it must
// not share an error with what it tests.
package proxy
