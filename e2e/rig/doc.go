// Package rig runs Slipway on real parts for one test: a cluster that the test process shares, a private PostgreSQL,
// and control planes as processes of this machine that hold exactly the rights of manifests/. What a test can break is
// there to be broken: replicas are killed, the database is stopped, the gate between runners and control plane is cut.
//
// In profile api there is no node: the test plays the kubelet and the runner. In profile node everything is real.
//
// Allowed imports: the rig's own parts (e2e/...), pkg/..., client-go.
package rig
