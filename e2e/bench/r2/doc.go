// Package r2 measures what takes a real kubelet: a whole local node, and a control plane as it is released.
//
// Allowed imports: e2e/bench/report, e2e/bench/seat, e2e/cluster/local, e2e/rig, pkg/api, client-go.
package r2
