package store

import (
	"encoding/json"
	"fmt"
	"time"

	"slipway.dev/slipway/pkg/task"
)

type metaRow struct {
	Instance   string
	SessionKey []byte
	MinBinary  int
}

func (metaRow) TableName() string { return "slipway.meta" }

// taskRow is a row of tasks with what a read joins to it.
type taskRow struct {
	Key        int64 `gorm:"primaryKey"`
	ID         string
	Seq        *int64
	Outside    *string
	Lane       string
	Queue      string
	Namespace  string
	Kind       string
	Name       string
	Mode       string
	Class      int16
	Executor   string
	Params     []byte
	Spec       []byte
	Labels     []byte
	State      string
	Outcome    string
	Reason     string
	Message    string
	Result     []byte
	RunAt      time.Time
	EligibleAt time.Time
	Rank       time.Time
	Attempts   int
	SpentRetry int
	SpentLost  int
	Held       bool
	Parent     *int64
	ParentID   *string `gorm:"->"`
	Children   int
	RetryOf    *int64
	RetryOfID  *string `gorm:"->"`
	RootID     *string `gorm:"->"`
	Absorbed   int
	RunIf      string
	Stop       string
	CancelAt   *time.Time
	CancelBy   string
	CreatedBy  string
	CreatedAt  time.Time `gorm:"autoCreateTime:false"`
	StartedAt  *time.Time
	EndedAt    *time.Time
}

func (taskRow) TableName() string { return "slipway.tasks" }

// task converts the row; the JSON in it was written by this package.
func (r taskRow) task() (task.Task, error) {
	t := task.Task{
		Key: r.Key, ID: r.ID, Seq: value(r.Seq), Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Lane: r.Lane,
		Mode: task.Mode(r.Mode), Queue: r.Queue, Class: task.Class(r.Class), Executor: task.Executor(r.Executor),
		Params: r.Params, State: task.State(r.State), Outcome: task.Outcome(r.Outcome), Reason: task.Reason(r.Reason),
		Message: r.Message, Result: r.Result, RunAt: r.RunAt.UTC(), EligibleAt: r.EligibleAt.UTC(), Attempts: r.Attempts,
		SpentRetry: r.SpentRetry, SpentLost: r.SpentLost, Held: r.Held, Parent: value(r.ParentID), RetryOf: value(r.RetryOfID), Root: value(r.RootID),
		Children: r.Children, Absorbed: r.Absorbed, CancelAt: instant(r.CancelAt), CancelBy: r.CancelBy, CreatedBy: r.CreatedBy,
		CreatedAt: r.CreatedAt.UTC(), StartedAt: instant(r.StartedAt), EndedAt: instant(r.EndedAt),
	}
	if err := json.Unmarshal(r.Spec, &t.Spec); err != nil {
		return task.Task{}, fmt.Errorf("read spec of task %s: %w", r.ID, err)
	}
	if len(r.Labels) > 0 {
		if err := json.Unmarshal(r.Labels, &t.Labels); err != nil {
			return task.Task{}, fmt.Errorf("read labels of task %s: %w", r.ID, err)
		}
	}
	return t, nil
}

// attemptRow is a row of attempts with what a read joins to it.
type attemptRow struct {
	ID         int64 `gorm:"primaryKey"`
	Task       int64
	TaskID     string `gorm:"->"`
	Number     int
	Fence      int64
	Lane       string
	Queue      string
	Namespace  string
	Kind       string
	Executor   string
	Replica    string
	State      string
	JobName    string
	JobUID     string
	PodUID     string
	PodName    string
	Node       string
	Wait       string
	WaitNote   string
	Stop       string
	StopNote   string
	StopAt     *time.Time
	Report     []byte
	Late       bool
	Outcome    string
	Reason     string
	Message    string
	Rule       string
	ExitCode   *int
	BeatAt     *time.Time `gorm:"->"`
	Progress   []byte     `gorm:"->"`
	Pods       []byte     `gorm:"->"`
	ClaimedAt  time.Time
	LaunchedAt *time.Time
	StartedAt  *time.Time
	FinishedAt *time.Time
	ClosedAt   *time.Time
}

func (attemptRow) TableName() string { return "slipway.attempts" }

func (r attemptRow) attempt() (task.Attempt, error) {
	a := task.Attempt{
		ID: r.ID, TaskKey: r.Task, TaskID: r.TaskID, Number: r.Number, Fence: r.Fence, Lane: r.Lane, Queue: r.Queue,
		Namespace: r.Namespace, Kind: r.Kind, Executor: task.Executor(r.Executor), Replica: r.Replica,
		State: task.AttemptState(r.State), JobName: r.JobName, JobUID: r.JobUID, PodUID: r.PodUID, PodName: r.PodName,
		Node: r.Node, Wait: task.WaitReason(r.Wait), WaitNote: r.WaitNote, Stop: task.StopReason(r.Stop),
		StopNote: r.StopNote, StopAt: instant(r.StopAt), Beat: instant(r.BeatAt), Progress: r.Progress,
		Outcome: task.Outcome(r.Outcome), Reason: task.Reason(r.Reason), Message: r.Message, Rule: r.Rule,
		ExitCode: r.ExitCode, Late: r.Late, ClaimedAt: r.ClaimedAt.UTC(), LaunchedAt: instant(r.LaunchedAt),
		StartedAt: instant(r.StartedAt), FinishedAt: instant(r.FinishedAt), ClosedAt: instant(r.ClosedAt),
	}
	if len(r.Report) > 0 {
		a.Report = new(task.Report)
		if err := json.Unmarshal(r.Report, a.Report); err != nil {
			return task.Attempt{}, fmt.Errorf("read report of attempt %d: %w", r.ID, err)
		}
	}
	if len(r.Pods) > 0 {
		if err := json.Unmarshal(r.Pods, &a.Pods); err != nil {
			return task.Attempt{}, fmt.Errorf("read pods of attempt %d: %w", r.ID, err)
		}
	}
	return a, nil
}

func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
