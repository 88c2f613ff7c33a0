// Package auth says who is calling and whether they may. Identity is a token that Kubernetes reviews, permission is
// Kubernetes RBAC on the group slipway.dev. Both answers are kept for at most ten seconds.
//
// Users and runners have audiences of their own, and neither is accepted for the other. After its start a runner is
// known by a session key, an HMAC over attempt, fence and pod uid, so that a heartbeat costs no review.
//
// Allowed imports: pkg/task and the standard library.
package auth
