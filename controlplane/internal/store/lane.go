package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

// errLaneGone says that a lane was made or removed by another while we asked for its lock; the transaction is run again.
var errLaneGone = errors.New("the lane was made or removed meanwhile")

// lanesGoneError is errLaneGone for some of many lanes. Each try could meet another one of them just made, so they are
// all made before the next.
type lanesGoneError struct{ lanes []newLane }

func (e *lanesGoneError) Error() string { return errLaneGone.Error() }

func (e *lanesGoneError) Is(target error) bool { return target == errLaneGone }

// makeLanes makes lanes outside the transaction that wants them; those that nothing enters then are idle, and swept.
func (s *Store) makeLanes(ctx context.Context, lanes []newLane) error {
	_, err := exec(s.db.WithContext(ctx), "lane/make", args{"lanes": jsonOf(lanes)})
	return err
}

func validID(id string) bool { return uuid.Validate(id) == nil }

// newLane names a lane to lock; Must makes it where it does not exist.
type newLane struct {
	Key       string `json:"key"`
	Queue     string `json:"queue"`
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Private   bool   `json:"private"`
	Must      bool   `json:"must"`
}

// lockLanes locks lanes in one statement and makes those that must exist.
func lockLanes(tx *gorm.DB, lanes []newLane) ([]laneRow, error) {
	var rows []laneRow
	err := query(tx, "lane/lock_or_make", args{"lanes": jsonOf(lanes)}, &rows)
	return rows, err
}

// lockLaneOf locks the lane of a stored Task and makes it where it was never needed yet.
func lockLaneOf(tx *gorm.DB, t whereRow) (*laneRow, error) {
	lane := newLane{Key: t.Lane, Queue: t.Queue, Namespace: t.Namespace, Kind: t.Kind, Private: task.Mode(t.Mode) == task.Parallel, Must: true}
	rows, err := lockLanes(tx, []newLane{lane})
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0:
		return nil, errLaneGone
	}
	return &rows[0], nil
}

// whereRow is what never changes of a Task and tells its lane; it may be read without a lock.
type whereRow struct {
	Key                                int64
	ID                                 string
	Lane, Mode, Queue, Namespace, Kind string
	State                              string
}

func findTask(tx *gorm.DB, condition string, value any) (whereRow, error) {
	var rows []whereRow
	err := tx.Model(&taskRow{}).Select("key", "id", "lane", "mode", "queue", "namespace", "kind", "state").
		Where(condition, value).Limit(1).Find(&rows).Error
	if err != nil {
		return whereRow{}, err
	}
	if len(rows) == 0 {
		return whereRow{}, ErrNotFound
	}
	return rows[0], nil
}

// showLane makes a lane show its head, unless somebody holds it.
func showLane(tx *gorm.DB, e *effects, lane string) error {
	var shown []struct{ Queue string }
	if err := query(tx, "lane/show", args{"lane": lane}, &shown); err != nil {
		return err
	}
	for _, s := range shown {
		e.queues = append(e.queues, s.Queue)
	}
	return nil
}

// releaseLane takes the lane from an ended holder and shows the next head, or drops a private lane.
func releaseLane(tx *gorm.DB, e *effects, lane *laneRow, holder int64) error {
	if lane.Private {
		_, err := exec(tx, "lane/drop", args{"lane": lane.Key})
		return err
	}
	if _, err := exec(tx, "lane/release", args{"lane": lane.Key, "task": holder}); err != nil {
		return err
	}
	return showLane(tx, e, lane.Key)
}

// ending is how queued Tasks of one lane end without an Attempt.
type ending struct {
	state   task.State
	outcome task.Outcome
	reason  task.Reason
	message string
	by      string
}

func endQueued(tx *gorm.DB, e *effects, keys []int64, how ending) (ended int, err error) {
	left, err := leftBehind(tx, keys)
	if err != nil {
		return 0, err
	}
	messages := map[int64]string{}
	for key, text := range left {
		messages[key] = withLeft(how.message, text)
	}
	var done endedTasks
	err = query(tx, "lane/end_queued", args{
		"tasks": jsonOf(keys), "state": string(how.state), "outcome": string(how.outcome), "reason": string(how.reason),
		"message": clean(how.message, maxMessage), "messages": jsonOf(messages), "by": how.by,
	}, &done)
	if err != nil {
		return 0, err
	}
	return done.Ended, done.tell(e)
}

// leftBehind says of Tasks that are not tried again what may go on of their last Attempts, where that is so.
func leftBehind(tx *gorm.DB, keys []int64) (map[int64]string, error) {
	var rows []struct {
		Key             int64
		Number          int
		Outcome, Reason string
	}
	if err := query(tx, "lane/silent", args{"tasks": jsonOf(keys)}, &rows); err != nil {
		return nil, err
	}
	left := map[int64]string{}
	for _, r := range rows {
		left[r.Key] = task.GoesOn(r.Number, task.Outcome(r.Outcome), task.Reason(r.Reason))
	}
	return left, nil
}

// withLeft adds to a message what may go on; that is never cut off.
func withLeft(message, left string) string {
	if message == "" || left == "" {
		return message + left
	}
	return clean(message, maxMessage-len(left)-2) + "; " + left
}

// endedTasks is what the end of Tasks without an Attempt brought.
type endedTasks struct {
	Ended, Nudged int
	Named         []byte // keys of those that name objects
}

func (d endedTasks) tell(e *effects) error {
	e.nudged = e.nudged || d.Nudged > 0
	if len(d.Named) == 0 {
		return nil
	}
	var keys []int64
	if err := json.Unmarshal(d.Named, &keys); err != nil {
		return fmt.Errorf("read which tasks name objects: %w", err)
	}
	e.ended = append(e.ended, keys...)
	return nil
}

// endQueuedOne ends one queued Task and shows its lane; a private lane goes with it.
func endQueuedOne(tx *gorm.DB, e *effects, lane *laneRow, key int64, how ending) error {
	n, err := endQueued(tx, e, []int64{key}, how)
	if err != nil || n == 0 {
		return err
	}
	if lane.Private {
		_, err = exec(tx, "lane/drop", args{"lane": lane.Key})
		return err
	}
	return showLane(tx, e, lane.Key)
}

// stopAsk is a wish that the running Task of a lane ends.
type stopAsk struct {
	task     int64
	why      task.StopReason
	by, note string
}

func askStop(tx *gorm.DB, e *effects, ask stopAsk) error {
	var done struct {
		Asked, Nudged int
		Attempt       *int64
	}
	err := query(tx, "lane/ask_stop", args{"task": ask.task, "why": string(ask.why), "by": ask.by, "note": clean(ask.note, maxNote)}, &done)
	if err != nil {
		return err
	}
	e.nudged = e.nudged || done.Nudged > 0
	if done.Attempt != nil {
		e.attempts = append(e.attempts, *done.Attempt)
	}
	return nil
}

// replacement is a Task that goes before others of its lane.
type replacement struct {
	lane  string
	kinds []string
	by    string
	id    string
}

// supersede ends the queued Tasks of the given kinds in a locked lane and asks a running one to stop. It gives the
// place in front of what stays queued; nil: nothing does.
func supersede(tx *gorm.DB, e *effects, r replacement) (front *int64, err error) {
	kinds := r.kinds
	if kinds == nil {
		kinds = []string{}
	}
	var met []struct {
		Key       int64
		ID, State string
	}
	if err := query(tx, "lane/superseded", args{"lane": r.lane, "kinds": jsonOf(kinds)}, &met); err != nil {
		return nil, err
	}
	note := "replaced by task " + r.id
	var queued []int64
	for _, m := range met {
		if task.State(m.State) == task.Queued {
			queued = append(queued, m.Key)
			continue
		}
		if err := askStop(tx, e, stopAsk{task: m.Key, why: task.StopSuperseded, by: r.by, note: note}); err != nil {
			return nil, err
		}
	}
	if len(queued) > 0 {
		how := ending{state: task.Canceled, outcome: task.OutcomeCanceled, reason: task.ReasonSuperseded, message: note, by: r.by}
		if _, err := endQueued(tx, e, queued, how); err != nil {
			return nil, err
		}
	}
	var place []struct {
		Seq  int64
		Room bool
	}
	if err := query(tx, "lane/front", args{"lane": r.lane}, &place); err != nil || len(place) == 0 {
		return nil, err
	}
	if !place[0].Room {
		return nil, &FullError{Namespace: "", Queue: "", Limit: seqStep, RetryAfter: retrySoon}
	}
	return &place[0].Seq, nil
}

// seqStep is the step of the sequence of places: so many Tasks in a row can go before one that waits.
const seqStep = 1024
