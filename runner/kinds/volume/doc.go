// Package volume does what Slipway does to volumes: grow one, change its class, take, delete and clean up snapshots.
//
// What Kubernetes shows decides, never what was asked: a volume has grown when its status says so and nothing is pending
// on it. Each handler may be repeated after any interruption: names follow from the Task, and what is done already is seen
// and not done again. Where a handler fails, runs out of time or is canceled, it takes back what it asked for, or says
// what it leaves behind.
//
// Waits are watches, renewed by a read every rereadEvery; each says what it waits for, as progress and in the log.
//
// The rights of each kind stand in manifests/rights.
//
// Allowed imports: pkg/handler, pkg/retention, pkg/task and client-go's dynamic client, which costs the runner no typed API.
package volume
