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
	namespace                   string // empty: it is about all of them
	before, after               any    // small: never parameters or results
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
		"namespace": a.namespace, "before": auditJSON(a.before), "after": auditJSON(a.after),
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

// audits tell of a submit: one row for each of its namespaces, since who may read one need not read the others. A batch
// is named after its first Task there, with all their ids.
func (w *submit) audits() []audit {
	var all []audit
	ids, of := map[string][]string{}, map[string][]string{}
	for _, e := range w.fresh() {
		if e.parent >= 0 {
			continue
		}
		t := e.item.Task
		if ids[t.Namespace] == nil {
			all = append(all, w.auditOf(e))
		}
		ids[t.Namespace] = append(ids[t.Namespace], e.taskID())
		if e.item.Once {
			of[t.Namespace] = append(of[t.Namespace], t.RetryOf)
		}
	}
	if len(w.batch.Items) > 1 {
		for i, a := range all {
			all[i].verb, all[i].after = "batch", facts{"tasks": ids[a.namespace]}
			if repeated := of[a.namespace]; repeated != nil {
				all[i].verb, all[i].after = "retry", facts{"tasks": ids[a.namespace], "retry_of": repeated}
			}
		}
	}
	return all
}

// taskID is the Task that an entry became, or that absorbed it.
func (e *entry) taskID() string {
	switch {
	case e.tail != nil:
		return e.tailID
	case e.into != nil:
		return e.into.id
	}
	return e.id
}

func (w *submit) auditOf(e *entry) audit {
	t := e.item.Task
	a := audit{actor: w.batch.Caller, verb: "create", resource: "tasks", name: e.taskID(), namespace: t.Namespace}
	told := facts{"kind": t.Kind, "namespace": t.Namespace}
	if e.lane != "" {
		told["lane"] = e.lane
	}
	if t.RetryOf != "" {
		a.verb, told["retry_of"] = "retry", t.RetryOf
	} else if e.tail != nil {
		told["coalesced"] = true
	}
	a.after = told
	return a
}

// audit writes the rows of a submit that inserted nothing; an insert brings its own.
func (w *submit) audit(tx *gorm.DB) error {
	if len(w.rows) > 0 {
		return nil
	}
	for _, a := range w.audits() {
		if err := a.write(tx); err != nil {
			return err
		}
	}
	return nil
}
