package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// maxFields is how many fields one answer names.
const maxFields = 20

// requestError refuses a request before anything is asked: it cannot be read, or breaks the API's document.
type requestError struct {
	status int
	detail string
	fields []api.FieldError
}

func (e *requestError) Error() string { return e.detail }

func badRequest(detail string, fields ...api.FieldError) error {
	return &requestError{status: http.StatusBadRequest, detail: detail, fields: fields}
}

func field(pointer, reason string) api.FieldError {
	return api.FieldError{Pointer: pointer, Reason: reason}
}

// answer is a problem with the headers that go with it.
type answer struct {
	api.Problem
	retryAfter time.Duration
	unknown    bool // an error that nobody foresaw: it is logged, and its text stays inside
}

func problem(status int, kind, detail string, fields ...api.FieldError) answer {
	return answer{Problem: api.Problem{
		Type: "urn:slipway:problem:" + kind, Title: http.StatusText(status), Status: status,
		Detail: detail, Errors: fields[:min(len(fields), maxFields)],
	}}
}

// after adds when to try again.
func (a answer) after(wait time.Duration) answer {
	a.retryAfter = wait
	return a
}

// problemOf is the one place where an error becomes a status.
func problemOf(err error) answer {
	var (
		bad       *requestError
		forbidden *auth.ForbiddenError
		invalid   *kinds.InvalidError
		conflict  *ConflictError
		ended     *EndedError
		hindered  *HinderedError
		full      *FullError
		hasty     *HastyError
		changed   *ChangedError
		missing   *MissingLogError
		tooLarge  *http.MaxBytesError
	)
	if a, ok := scheduleProblem(err); ok {
		return a
	}
	switch {
	case errors.As(err, &bad):
		return problem(bad.status, badKinds[bad.status], bad.detail, bad.fields...)
	case errors.As(err, &tooLarge):
		return problem(http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit))
	case errors.Is(err, auth.ErrNoIdentity):
		return problem(http.StatusUnauthorized, "no_identity", "a valid token is needed")
	case errors.As(err, &forbidden):
		return problem(http.StatusForbidden, "forbidden", forbidden.Error())
	case errors.Is(err, ErrWrongPod):
		return problem(http.StatusForbidden, "wrong_pod", ErrWrongPod.Error())
	case errors.Is(err, task.ErrNotFound):
		return problem(http.StatusNotFound, "not_found", "there is no such thing, or it is not yours to see")
	case errors.As(err, &missing):
		return problem(http.StatusNotFound, missing.Reason, missing.Message)
	case errors.As(err, &conflict):
		a := conflicting(conflict)
		var located *locatedError
		if errors.As(err, &located) {
			a.Errors = located.fields
		}
		return a
	case errors.Is(err, ErrBadPosition):
		return problem(http.StatusBadRequest, "bad_request", ErrBadPosition.Error())
	case errors.As(err, &ended):
		a := problem(http.StatusConflict, "ended", "the task has ended: "+string(ended.State))
		a.Task, a.State = ended.ID, string(ended.State)
		return a
	case errors.As(err, &hindered):
		return hindering(hindered)
	case errors.As(err, &changed):
		return problem(http.StatusConflict, "selection_changed", fmt.Sprintf("other tasks match than were shown, %d by now; dry_run shows them", changed.Count))
	case errors.Is(err, task.ErrOtherPod):
		return problem(http.StatusConflict, "other_pod", "another pod has started this attempt")
	case errors.Is(err, task.ErrStale):
		return problem(http.StatusConflict, "stale", "the attempt or its fence is no longer current, or it was asked to stop")
	case errors.As(err, &invalid):
		return problem(http.StatusUnprocessableEntity, "invalid", "the request was refused by a rule", wireFields(invalid.Fields)...)
	case errors.As(err, &full):
		a := problem(http.StatusTooManyRequests, "queue_full",
			fmt.Sprintf("namespace %s has too many tasks waiting in queue %s", full.Namespace, full.Queue))
		a.retryAfter = max(full.RetryAfter, time.Second)
		return a
	case errors.As(err, &hasty):
		return problem(http.StatusTooManyRequests, "rate_limited", "the caller asks faster than this server lets one caller").after(hasty.RetryAfter)
	case errors.Is(err, task.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		a := problem(http.StatusServiceUnavailable, "unavailable", "a part that this needs cannot be reached at the moment")
		a.retryAfter = 2 * time.Second
		return a
	case errors.Is(err, context.Canceled): // the caller has left, or we are going
		return problem(http.StatusServiceUnavailable, "unavailable", "the request was broken off").after(time.Second)
	}
	a := problem(http.StatusInternalServerError, "internal", "something went wrong here; the request id finds it in the server's log")
	a.unknown = true
	return a
}

// scheduleProblem is problemOf for what the routes of schedules alone refuse.
func scheduleProblem(err error) (a answer, ok bool) {
	var (
		rule     *RuleError
		used     *CalendarUsedError
		notFired *NotFiredError
	)
	switch {
	case errors.As(err, &rule):
		return problem(http.StatusBadRequest, "bad_rule", "the rule does not parse, or can never fire", wireFields(rule.Fields)...), true
	case errors.Is(err, ErrRevision):
		return problem(http.StatusPreconditionFailed, "changed", "it was changed since the revision that If-Match names, or is being changed without end"), true
	case errors.Is(err, ErrTaken):
		return problem(http.StatusConflict, "name_taken", "the namespace has one of that name", field("/name", "is taken")), true
	case errors.As(err, &used):
		return problem(http.StatusConflict, "in_use", used.Error()), true
	case errors.As(err, &notFired):
		a := problem(http.StatusConflict, notFired.Outcome, notFired.Why)
		a.Task = notFired.Task
		return a, true
	}
	return answer{}, false
}

var badKinds = map[int]string{
	http.StatusBadRequest:            "bad_request",
	http.StatusRequestEntityTooLarge: "too_large",
	http.StatusUnsupportedMediaType:  "unsupported_media_type",
	http.StatusNotFound:              "no_route",
	http.StatusMethodNotAllowed:      "method_not_allowed",
}

func conflicting(e *ConflictError) answer {
	if len(e.Conflicts) == 0 {
		return problem(http.StatusConflict, "conflict", "conflicts with what is there")
	}
	first := e.Conflicts[0]
	text := conflictTexts[first.Reason]
	if text == "" {
		text = "conflicts with a task that is there"
	}
	a := problem(http.StatusConflict, first.Reason, text)
	a.Task, a.State = first.Task, first.State
	if first.Reason == ConflictInProgress {
		a.retryAfter = time.Second
	}
	return a
}

func hindering(e *HinderedError) answer {
	a := problem(http.StatusConflict, e.Reason, hinderTexts[e.Reason])
	a.Task, a.State = e.Task, string(e.State)
	if e.Reason == "closing" {
		a.retryAfter = 5 * time.Second
	}
	return a
}

var hinderTexts = map[string]string{
	"claimed":   "the task runs; only a queued one can be changed",
	"not_ended": "the task has not ended",
	"dependent": "a task that waits for it has not ended",
	"child":     "a child of it has not ended",
	"parent":    "its parent has not ended",
	"closing":   "its Job is still being closed in the cluster",
	"not_held":  "nothing holds the lane",
	"composite": "a composite task holds the lane; it has no attempt to end, and is canceled instead",
}

var conflictTexts = map[string]string{
	ConflictLaneBusy:   "the lane is in use and on_conflict is reject",
	ConflictEpoch:      "the same lanes are cut into another number of parts, and that task is open in them; it can be taken once nothing is",
	ConflictBody:       "the idempotency key was used for another request",
	ConflictInProgress: "an earlier request with the same idempotency key has not ended yet",
}

func wireFields(in []kinds.FieldError) []api.FieldError {
	out := make([]api.FieldError, len(in))
	for i, f := range in {
		out[i] = field(f.Pointer, f.Reason)
	}
	return out
}

// locatedError adds to a refusal where in the request its causes stand.
type locatedError struct {
	error
	fields []api.FieldError
}

func (e *locatedError) Unwrap() error { return e.error }

// fail answers a request with the problem that err is.
func (s *server) fail(c *gin.Context, err error) {
	a := problemOf(err)
	if a.unknown {
		s.log.ErrorContext(c.Request.Context(), "request failed", slog.Any("error", err),
			slog.String("request", requestID(c)), slog.String("route", c.FullPath()))
	} else if a.Status == http.StatusServiceUnavailable {
		s.log.WarnContext(c.Request.Context(), "a part that a request needs cannot be reached", slog.Any("error", err),
			slog.String("request", requestID(c)), slog.String("route", c.FullPath()))
	}
	if c.Writer.Written() {
		c.Abort() // half an answer is out: the broken connection says the rest
		return
	}
	h := c.Writer.Header()
	if a.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="slipway"`)
	}
	if a.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(a.retryAfter.Seconds()))))
	}
	a.RequestID = requestID(c)
	body, err := json.Marshal(a.Problem)
	if err != nil { // a Problem is strings and numbers
		body = []byte(`{}`)
	}
	c.Abort()
	c.Data(a.Status, "application/problem+json", append(body, '\n'))
}
