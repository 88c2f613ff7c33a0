// Command bench measures Slipway against the budgets of DESIGN 13 on rigs of its own. `r0` is API and database
// without a cluster: a private PostgreSQL with fsync on, and the store. `r2` is everything on a real node.
//
//	go run ./e2e/bench r0 r2
//
// Each figure is measured in three alternating rounds; raw samples, a table and out/latest.json are kept.
//
// Allowed imports: e2e/bench/report, e2e/bench/r2, controlplane/bench.
package main
