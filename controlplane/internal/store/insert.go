package store

import (
	"encoding/json"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

type insertItem struct {
	Ord       int               `json:"ord"`
	ID        string            `json:"id"`
	Lane      *string           `json:"lane"`
	Queue     string            `json:"queue"`
	Namespace string            `json:"namespace"`
	Kind      string            `json:"kind"`
	Name      string            `json:"name"`
	Mode      task.Mode         `json:"mode"`
	Class     task.Class        `json:"class"`
	Executor  task.Executor     `json:"executor"`
	Params    json.RawMessage   `json:"params"`
	Spec      task.Spec         `json:"spec"`
	Labels    map[string]string `json:"labels"`
	Outside   *string           `json:"outside"`
	RunAt     *time.Time        `json:"run_at"`
	Delay     float64           `json:"delay"`
	QueueIn   float64           `json:"queue_in"`
	ParentID  *string           `json:"parent_id"`
	Children  int               `json:"children"`
	RetryOf   *int64            `json:"retry_of"`
	Root      *int64            `json:"root"`
	Replaces  []string          `json:"replaces"`
	RunIf     RunIf             `json:"run_if"`
	Schedule  *string           `json:"schedule"`
	FireAt    *time.Time        `json:"fire_at"`
	Front     *int64            `json:"front"`
	Absorbed  int               `json:"absorbed"`
	By        string            `json:"by"`
}

type insertDep struct {
	Ord      int     `json:"ord"`
	NeedsKey *int64  `json:"needs_key"`
	NeedsID  *string `json:"needs_id"`
}

// insert stores the entries that are not absorbed.
func (w *submit) insert(tx *gorm.DB) error {
	var items []insertItem
	deps, nudge := []insertDep{}, []int{}
	for _, e := range w.fresh() {
		if e.into != nil || e.tail != nil {
			continue
		}
		items = append(items, w.insertItem(e))
		seen := map[string]bool{}
		for _, n := range e.needs {
			n = w.became(n)
			if seen[n.id] {
				continue // two were absorbed by one
			}
			seen[n.id] = true
			d := insertDep{Ord: e.ord, NeedsKey: n.key}
			if n.key == nil {
				d.NeedsID = &n.id
			}
			deps = append(deps, d)
		}
		if e.settle {
			nudge = append(nudge, e.ord)
		}
		if lane := w.lanes[e.lane]; e.outside == "" && (lane == nil || lane.Holder == nil) {
			w.effects.queues = append(w.effects.queues, queueOf(e))
		}
	}
	if len(items) == 0 {
		return nil
	}
	audits, from := []facts{}, originOf(tx.Statement.Context)
	for _, a := range w.audits() {
		audits = append(audits, facts{
			"peer": from.Peer, "request": from.Request, "verb": a.verb, "name": a.name, "namespace": a.namespace, "after": a.after,
		})
	}
	var rows []insertedRow
	err := query(tx, "enqueue/insert", args{
		"items": jsonOf(items), "deps": jsonOf(deps), "nudge": jsonOf(nudge), "by": w.batch.Caller, "audit": jsonOf(audits),
	}, &rows)
	switch {
	case sqlState(err) == uniqueViolation && constraint(err) == "tasks_fire":
		return conflict(Conflict{Item: -1, Reason: ConflictFired})
	case sqlState(err) == uniqueViolation && constraint(err) == "tasks_id_key":
		return FieldErrors{{"/items", "an id is in use"}}
	case err != nil:
		return err
	}
	for _, r := range rows {
		w.rows[r.Ord] = r
	}
	for _, i := range items {
		if i.Outside == nil {
			rank := w.rows[i.Ord].EligibleAt.Add(time.Duration(i.Class) * task.ClassStep)
			w.effects.ready = append(w.effects.ready, readyLane{queue: i.Queue, namespace: i.Namespace, rank: rank})
		}
	}
	return nil
}

func (w *submit) insertItem(e *entry) insertItem {
	t := e.item.Task
	newest := e // what was absorbed last gives the parameters, the most urgent the class
	for _, o := range w.all {
		if o.into == e {
			newest = o
			t.Class = min(t.Class, o.item.Task.Class)
		}
	}
	i := insertItem{
		Ord: e.ord, ID: e.id, Queue: queueOf(e), Namespace: t.Namespace, Kind: t.Kind, Name: newest.item.Task.Name,
		Mode: modeOf(e), Class: t.Class, Executor: executorOf(e), Params: paramsOf(newest), Spec: newest.item.Task.Spec,
		Labels: t.Labels, Delay: e.item.Delay.Seconds(), QueueIn: float64(newest.item.Task.Spec.QueueDeadline), Children: len(e.item.Children),
		RetryOf: e.retryOf, Root: e.root, RunIf: e.item.RunIf, Front: e.front, Absorbed: e.absorbed, By: e.item.By,
	}
	if i.RunIf == "" {
		i.RunIf = AllSucceeded
	}
	if e.lane != "" {
		i.Lane = &e.lane
	}
	if e.outside != "" {
		i.Outside = &e.outside
		if e.item.OnConflict == task.ConflictReplace {
			i.Replaces = e.item.Supersedes // done when it enters
		}
	}
	if !e.item.RunAt.IsZero() {
		i.RunAt = &e.item.RunAt
	}
	if e.parent >= 0 {
		i.ParentID = &w.all[e.parent].id
	}
	if e.item.Schedule != "" {
		i.Schedule, i.FireAt = &e.item.Schedule, &e.item.FireAt
	}
	return i
}
