// Package cli holds the test that takes the command line its whole round, on a real node, as a user of one namespace who
// knows no address but the API server's.
//
// Allowed imports: e2e/rig, e2e/cluster/local, manifests, pkg/api and client-go.
package cli
