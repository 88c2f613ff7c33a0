package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/controlplane/internal/failpoint"
	"slipway.dev/slipway/pkg/task"
)

// guarded runs one write on behalf of an Attempt; no row changed means ErrStale.
func (s *Store) guarded(ctx context.Context, name string, a args) error {
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		n, err := exec(tx, name, a)
		if err == nil && n == 0 {
			err = ErrStale
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("attempt %v: %w", a["attempt"], err)
	}
	return nil
}

// MarkLaunched records the Job of an Attempt. A runner may have started before. Of one that has ended before, ErrStale, the
// Job is named too.
func (s *Store) MarkLaunched(ctx context.Context, attempt, fence int64, jobName, jobUID string) error {
	failpoint.Hit("mark-launched")
	job := args{"attempt": attempt, "fence": fence, "job_name": jobName, "job_uid": jobUID}
	err := s.guarded(ctx, "attempt/launched", job)
	if errors.Is(err, ErrStale) {
		if late := s.guarded(ctx, "attempt/launched_late", job); late != nil && !errors.Is(late, ErrStale) {
			return late
		}
	}
	return err
}

// MarkWaiting records why an Attempt is not launched yet and when that is tried again; it stays leased.
func (s *Store) MarkWaiting(ctx context.Context, attempt, fence int64, why task.WaitReason, note string, again time.Duration) error {
	return s.guarded(ctx, "attempt/waiting", args{
		"attempt": attempt, "fence": fence, "wait": string(why), "note": clean(note, maxNote), "again": again.Seconds(),
	})
}

type standing struct {
	Fence        int64
	Finished     bool
	Stop, PodUID string
	Report       []byte
}

func readStanding(tx *gorm.DB, attempt, fence int64) (standing, error) {
	var rows []standing
	if err := query(tx, "attempt/standing", args{"attempt": attempt}, &rows); err != nil {
		return standing{}, err
	}
	if len(rows) == 0 || rows[0].Fence != fence {
		return standing{}, ErrStale
	}
	return rows[0], nil
}

// Start lets the first pod that asks begin; the same pod may ask again. ErrStale, ErrStopped or ErrOtherPod refuse.
func (s *Store) Start(ctx context.Context, r StartRequest) (task.Task, task.Attempt, error) {
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		n, err := exec(tx, "attempt/start", args{
			"attempt": r.Attempt, "fence": r.Fence, "pod_uid": r.PodUID, "pod_name": r.PodName, "node": r.Node,
			"replica": s.cfg.Replica, "lease": float64(task.Lease), "inline": r.Inline,
		})
		if err != nil || n > 0 {
			return err
		}
		was, err := readStanding(tx, r.Attempt, r.Fence)
		switch {
		case err != nil:
			return err
		case was.Finished:
			return ErrStale
		case was.PodUID == r.PodUID && r.PodUID != "":
			return nil // it asks again: the answer was lost
		case was.PodUID != "":
			return ErrOtherPod
		case was.Stop != "":
			return ErrStopped
		}
		return ErrStale
	})
	if err != nil {
		return task.Task{}, task.Attempt{}, fmt.Errorf("start attempt %d: %w", r.Attempt, err)
	}
	t, a, _, err := s.OpenAttempt(ctx, r.Attempt)
	if err != nil {
		return task.Task{}, task.Attempt{}, err
	}
	s.announce(effects{attempts: []int64{r.Attempt}})
	return t, a, nil
}

// Report keeps a runner's word about the end of its handler, once; the same word again is fine. After a stop it is
// kept as a late one, which decides nothing.
func (s *Store) Report(ctx context.Context, r ReportRequest) error {
	said := r.Report
	said.Message = clean(said.Message, maxMessage)
	said.Reason = task.Reason(clean(string(said.Reason), maxReason))
	said.Result = cleanJSON(said.Result, maxResult)
	tail := compressTail(r.Tail)
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		n, err := exec(tx, "attempt/report", args{"attempt": r.Attempt, "fence": r.Fence, "pod_uid": r.PodUID, "report": jsonOf(said)})
		if err != nil {
			return err
		}
		if n == 0 {
			return repeatedReport(tx, r)
		}
		if len(tail) == 0 {
			return nil
		}
		_, err = exec(tx, "attempt/keep_log", args{"attempt": r.Attempt, "part": 0, "bytes": tail})
		return err
	})
	if err != nil {
		return fmt.Errorf("report of attempt %d: %w", r.Attempt, err)
	}
	s.announce(effects{attempts: []int64{r.Attempt}})
	return nil
}

// repeatedReport says whether a report that changed nothing was one that we have.
func repeatedReport(tx *gorm.DB, r ReportRequest) error {
	was, err := readStanding(tx, r.Attempt, r.Fence)
	if err != nil {
		return err
	}
	if was.PodUID != r.PodUID {
		return ErrOtherPod
	}
	var had task.Report
	if len(was.Report) == 0 || json.Unmarshal(was.Report, &had) != nil || had.Outcome != r.Report.Outcome {
		return ErrStale
	}
	return nil
}

// Stop stores why an Attempt is to end; only the first reason counts.
func (s *Store) Stop(ctx context.Context, attempt, fence int64, why task.StopReason, note string) error {
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		n, err := exec(tx, "attempt/stop", args{
			"attempt": attempt, "fence": fence, "why": string(why), "note": clean(note, maxNote), "replica": s.cfg.Replica,
		})
		if err != nil || n > 0 {
			return err
		}
		was, err := readStanding(tx, attempt, fence)
		if err == nil && was.Finished {
			err = ErrStale
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("stop attempt %d: %w", attempt, err)
	}
	s.announce(effects{attempts: []int64{attempt}})
	return nil
}

// SeePod keeps a pod of an Attempt that was seen bound to a node. Ended is never taken back.
func (s *Store) SeePod(ctx context.Context, attempt int64, p task.KnownPod) error {
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		_, err := exec(tx, "attempt/see_pod", args{"attempt": attempt, "uid": p.UID, "name": p.Name, "node": p.Node, "ended": p.Ended})
		return err
	})
	if err != nil {
		return fmt.Errorf("keep a pod of attempt %d: %w", attempt, err)
	}
	return nil
}

// Outlived keeps that nobody runs any more who has started an Attempt inline under a name that begins with ours, and not with
// but.
func (s *Store) Outlived(ctx context.Context, ours, but string) error {
	var attempts []int64
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		attempts = nil
		return query(tx, "attempt/outlived", args{"ours": ours, "but": but}, &attempts)
	})
	if err != nil {
		return fmt.Errorf("end what earlier processes of this pod ran: %w", err)
	}
	s.announce(effects{attempts: attempts})
	return nil
}

// MarkClosed records that Job and pods of a finished Attempt are closed in the cluster.
func (s *Store) MarkClosed(ctx context.Context, attempt int64) error {
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		_, err := exec(tx, "attempt/closed", args{"attempt": attempt})
		return err
	})
	if err != nil {
		return fmt.Errorf("close attempt %d: %w", attempt, err)
	}
	return nil
}

// maxTail is what is kept of a log, compressed.
const maxTail = 16 << 10

// compressTail keeps the end of a log in at most maxTail bytes.
func compressTail(tail []byte) []byte {
	for len(tail) > 0 {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write(tail) // a buffer takes everything
		_ = z.Close()
		if out.Len() <= maxTail {
			return out.Bytes()
		}
		tail = tail[len(tail)-len(tail)*3/4:]
	}
	return nil
}

// KeepLog keeps the end of a log that no runner has sent. One that is kept already stays.
func (s *Store) KeepLog(ctx context.Context, attempt int64, tail []byte) error {
	kept := compressTail(tail)
	if len(kept) == 0 {
		return nil
	}
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		_, err := exec(tx, "attempt/keep_late_log", args{"attempt": attempt, "bytes": kept})
		return err
	})
	if err != nil {
		return fmt.Errorf("keep the log of attempt %d: %w", attempt, err)
	}
	return nil
}

// LogTail gives the kept end of an Attempt's log; ErrNotFound where none is kept.
func (s *Store) LogTail(ctx context.Context, attempt int64) ([]byte, error) {
	var rows []struct{ Bytes []byte }
	if err := query(s.db.WithContext(ctx), "attempt/log", args{"attempt": attempt}, &rows); err != nil {
		return nil, classify(ctx, err)
	}
	if len(rows) == 0 {
		return nil, ErrNotFound
	}
	z, err := gzip.NewReader(bytes.NewReader(rows[0].Bytes))
	if err != nil {
		return nil, fmt.Errorf("read the log of attempt %d: %w", attempt, err)
	}
	tail, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("read the log of attempt %d: %w", attempt, err)
	}
	return tail, nil
}
