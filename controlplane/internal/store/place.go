package store

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

type needRow struct {
	Key                                int64
	ID                                 string
	Lane, Mode, Queue, Namespace, Kind string
	State                              string
	Root                               int64
}

// lane is what its end locks, made where it is not there yet: what ends meanwhile must see who waits for it. A private
// lane is there as long as its Task is open.
func (n needRow) lane() newLane {
	must := !task.State(n.State).Terminal() && task.Mode(n.Mode) != task.Parallel
	return newLane{Key: n.Lane, Queue: n.Queue, Namespace: n.Namespace, Kind: n.Kind, Must: must}
}

// findNeeds looks up the stored Tasks that entries name: in After, and as RetryOf.
func (w *submit) findNeeds(tx *gorm.DB) error {
	ours, wanted := map[string]bool{}, map[string]bool{}
	for _, e := range w.fresh() {
		ours[e.id] = true
	}
	then, err := w.earlier(tx)
	if err != nil {
		return err
	}
	for _, e := range w.fresh() {
		for _, id := range e.item.After {
			if !ours[id] {
				wanted[then.of(id)] = true
			}
		}
		if id := e.item.Task.RetryOf; id != "" {
			wanted[id] = true
		}
	}
	found, err := w.stored(tx, wanted)
	if err != nil {
		return err
	}
	var errs FieldErrors
	for _, e := range w.fresh() {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(e.item.After))) {
			n, ok := found[then.of(id)]
			switch {
			case ours[id]:
				e.needs = append(e.needs, need{id: id})
			case ok:
				e.needs = append(e.needs, need{key: &n.Key, id: n.ID})
				w.needed[n.Lane] = n.lane() // locked with the others: its end must see that we wait for it
			default:
				errs = append(errs, FieldError{e.pointer + "/after", "no task " + id})
			}
		}
		if id := e.item.Task.RetryOf; id != "" {
			n, ok := found[id]
			if !ok {
				errs = append(errs, FieldError{e.pointer + "/retry_of", "no task " + id})
			}
			e.retryOf, e.root = &n.Key, &n.Root
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// earlierIDs are the ids, at their first submit, of Tasks of this batch that repeat it.
type earlierIDs map[string]string

func (m earlierIDs) of(id string) string {
	if was, repeated := m[id]; repeated {
		return was
	}
	return id
}

// earlier finds them. Children were stored in their order; where one is gone, nobody can say which.
func (w *submit) earlier(tx *gorm.DB) (earlierIDs, error) {
	ids := earlierIDs{}
	for _, e := range w.all {
		was, repeated := w.repeated[e.top]
		if !repeated || e.parent >= 0 || len(w.fresh()) == 0 {
			continue
		}
		ids[e.id] = was.ID
		if len(e.item.Children) == 0 {
			continue
		}
		var children []string
		if err := query(tx, "enqueue/children", args{"parent": was.ID}, &children); err != nil {
			return nil, err
		}
		for n, id := range children {
			if len(children) == len(e.item.Children) {
				ids[w.all[e.ord+1+n].id] = id // they follow it in the flat list
			}
		}
	}
	return ids, nil
}

// became follows a Task of this batch into the one that absorbed it.
func (w *submit) became(n need) need {
	if n.key != nil {
		return n
	}
	for _, e := range w.all {
		switch {
		case e.id != n.id:
		case e.tail != nil:
			return need{key: e.tail, id: e.tailID}
		case e.into != nil:
			return need{id: e.into.id}
		}
	}
	return n
}

func (w *submit) stored(tx *gorm.DB, wanted map[string]bool) (map[string]needRow, error) {
	found := map[string]needRow{}
	if len(wanted) == 0 {
		return found, nil
	}
	ids := make([]string, 0, len(wanted))
	for id := range wanted {
		if validID(id) {
			ids = append(ids, id)
		}
	}
	var rows []needRow
	if err := query(tx, "enqueue/needs", args{"ids": jsonOf(ids)}, &rows); err != nil {
		return nil, err
	}
	for _, r := range rows {
		found[r.ID] = r
	}
	return found, nil
}

// gates says which entries stay outside their lane for now.
func (w *submit) gates(tx *gorm.DB) error {
	fresh := w.fresh()
	if slices.ContainsFunc(fresh, func(e *entry) bool { return !e.item.RunAt.IsZero() }) {
		var row struct{ Now time.Time }
		if err := query(tx, "lane/now", nil, &row); err != nil {
			return err
		}
		w.now = row.Now
	}
	for _, e := range fresh {
		switch {
		case e.parent >= 0:
			e.outside = outsideParent
		case len(e.needs) > 0:
			e.outside = outsideDependency
		case e.item.RunAt.After(w.now), e.item.RunAt.IsZero() && e.item.Delay > 0:
			e.outside = outsideDelay
		}
	}
	return nil
}

// lock takes the lanes that entries enter and those of the Tasks that they wait for, all in one statement.
func (w *submit) lock(tx *gorm.DB) error {
	wanted := map[string]newLane{}
	maps.Copy(wanted, w.needed)
	for _, e := range w.entering() {
		wanted[e.lane] = newLane{Key: e.lane, Queue: queueOf(e), Namespace: e.item.Task.Namespace, Kind: e.item.Task.Kind, Must: true}
	}
	if len(wanted) == 0 {
		return nil
	}
	rows, err := lockLanes(tx, slices.Collect(maps.Values(wanted)))
	if err != nil {
		return err
	}
	for i := range rows {
		w.lanes[rows[i].Key] = &rows[i]
	}
	must := slices.DeleteFunc(slices.Collect(maps.Values(wanted)), func(l newLane) bool { return !l.Must })
	if slices.ContainsFunc(must, func(l newLane) bool { return w.lanes[l.Key] == nil }) {
		return &lanesGoneError{must}
	}
	return nil
}

// checkNeeds nudges entries that wait for nothing open: their end, or their entry, is decided by Settle.
func (w *submit) checkNeeds(tx *gorm.DB) error {
	wanted := map[string]bool{}
	for _, e := range w.fresh() {
		for _, n := range e.needs {
			if n.key != nil {
				wanted[n.id] = true
			}
		}
	}
	found, err := w.stored(tx, wanted)
	if err != nil {
		return err
	}
	ended := map[int64]bool{}
	for _, n := range found {
		ended[n.Key] = task.State(n.State).Terminal()
	}
	for _, e := range w.fresh() {
		if len(e.needs) > 0 && !slices.ContainsFunc(e.needs, func(n need) bool { return n.key == nil || !ended[*n.key] }) {
			e.settle, w.effects.nudged = true, true
		}
	}
	return nil
}

// read looks at what stands in the lanes, where the rules need it; the locks are older than this statement.
func (w *submit) read(tx *gorm.DB) error {
	wanted := map[string]bool{}
	for _, e := range w.entering() {
		if e.item.OnConflict == task.ConflictReject || modeOf(e) == task.Latest {
			wanted[e.lane] = true
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	var rows []standingRow
	if err := query(tx, "enqueue/standing", args{"lanes": jsonOf(slices.Sorted(maps.Keys(wanted)))}, &rows); err != nil {
		return err
	}
	for i := range rows {
		w.standing[rows[i].Lane] = &rows[i]
	}
	return nil
}

// place decides what becomes of each entry that goes into a shared lane, in the order of the batch.
func (w *submit) place(*gorm.DB) error {
	var clash []Conflict
	for _, e := range w.entering() {
		in := w.standing[e.lane]
		if in == nil {
			continue
		}
		if e.item.OnConflict == task.ConflictReject {
			if id := in.inTheWay(); id != "" {
				clash = append(clash, Conflict{Item: e.top, TaskID: id, Reason: ConflictLaneBusy})
				continue
			}
		}
		if modeOf(e) != task.Latest || len(e.item.Children) > 0 || e.item.OnConflict == task.ConflictReplace {
			in.last = e
			continue
		}
		switch last := in.last; {
		case last != nil && last.item.Task.Kind == e.item.Task.Kind && modeOf(last) == task.Latest && len(last.item.Children) == 0:
			last.absorbed++
			e.into = last
		case last == nil && in.Tail != nil && value(in.TailKind) == e.item.Task.Kind &&
			task.Mode(value(in.TailMode)) == task.Latest && value(in.TailChildren) == 0:
			e.tail, e.tailID = in.Tail, *in.TailID
		default:
			in.last = e
		}
	}
	if len(clash) > 0 {
		return conflict(clash...)
	}
	return nil
}

// inTheWay names the Task that a rejecting submit meets in its lane.
func (in *standingRow) inTheWay() string {
	switch {
	case in.HolderID != nil:
		return *in.HolderID
	case in.FirstID != nil:
		return *in.FirstID
	case in.last != nil:
		return in.last.id
	}
	return ""
}

// replace ends or stops what entries supersede, and finds their places.
func (w *submit) replace(tx *gorm.DB) error {
	for _, e := range w.entering() {
		if e.item.OnConflict != task.ConflictReplace {
			continue
		}
		front, err := supersede(tx, &w.effects, replacement{lane: e.lane, kinds: e.item.Supersedes, by: w.batch.Caller, id: e.id})
		if err != nil {
			return err
		}
		e.front = front
		w.show = append(w.show, e.lane)
	}
	return nil
}

// absorb lays the newest of each lane over the stored tail, and shows the lanes anew.
func (w *submit) absorb(tx *gorm.DB) error {
	type item struct {
		Task   int64           `json:"task"`
		Params json.RawMessage `json:"params,omitempty"`
		Spec   *task.Spec      `json:"spec,omitempty"`
		Name   string          `json:"name"`
		Class  task.Class      `json:"class"`
		Absorb int             `json:"absorbed"`
	}
	newest, events := map[int64]item{}, []item{}
	for _, e := range w.fresh() {
		if e.tail == nil {
			continue
		}
		i := item{Task: *e.tail, Params: paramsOf(e), Spec: &e.item.Task.Spec, Name: e.item.Task.Name, Class: e.item.Task.Class, Absorb: 1}
		if was, again := newest[i.Task]; again {
			i.Class, i.Absorb = min(i.Class, was.Class), was.Absorb+1
		}
		newest[i.Task] = i
		events = append(events, item{Task: i.Task})
		w.show = append(w.show, e.lane)
		w.effects.queues = append(w.effects.queues, w.lanes[e.lane].Queue)
	}
	if len(newest) > 0 {
		var done struct{ N int }
		a := args{"items": jsonOf(slices.Collect(maps.Values(newest))), "events": jsonOf(events), "by": w.batch.Caller}
		if err := query(tx, "enqueue/absorb", a, &done); err != nil {
			return err
		}
	}
	for _, lane := range slices.Compact(slices.Sorted(slices.Values(w.show))) {
		if err := showLane(tx, &w.effects, lane); err != nil {
			return err
		}
	}
	return nil
}
