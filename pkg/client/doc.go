// Package client is the Go client of Slipway's API.
//
// Allowed imports: pkg/api, pkg/task and the standard library.
package client
