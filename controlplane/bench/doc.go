// Package bench holds the rigs that need the control plane's own parts; e2e/bench runs them. It stands here because
// the store is internal to the control plane, and no binary that is shipped imports it.
//
// Allowed imports: e2e/postgres, e2e/bench/report, e2e/bench/plain, controlplane/internal/store, pkg/task.
package bench
