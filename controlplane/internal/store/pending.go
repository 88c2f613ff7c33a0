package store

// Signatures whose bodies follow.

import (
	"context"
	"errors"
	"time"

	"slipway.dev/slipway/pkg/task"
)

var errUnbuilt = errors.New("not built yet")

type waitingCounts struct{}

func (s *Store) Enqueue(ctx context.Context, b Batch) ([]Enqueued, error) { return nil, errUnbuilt }
func (s *Store) Claim(ctx context.Context, queue string, limit int) (ClaimResult, error) {
	return ClaimResult{}, errUnbuilt
}
func (s *Store) Finish(ctx context.Context, attempt, fence int64, v task.Verdict, e Ending) (FinishResult, error) {
	return FinishResult{}, errUnbuilt
}
func (s *Store) Cancel(ctx context.Context, id, by, note string) (task.Task, error) {
	return task.Task{}, errUnbuilt
}
func (s *Store) Settle(ctx context.Context, limit int) (more bool, err error) {
	return false, errUnbuilt
}
func (s *Store) EnterDue(ctx context.Context, limit int) (n int, err error)     { return 0, errUnbuilt }
func (s *Store) ExpireQueued(ctx context.Context, limit int) (n int, err error) { return 0, errUnbuilt }

func (s *Store) MarkLaunched(ctx context.Context, attempt, fence int64, jobName, jobUID string) error {
	return errUnbuilt
}
func (s *Store) MarkWaiting(ctx context.Context, attempt, fence int64, w task.WaitReason, note string, again time.Duration) error {
	return errUnbuilt
}
func (s *Store) Start(ctx context.Context, r StartRequest) (task.Task, task.Attempt, error) {
	return task.Task{}, task.Attempt{}, errUnbuilt
}
func (s *Store) Beat(ctx context.Context, r BeatRequest) (BeatAnswer, error) {
	return BeatAnswer{}, errUnbuilt
}
func (s *Store) Report(ctx context.Context, r ReportRequest) error { return errUnbuilt }
func (s *Store) Stop(ctx context.Context, attempt, fence int64, why task.StopReason, note string) error {
	return errUnbuilt
}
func (s *Store) SeePod(ctx context.Context, attempt int64, p task.KnownPod) error { return errUnbuilt }
func (s *Store) MarkClosed(ctx context.Context, attempt int64) error              { return errUnbuilt }

func (s *Store) OpenAttempt(ctx context.Context, attempt int64) (task.Task, task.Attempt, time.Time, error) {
	return task.Task{}, task.Attempt{}, time.Time{}, errUnbuilt
}
func (s *Store) OpenAttempts(ctx context.Context) ([]int64, error) { return nil, errUnbuilt }
func (s *Store) LeasedOverdue(ctx context.Context, age time.Duration, limit int) ([]Claimed, error) {
	return nil, errUnbuilt
}
func (s *Store) KnownAttempts(ctx context.Context, ids []int64) (map[int64]AttemptStanding, error) {
	return nil, errUnbuilt
}
func (s *Store) Queues(ctx context.Context) ([]Queue, error) { return nil, errUnbuilt }
func (s *Store) Task(ctx context.Context, id string) (task.Task, View, error) {
	return task.Task{}, View{}, errUnbuilt
}
func (s *Store) Tasks(ctx context.Context, f ListFilter) (Page, error) { return Page{}, errUnbuilt }
func (s *Store) Attempts(ctx context.Context, id string) ([]task.Attempt, error) {
	return nil, errUnbuilt
}
func (s *Store) Events(ctx context.Context, id, after string, limit int) ([]task.Event, error) {
	return nil, errUnbuilt
}
func (s *Store) LogTail(ctx context.Context, attempt int64) ([]byte, error) { return nil, errUnbuilt }
func (s *Store) OldestClosedJobs(ctx context.Context, namespace string, n int) ([]ClosedJob, error) {
	return nil, errUnbuilt
}
func (s *Store) MaxFence(ctx context.Context) (int64, error)       { return 0, errUnbuilt }
func (s *Store) RaiseFence(ctx context.Context, above int64) error { return errUnbuilt }

func (s *Store) SetQueue(ctx context.Context, q Queue, actor string) error { return errUnbuilt }
func (s *Store) Hold(ctx context.Context, id, actor, reason string) error  { return errUnbuilt }
func (s *Store) Unhold(ctx context.Context, id, actor string) error        { return errUnbuilt }
func (s *Store) Freeze(ctx context.Context, f Freeze, d time.Duration) (Freeze, error) {
	return Freeze{}, errUnbuilt
}
func (s *Store) Thaw(ctx context.Context, id int64, actor string) error { return errUnbuilt }
func (s *Store) Freezes(ctx context.Context) ([]Freeze, error)          { return nil, errUnbuilt }
func (s *Store) SwitchKind(ctx context.Context, kind string, e task.Executor, actor, reason string) error {
	return errUnbuilt
}
