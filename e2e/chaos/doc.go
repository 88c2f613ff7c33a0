// Package chaos breaks everything that Slipway stands on, at random, while random Tasks run, and lets e2e/checker judge
// what came of it. `make chaos MINUTES=10 SEED=…` prints one line per kind of fault and one closing line; `make test`
// runs one minute of it.
//
// Three replicas of the real control plane, an API server, a database, and hollow nodes below (e2e/hollow: what is
// played there is said there), because a real kubelet starts too few pods a second. The handlers are processes that tell
// e2e/recorder what they do. Each replica has its own fault proxies before the API server and before the database.
//
// What is drawn follows from the seed; when it takes place does not, because everything runs at once.
//
// Shrunk: fence_after to 15 s, the least that a Task may ask for; heartbeats to 2 s; the sweep of orphans to 10 s.
//
// Allowed imports: the standard library, client-go, pgx, the rig's parts.
package chaos
