package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/controlplane/internal/failpoint"
	"slipway.dev/slipway/pkg/task"
)

// Enqueue stores a batch: all of it or nothing. An error is a *ConflictError, a *FullError, FieldErrors or trouble of
// the database.
func (s *Store) Enqueue(ctx context.Context, b Batch) ([]Enqueued, error) {
	if len(b.Items) == 0 {
		return nil, FieldErrors{{"/items", "is empty"}}
	}
	all, refused := flatten(b)
	if len(refused) > 0 {
		return nil, refused
	}
	w := &submit{store: s, batch: b, all: all}
	err := s.settled(ctx, func(tx *gorm.DB) error {
		w.reset()
		return w.run(tx)
	}, func(ctx context.Context) (bool, error) { return w.happened(ctx) })
	if err != nil && !errors.Is(err, errDryRun) {
		return nil, err
	}
	s.announce(w.effects) // of a dry run too: a claim may have passed by the lanes that it held
	if len(w.rows) > 0 {
		failpoint.Hit("enqueue-after-commit")
	}
	return w.answer(ctx)
}

// submit is one Enqueue under way.
type submit struct {
	store *Store
	batch Batch
	all   []*entry

	now      time.Time               // the database's, where a run_at was given
	limits   map[string]StorageLimit // of storage, by namespace, locked
	repeated map[int]answer
	needed   map[string]newLane // lanes of the stored Tasks that entries wait for
	lanes    map[string]*laneRow
	standing map[string]*standingRow
	rows     map[int]insertedRow
	show     []string // lanes whose queued Tasks changed otherwise than by an insert
	effects  effects
}

// answer is what an idempotency row keeps of one item.
type answer struct {
	ID     string        `json:"id"`
	Result EnqueueResult `json:"result"`
}

type laneRow struct {
	Key, Queue, Namespace, Kind string
	Private                     bool
	Holder                      *int64
	LastSeq                     int64
	Head                        *int64
	Now                         time.Time
}

type standingRow struct {
	Lane         string
	HolderID     *string
	Tail         *int64
	TailID       *string
	TailKind     *string
	TailMode     *string
	TailChildren *int
	FirstID      *string

	last *entry // the newest of this batch in the lane
}

type insertedRow struct {
	Ord               int
	Key, Seq          int64
	Lane              string
	RunAt, EligibleAt time.Time
	At                time.Time
}

func (w *submit) reset() {
	w.repeated, w.lanes, w.standing, w.rows = map[int]answer{}, map[string]*laneRow{}, map[string]*standingRow{}, map[int]insertedRow{}
	w.needed = map[string]newLane{}
	w.show, w.effects, w.now, w.limits = nil, effects{}, time.Time{}, nil
	for _, e := range w.all {
		e.outside, e.needs, e.settle, e.retryOf, e.root = "", nil, false, nil, nil
		e.front, e.absorbed, e.into, e.tail, e.tailID = nil, 0, nil, nil, ""
	}
}

// run is the transaction, in the order of the locks.
func (w *submit) run(tx *gorm.DB) error {
	for _, step := range []func(*gorm.DB) error{
		w.remember, w.once, w.limit, w.findNeeds, w.admit, w.epochs, w.gates, w.lock, w.checkNeeds, w.read, w.place, w.replace, w.fit, w.insert, w.absorb, w.reserve,
		w.audit, w.reanswer,
	} {
		if err := step(tx); err != nil {
			return err
		}
		if len(w.repeated) == len(w.batch.Items) {
			return nil
		}
	}
	if w.batch.DryRun {
		return errDryRun
	}
	failpoint.Hit("enqueue-before-commit")
	return nil
}

// errDryRun takes back a submit that was only to be tried.
var errDryRun = errors.New("a dry run")

// fresh are the entries that were not seen before under their idempotency key.
func (w *submit) fresh() []*entry {
	if len(w.repeated) == 0 {
		return w.all
	}
	var live []*entry
	for _, e := range w.all {
		if _, again := w.repeated[e.top]; !again {
			live = append(live, e)
		}
	}
	return live
}

// entering are the fresh entries that go into a lane that others share.
func (w *submit) entering() []*entry {
	return slices.DeleteFunc(slices.Clone(w.fresh()), func(e *entry) bool { return e.outside != "" || e.lane == "" })
}

// reanswer corrects what the keys keep, where an item was absorbed by another Task.
func (w *submit) reanswer(tx *gorm.DB) error {
	if !slices.ContainsFunc(w.all, func(e *entry) bool { return e.tail != nil || e.into != nil }) {
		return nil
	}
	rows := slices.DeleteFunc(w.keys(), func(r keyRow) bool { _, again := w.repeated[r.tops[0]]; return again })
	if len(rows) == 0 {
		return nil
	}
	_, err := exec(tx, "enqueue/answer", args{"caller": w.batch.Caller, "keys": jsonOf(rows)})
	return err
}

// happened says, after a commit that nobody answered, whether it was done: by our own ids.
func (w *submit) happened(ctx context.Context) (bool, error) {
	for _, e := range w.all {
		if e.into != nil || e.tail != nil {
			continue
		}
		if _, again := w.repeated[e.top]; again {
			continue
		}
		var n int64
		err := w.store.db.WithContext(ctx).Model(&taskRow{}).Where("id = ?", e.id).Count(&n).Error
		return n > 0, classify(ctx, err)
	}
	return len(w.repeated) == len(w.batch.Items), nil // all absorbed: doing it again changes nothing
}

// answer gives one Enqueued for each item, in the order of the batch.
func (w *submit) answer(ctx context.Context) ([]Enqueued, error) {
	out := make([]Enqueued, len(w.batch.Items))
	var read []string
	for _, e := range w.all {
		if e.parent >= 0 {
			continue
		}
		again, seen := w.repeated[e.top]
		switch {
		case seen && again.ID == e.id, e.tail != nil && e.tailID == e.id: // our own, from before a commit that nobody answered
			out[e.top] = Enqueued{Task: task.Task{ID: e.id}, Result: Created}
		case seen:
			out[e.top] = Enqueued{Task: task.Task{ID: again.ID}, Result: Repeated}
		case e.tail != nil:
			out[e.top] = Enqueued{Task: task.Task{ID: e.tailID}, Result: Coalesced}
		case e.into != nil:
			out[e.top] = Enqueued{Task: task.Task{ID: e.into.id}, Result: Coalesced}
		default:
			out[e.top] = Enqueued{Task: task.Task{ID: e.id}, Result: Created}
			if _, known := w.rows[e.ord]; known {
				out[e.top].Task = w.created(e)
				continue
			}
		}
		read = append(read, out[e.top].Task.ID)
	}
	if len(read) == 0 {
		return out, nil
	}
	found, err := w.store.tasksByID(ctx, read)
	if err != nil {
		return nil, err
	}
	for i := range out {
		if t, ok := found[out[i].Task.ID]; ok {
			out[i].Task = t
		}
	}
	return out, nil
}

// created is the Task as it was stored.
func (w *submit) created(e *entry) task.Task {
	t, r := e.item.Task, w.rows[e.ord]
	t.ID, t.Key, t.Seq, t.Lane, t.State = e.id, r.Key, r.Seq, r.Lane, task.Queued
	t.Mode, t.Queue, t.Executor, t.Params = modeOf(e), queueOf(e), executorOf(e), paramsOf(e)
	t.RunAt, t.EligibleAt, t.CreatedAt = r.RunAt.UTC(), r.EligibleAt.UTC(), r.At.UTC()
	t.CreatedBy, t.Children, t.Absorbed = w.batch.Caller, len(e.item.Children), e.absorbed
	if e.parent >= 0 {
		t.Parent = w.all[e.parent].id
	}
	return t
}

func modeOf(e *entry) task.Mode {
	switch {
	case e.lane == "":
		return task.Parallel
	case e.item.Task.Mode == "":
		return task.Strict
	}
	return e.item.Task.Mode
}

func queueOf(e *entry) string {
	if e.item.Task.Queue == "" {
		return defaultQueue
	}
	return e.item.Task.Queue
}

const defaultQueue = "default"

func executorOf(e *entry) task.Executor {
	if e.item.Task.Executor == "" {
		return task.ExecutorJob
	}
	return e.item.Task.Executor
}

func paramsOf(e *entry) json.RawMessage {
	if len(e.item.Task.Params) == 0 {
		return json.RawMessage("{}")
	}
	return e.item.Task.Params
}

// jsonOf renders a parameter of a statement; what is given is made of plain types and checked JSON.
func jsonOf(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("store: render a parameter: %v", err))
	}
	return string(raw)
}
