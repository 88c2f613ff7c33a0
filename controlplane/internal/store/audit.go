package store

import (
	"context"

	"gorm.io/gorm"
)

// Origin is where a change comes from; the audit keeps it.
type Origin struct {
	Peer    string // address of the caller
	Request string // id of the request
}

type originKey struct{}

// WithOrigin adds to a context where the changes made under it come from.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

func originOf(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return Origin{Peer: clean(o.Peer, maxOrigin), Request: clean(o.Request, maxOrigin)}
}

const maxOrigin = 128

// audit is one row of who changed what. An empty verb says that nothing changed: no row.
type audit struct {
	actor, verb, resource, name string
	before, after               any // small: never parameters or results
}

const maxAudit = 64 << 10

// write stores the row; it belongs into the transaction of the change.
func (a audit) write(tx *gorm.DB) error {
	if a.verb == "" {
		return nil
	}
	from := originOf(tx.Statement.Context)
	_, err := exec(tx, "queue/audit", args{
		"actor": a.actor, "peer": from.Peer, "request": from.Request, "verb": a.verb, "resource": a.resource, "name": a.name,
		"before": auditJSON(a.before), "after": auditJSON(a.after),
	})
	return err
}

func auditJSON(v any) *string {
	if v == nil {
		return nil
	}
	text := string(cleanJSON([]byte(jsonOf(v)), maxAudit))
	return &text
}

// audited makes a change and its audit row in one transaction; fn says what it changed.
func (s *Store) audited(ctx context.Context, a audit, fn func(tx *gorm.DB, e *effects, a *audit) error) error {
	var e effects
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		e = effects{}
		row := a
		if err := fn(tx, &e, &row); err != nil {
			return err
		}
		return row.write(tx)
	})
	if err == nil {
		s.announce(e)
	}
	return err
}

// facts are what an audit row tells of one side of a change.
type facts map[string]any

// auditOf tells of a submit. A batch is one row, named after its first Task, with all their ids.
func (w *submit) auditOf() audit {
	var ids []string
	for _, e := range w.fresh() {
		switch {
		case e.parent >= 0:
		case e.tail != nil:
			ids = append(ids, e.tailID)
		case e.into != nil:
			ids = append(ids, e.into.id)
		default:
			ids = append(ids, e.id)
		}
	}
	first := w.fresh()[0]
	t := first.item.Task
	a := audit{actor: w.batch.Caller, verb: "create", resource: "tasks", name: ids[0]}
	told := facts{"kind": t.Kind, "namespace": t.Namespace}
	if first.lane != "" {
		told["lane"] = first.lane
	}
	switch {
	case len(w.batch.Items) > 1:
		a.verb, told = "batch", facts{"tasks": ids}
	case t.RetryOf != "":
		a.verb, told["retry_of"] = "retry", t.RetryOf
	case first.tail != nil:
		told["coalesced"] = true
	}
	a.after = told
	return a
}

// audit writes the row of a submit that inserted nothing; an insert brings its own.
func (w *submit) audit(tx *gorm.DB) error {
	if len(w.rows) > 0 {
		return nil
	}
	return w.auditOf().write(tx)
}
