package api

// The types stay here; the server goes to httpapi and the client to pkg/client, so that nobody imports more than needed.
//go:generate go tool -modfile=../../.tools/go.mod oapi-codegen --config models.yaml openapi.yaml
//go:generate go tool -modfile=../../.tools/go.mod oapi-codegen --config server.yaml openapi.yaml
//go:generate go tool -modfile=../../.tools/go.mod oapi-codegen --config client.yaml openapi.yaml
