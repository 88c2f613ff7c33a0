// Package r1 measures Slipway on fake nodes: a control plane as it is released, PostgreSQL and etcd with fsync on, a real
// API server, controller-manager and scheduler. kwok plays the kubelets: a pod runs and ends at once, and no program does,
// so what is measured is the way there and back, not a runner.
//
// What happened in the cluster is read from the API server's audit log: the moments at which it took a request and at
// which it answered, and who asked. The bench asks little itself while it measures.
//
// Allowed imports: e2e/bench/report, e2e/bench/seat, e2e/cluster/local, e2e/rig, pkg/api, pgx, client-go.
package r1
