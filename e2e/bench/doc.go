// Command bench measures Slipway against the budgets of DESIGN 13 on rigs of its own. `r0` is the database
// without a cluster: a private PostgreSQL with fsync on, and the store, beside River. `r1` is everything but nodes, which
// kwok plays, beside a bare loop that creates Jobs and watches them. `r2` is everything on a real node.
//
//	go run ./e2e/bench r0 r1 r2
//	go run ./e2e/bench check     # the table and its verdicts again, from the samples that were kept
//
// Each figure is measured in three alternating rounds. out/ keeps the raw samples, and latest.json, which is computed from
// them. BENCH_ONLY=text plays only the scenes whose name holds it.
//
// Allowed imports: e2e/bench/report, e2e/bench/r1, e2e/bench/r2, controlplane/bench.
package main
