package store

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// AuditFilter narrows a list of changes; empty fields do not filter.
type AuditFilter struct {
	Namespace, Actor, Verb, Resource, Name string
	After, Before                          time.Time
	Cursor                                 string // AuditPage.Next of the page before
	Limit                                  int    // 1 to 500; 0: 50
}

// AuditEntry is one change.
type AuditEntry struct {
	ID                                     int64
	At                                     time.Time
	Actor, Verb, Resource, Name, Namespace string
	Peer, Request                          string
	Before, After                          []byte // JSON; nil: nothing
}

// AuditPage is one page of changes, newest first.
type AuditPage struct {
	Entries []AuditEntry
	Next    string // empty: that was all
}

// Audit lists who changed what, the newest first. As with Tasks, the SQL is built for the filters that are set.
func (s *Store) Audit(ctx context.Context, f AuditFilter) (AuditPage, error) {
	limit := pageSize(f.Limit)
	var page AuditPage
	err := s.narrowed(ctx, func(tx *gorm.DB) error {
		page = AuditPage{}
		db, err := f.narrow(tx.Table("slipway.audit"))
		if err != nil {
			return err
		}
		return db.Select("id, at, actor, verb, resource, name, namespace, peer, request, before, after").
			Order("id DESC").Limit(limit + 1).Find(&page.Entries).Error
	})
	if err != nil {
		return AuditPage{}, fmt.Errorf("list the audit: %w", err)
	}
	if len(page.Entries) > limit {
		page.Entries = page.Entries[:limit]
		last := page.Entries[limit-1]
		page.Next = cursor(last.At, last.ID)
	}
	return page, nil
}

// narrow adds the conditions of the filters that are set.
func (f AuditFilter) narrow(db *gorm.DB) (*gorm.DB, error) {
	for _, c := range []struct{ column, value string }{
		{"namespace", f.Namespace}, {"actor", f.Actor}, {"verb", f.Verb}, {"resource", f.Resource}, {"name", f.Name},
	} {
		if c.value != "" {
			db = db.Where(c.column+" = ?", c.value)
		}
	}
	if !f.After.IsZero() {
		db = db.Where("at >= ?", f.After)
	}
	if !f.Before.IsZero() {
		db = db.Where("at < ?", f.Before)
	}
	if f.Cursor != "" {
		_, id, err := parseCursor(f.Cursor)
		if err != nil {
			return nil, err
		}
		db = db.Where("id < ?", id)
	}
	return db, nil
}
