package httpapi

//go:generate go tool -modfile=../../../.tools/go.mod oapi-codegen --config server.yaml ../../../pkg/api/openapi.yaml
