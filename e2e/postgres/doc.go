// Package postgres runs a private PostgreSQL server from the host's binaries, for tests and benchmarks: its own
// folder, a unix socket, a free port, never as root. Nothing of it is left after Stop.
//
// Allowed imports: the standard library.
package postgres
