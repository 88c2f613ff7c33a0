package httpapi

import (
	"bytes"
	"context"

	"slipway.dev/slipway/pkg/api"
)

// GetOpenAPI serves the document that this package is generated from.
func (s *server) GetOpenAPI(context.Context, GetOpenAPIRequestObject) (GetOpenAPIResponseObject, error) {
	return GetOpenAPI200ApplicationYamlResponse{Body: bytes.NewReader(api.Document), ContentLength: int64(len(api.Document))}, nil
}
