package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/controlplane/internal/failpoint"
	"slipway.dev/slipway/pkg/task"
)

// Finish ends an Attempt with a verdict: outcome, Task state, hand-over of the lane, write-back of the result,
// events and nudges in one transaction. A second call on an ended Attempt, or one with a stale fence, returns ErrStale
// and changes nothing; ErrChanged says that a stop or a report came in after v was judged.
func (s *Store) Finish(ctx context.Context, attempt, fence int64, v task.Verdict, e Ending) (FinishResult, error) {
	f := finish{attempt: attempt, fence: fence, replica: s.cfg.Replica, verdict: v}
	f.verdict.Message = clean(v.Message, maxMessage)
	f.verdict.Reason = task.Reason(clean(string(v.Reason), maxReason))
	f.verdict.Rule = clean(v.Rule, maxReason)
	f.evidence = cleanJSON(e.Evidence, maxEvidence)
	err := s.settled(ctx, f.run, func(ctx context.Context) (bool, error) { return f.happened(s.db.WithContext(ctx)) })
	if class := sqlState(err); len(class) == 5 && class[:2] == dataException {
		// No text keeps an outcome from being recorded.
		f.verdict.Message, f.evidence = "the text of this end could not be stored", nil
		err = s.settled(ctx, f.run, func(ctx context.Context) (bool, error) { return f.happened(s.db.WithContext(ctx)) })
	}
	if err != nil {
		return FinishResult{}, fmt.Errorf("finish attempt %d: %w", attempt, err)
	}
	f.effects.attempts = append(f.effects.attempts, attempt) // somebody closes it in the cluster
	s.announce(f.effects)
	return f.result, nil
}

const (
	dataException = "22" // class of SQLSTATE
	maxReason     = 100
)

type finish struct {
	attempt, fence int64
	replica        string
	verdict        task.Verdict
	evidence       json.RawMessage

	result  FinishResult
	effects effects
}

type finishRow struct {
	Task     int64
	Number   int
	Fence    int64
	Stop     string
	Late     bool
	Report   []byte
	Finished bool
}

type decideRow struct {
	Row       taskRow `gorm:"embedded"`
	ANumber   int
	AFence    int64
	AStop     string
	AReport   []byte
	AFinished bool
}

type endRow struct {
	RunAt, EligibleAt time.Time
	EndedAt           *time.Time
	Result            []byte
	Nudged            int
	NextQueue, Queue  string
	NextNamespace     *string
	NextRank          *time.Time
}

func (f *finish) run(tx *gorm.DB) error {
	f.effects = effects{}
	var lanes []laneRow
	if err := query(tx, "finish/lock", args{"attempt": f.attempt}, &lanes); err != nil {
		return err
	}
	if len(lanes) == 0 {
		return ErrStale // no such Attempt, or its private lane went with its end
	}
	var rows []decideRow
	if err := query(tx, "finish/decide", args{"attempt": f.attempt}, &rows); err != nil {
		return err
	}
	if len(rows) == 0 || rows[0].AFinished || rows[0].AFence != f.fence {
		return ErrStale
	}
	a := rows[0]
	if task.StopReason(a.AStop) != f.verdict.Stop {
		return ErrChanged // a cancel that was answered before this end was stored holds
	}
	if err := f.unlessReported(a); err != nil {
		return err
	}
	t, err := a.Row.task()
	if err != nil {
		return err
	}
	move := task.After(t, f.verdict)
	if !t.State.May(move.State) {
		return fmt.Errorf("task %s: no move from %s to %s", t.ID, t.State, move.State)
	}
	how := endArgs{lane: lanes[0], reported: len(a.AReport) > 0, move: move}
	if how.message, err = f.lastWords(tx, a, move); err != nil {
		return err
	}
	if err := f.end(tx, how, &t); err != nil {
		return err
	}
	f.result = FinishResult{Task: t, Move: move}
	if f.verdict.Spends == task.SpendsLost {
		if err := query(tx, "finish/lost_in_a_row", args{"attempt": f.attempt}, &f.result.LostInARow); err != nil {
			return err
		}
	}
	failpoint.Hit("finish-before-commit")
	return nil
}

// unlessReported refuses a verdict that was made without a report that stands there now.
func (f *finish) unlessReported(a decideRow) error {
	if len(a.AReport) == 0 || a.AStop != "" || f.verdict.Heard {
		return nil // a verdict may differ from the report that it was made with: told to stop, and the pod says by whom
	}
	var said task.Report
	// What cannot be read decides nothing.
	if readable := json.Unmarshal(a.AReport, &said) == nil; readable && said.Outcome != f.verdict.Outcome {
		return ErrChanged
	}
	return nil
}

// lastWords is the message of the Task: that of the Attempt, and where the Task has ended, what may go on of it.
func (f *finish) lastWords(tx *gorm.DB, a decideRow, move task.Move) (string, error) {
	v := f.verdict
	switch {
	case !move.State.Terminal() || move.State == task.Succeeded:
	case v.Silent:
		return withLeft(v.Message, task.GoesOn(a.ANumber, v.Outcome, v.Reason)), nil
	case !v.Started && a.ANumber > 1: // those before it count
		left, err := leftBehind(tx, []int64{a.Row.Key})
		return withLeft(v.Message, left[a.Row.Key]), err
	}
	return v.Message, nil
}

type endArgs struct {
	lane     laneRow
	reported bool
	move     task.Move
	message  string // of the Task
}

func (f *finish) end(tx *gorm.DB, e endArgs, t *task.Task) error {
	spentRetry, spentLost := 0, 0
	switch e.move.Spends {
	case task.SpendsRetry:
		spentRetry = 1
	case task.SpendsLost:
		spentLost = 1
	case task.SpendsNothing:
	}
	var evidence *string
	if f.evidence != nil {
		text := string(f.evidence)
		evidence = &text
	}
	var rows []endRow
	err := query(tx, "finish/end", args{
		"attempt": f.attempt, "fence": f.fence, "reported": e.reported, "lane": e.lane.Key, "last_seq": e.lane.LastSeq, "replica": f.replica,
		"outcome": string(f.verdict.Outcome), "reason": string(f.verdict.Reason), "message": f.verdict.Message, "task_message": e.message, "silent": f.verdict.Silent,
		"rule": f.verdict.Rule, "exit_code": f.verdict.ExitCode, "evidence": evidence,
		"state": string(e.move.State), "task_reason": string(e.move.Reason), "ended": e.move.State.Terminal(),
		"delay": float64(e.move.Delay), "spent_retry": spentRetry, "spent_lost": spentLost,
	}, &rows)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return ErrStale // ended or reported between the two statements
	}
	r := rows[0]
	t.State, t.Outcome, t.Reason, t.Message = e.move.State, f.verdict.Outcome, e.move.Reason, e.message
	t.Result, t.RunAt, t.EligibleAt, t.EndedAt = r.Result, r.RunAt.UTC(), r.EligibleAt.UTC(), instant(r.EndedAt)
	t.SpentRetry, t.SpentLost = t.SpentRetry+spentRetry, t.SpentLost+spentLost
	f.effects.queues = append(f.effects.queues, r.Queue) // its slot is free
	f.effects.ready = append(f.effects.ready, readyLane{queue: r.Queue},
		readyLane{queue: r.NextQueue, namespace: value(r.NextNamespace), rank: instant(r.NextRank)})
	if r.NextQueue != "" && r.NextQueue != r.Queue {
		f.effects.queues = append(f.effects.queues, r.NextQueue)
	}
	f.effects.nudged = r.Nudged > 0
	return nil
}

// happened says, after a commit that nobody answered, whether the Attempt ended as we wanted.
func (f *finish) happened(db *gorm.DB) (bool, error) {
	var rows []finishRow
	if err := query(db, "finish/read", args{"attempt": f.attempt}, &rows); err != nil {
		return false, err
	}
	if len(rows) == 0 || rows[0].Fence != f.fence {
		return false, ErrStale
	}
	return rows[0].Finished, nil
}

// readTask reads a Task by its key inside a transaction.
func readTask(tx *gorm.DB, key int64) (task.Task, error) {
	var rows []taskRow
	if err := query(tx, "finish/task", args{"task": key}, &rows); err != nil {
		return task.Task{}, err
	}
	if len(rows) == 0 {
		return task.Task{}, ErrNotFound
	}
	return rows[0].task()
}
