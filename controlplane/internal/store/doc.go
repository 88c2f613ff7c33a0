// Package store is the only SQL of Slipway: everything persists through one GORM handle over one pgx pool. Reads and
// entity CRUD use GORM models; the five hot operations (enqueue, claim, finish, cancel, settle) are .sql files of
// named statements that run on GORM's transactions.
//
// Every transaction takes its locks in the order of DESIGN 3.13, which is why a mixed run has no deadlocks:
// idempotency rows, sorted → limit rows, sorted → queue row (claim only) → lane rows (one; many only in Enqueue, sorted) →
// task rows under their lane's lock, by seq → attempt, lease and pod rows → append-only events and nudges. What a decision
// needs is read in a later statement than the lock it depends on, and stamps are taken after the lane's lock.
//
// Allowed imports: pkg/task, migrations, controlplane/internal/failpoint, GORM, pgx, goose.
package store
