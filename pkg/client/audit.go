package client

import (
	"context"
	"fmt"
	"net/http"

	"slipway.dev/slipway/pkg/api"
)

// Audit reads one page of who changed what, newest first.
func (c *Client) Audit(ctx context.Context, params api.ListAuditParams) (api.AuditPage, error) {
	var out api.AuditPage
	if _, err := c.read(ctx, true, &out, func() (*http.Response, error) { return c.wire.ListAudit(ctx, &params) }); err != nil {
		return api.AuditPage{}, fmt.Errorf("list the audit: %w", err)
	}
	return out, nil
}
