package client

//go:generate go tool -modfile=../../.tools/go.mod oapi-codegen --config client.yaml ../api/openapi.yaml
