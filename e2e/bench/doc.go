// Command bench measures Slipway against the budgets of DESIGN 13 on rigs of its own. `r0` is API and database
// without a cluster: a private PostgreSQL with fsync on, and the store.
//
//	go run ./e2e/bench r0
//
// Each figure is measured in three alternating rounds; raw samples, a table and out/latest.json are kept.
//
// Allowed imports: e2e/bench/report, controlplane/bench.
package main
