package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// What is kept of a runner's words.
const (
	maxMessage  = 4 * kib
	maxProgress = 500
	maxReason   = 63
	maxResult   = 64 * kib
	maxTail     = 64 * kib
	cutMark     = " … (cut)"
)

// longestHold is the longest that the answer to a heartbeat waits: well below readTimeout, after which the connection
// counts as broken.
const longestHold = 15 * time.Second

// StartAttempt hands the work of an Attempt to the first pod that asks for it.
func (s *server) StartAttempt(ctx context.Context, r StartAttemptRequestObject) (StartAttemptResponseObject, error) {
	ctx, known := plain(ctx)
	from := known.identity
	err := s.pods.Carries(ctx, from, r.Body.Attempt, r.Body.Fence)
	if errors.Is(err, task.ErrNotFound) {
		return nil, ErrWrongPod
	}
	if err != nil {
		return nil, fmt.Errorf("look at the pod of a start: %w", err)
	}
	t, a, err := s.runners.Start(ctx, Start{Attempt: r.Body.Attempt, Fence: r.Body.Fence, Pod: from})
	if err != nil {
		return nil, fmt.Errorf("start attempt: %w", err)
	}
	known.task = t.ID
	key := auth.Session{Attempt: r.Body.Attempt, Fence: r.Body.Fence, PodUID: from.PodUID}.Key(s.sessionKey)
	return StartAttempt200JSONResponse(api.StartAnswer{
		TaskID: t.ID, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, AttemptNumber: int32(a.Number),
		Params: t.Params, SessionKey: key,
		RunSeconds: float64(t.Spec.RunDeadline), GraceSeconds: float64(t.Spec.Grace),
		HeartbeatSeconds: s.heartbeat.Seconds(), FenceAfterSeconds: float64(t.Spec.FenceAfter),
		HoldSeconds: s.hold(t.Spec.FenceAfter.Duration()).Seconds(),
	}), nil
}

// hold is for how long the answer to a heartbeat may wait: no two calls of a runner are under way at a time. A held call
// that nobody answers any more is found that much later, so that there is none where the fence time is short.
func (s *server) hold(fenceAfter time.Duration) time.Duration {
	if fenceAfter < 6*s.heartbeat {
		return 0
	}
	return min(s.heartbeat, longestHold)
}

// Heartbeat stores that a handler is at work and tells it what it has to know.
func (s *server) Heartbeat(ctx context.Context, r HeartbeatRequestObject) (HeartbeatResponseObject, error) {
	ctx, known := plain(ctx)
	b := r.Body
	if err := s.inSession(known, b.Attempt, b.Fence, b.PodUID); err != nil {
		return nil, err
	}
	beat := Beat{Attempt: b.Attempt, Fence: b.Fence, PodUID: b.PodUID}
	if b.Progress != nil {
		b.Progress.Message = cut(b.Progress.Message, maxProgress)
		raw, err := json.Marshal(b.Progress)
		if err != nil {
			return nil, fmt.Errorf("write progress: %w", err)
		}
		beat.Progress = raw
	}
	if b.HoldSeconds > 0 {
		hold, cancel := context.WithTimeout(s.going, min(time.Duration(b.HoldSeconds*float64(time.Second)), longestHold))
		defer cancel()
		beat.Hold = hold.Done()
	}
	hear, err := s.runners.Beat(ctx, beat)
	if err != nil {
		return nil, fmt.Errorf("store a heartbeat: %w", err)
	}
	return Heartbeat200JSONResponse(api.HeartbeatAnswer{Cancel: hear.Cancel, SecondsLeft: hear.Left.Seconds()}), nil
}

// FinishAttempt stores a runner's word about its end.
func (s *server) FinishAttempt(ctx context.Context, r FinishAttemptRequestObject) (FinishAttemptResponseObject, error) {
	ctx, known := plain(ctx)
	b := r.Body
	if err := s.inSession(known, b.Attempt, b.Fence, b.PodUID); err != nil {
		return nil, err
	}
	err := s.runners.Report(ctx, Report{
		Attempt: b.Attempt, Fence: b.Fence, PodUID: b.PodUID, Report: report(b), Tail: b.LogTail[max(0, len(b.LogTail)-maxTail):],
	})
	if err != nil {
		return nil, fmt.Errorf("store a report: %w", err)
	}
	return FinishAttempt204Response{}, nil
}

func (s *server) inSession(known *call, attempt, fence int64, podUID string) error {
	return auth.Session{Attempt: attempt, Fence: fence, PodUID: podUID}.Check(s.sessionKey, known.token)
}

var oddReason = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// report brings a runner's words into the bounds of what is kept. An outcome is never refused for its texts.
func report(b *api.FinishRequest) task.Report {
	out := task.Report{
		Outcome: task.Outcome(b.Outcome), Reason: task.Reason(cutTo(oddReason.ReplaceAllString(b.Reason, "_"), maxReason)),
		Message: cut(b.Message, maxMessage), RetryAfter: min(task.Seconds(b.RetryAfter), task.MaxBackoff),
	}
	if b.ExitCode != nil {
		code := int(*b.ExitCode)
		out.ExitCode = &code
	}
	switch {
	case len(b.Result) > maxResult:
		note := fmt.Sprintf("(result left out: %d bytes, at most %d are kept)", len(b.Result), maxResult)
		out.Message = strings.TrimSpace(cut(out.Message, maxMessage-len(note)-1) + " " + note)
	case len(b.Result) > 0 && string(b.Result) != "null":
		out.Result = b.Result
	}
	return out
}

// cut shortens text to at most n bytes and marks that it did.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return cutTo(text, n-len(cutMark)) + cutMark
}

// cutTo shortens text to at most n bytes, never in the middle of a character.
func cutTo(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
