package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/pkg/api"
)

// Audit reads who changed what. ErrBadPosition refuses a cursor.
type Audit interface {
	Audit(ctx context.Context, f AuditFilter) (ChangePage, error)
}

// AuditFilter narrows a list of changes; empty fields do not filter.
type AuditFilter struct {
	Namespace, Actor, Verb, Resource, Name string
	After, Before                          time.Time
	Cursor                                 string
	Limit                                  int
}

// Changed is one change.
type Changed struct {
	At                                     time.Time
	Actor, Verb, Resource, Name, Namespace string
	Peer, Request                          string
	Before, After                          json.RawMessage
}

// ChangePage is one page of changes.
type ChangePage struct {
	Items []Changed
	Next  string
}

// ListAudit lists who changed what, newest first. Who may read one namespace sees what is about it and nothing else.
func (s *server) ListAudit(ctx context.Context, r ListAuditRequestObject) (ListAuditResponseObject, error) {
	ctx, known := plain(ctx)
	p := r.Params
	filter := AuditFilter{
		Namespace: given(p.Namespace), Actor: given(p.Actor), Verb: given(p.Verb), Resource: given(p.Resource), Name: given(p.Name),
		After: given(p.CreatedAfter), Before: given(p.CreatedBefore), Cursor: given(p.Cursor), Limit: limit(p.Limit),
	}
	list := auth.Access{Verb: "list", Group: auth.Group, Resource: "audit", Namespace: filter.Namespace}
	if err := s.gate.May(ctx, known.identity, list); err != nil {
		return nil, err
	}
	page, err := s.audit.Audit(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("list the audit: %w", err)
	}
	out := api.AuditPage{Items: make([]api.AuditEntry, len(page.Items)), Next: page.Next}
	for i, c := range page.Items {
		out.Items[i] = api.AuditEntry{
			At: c.At.UTC(), Actor: c.Actor, Verb: c.Verb, Resource: c.Resource, Name: c.Name, Namespace: c.Namespace,
			Peer: c.Peer, RequestID: c.Request, Before: c.Before, After: c.After,
		}
	}
	return ListAudit200JSONResponse(out), nil
}
