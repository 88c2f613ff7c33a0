// Package api is Slipway's HTTP API on the wire: openapi.yaml and the types generated from it. The document is the
// source; `go generate ./pkg/api` renews the types. examples/runner.py speaks the runner protocol in another language.
//
// Allowed imports: the standard library.
package api

import _ "embed" // for Document

// Document is openapi.yaml as it is served at /v1/openapi.yaml.
//
//go:embed openapi.yaml
var Document []byte
