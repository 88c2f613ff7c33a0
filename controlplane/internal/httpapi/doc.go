// Package httpapi is the HTTP edge: strict requests in, domain calls to the interfaces that it declares, bounded
// answers out. Every route stands in routes.go; server.gen.go is generated from pkg/api/openapi.yaml.
//
// Allowed imports: pkg/task, pkg/api, kinds, auth, gin, kin-openapi.
package httpapi
