package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"slipway.dev/slipway/pkg/task"
)

// Bounds of a report, in bytes.
const (
	maxMessage = 4 << 10
	maxResult  = 64 << 10
	maxTail    = 16 << 10
	maxDepth   = 200 // nesting of a result
)

// ending is how a handler came to its end.
type ending struct {
	result any
	err    error
	cause  error // why it was told to stop; nil if it was not
	silent bool  // it did not return although its grace period was over
}

// conclude turns an ending into what is reported. A handler that truly finished has succeeded, whatever it was told
// meanwhile; any other end of a handler that was told to stop is put down to what stopped it.
func conclude(end ending) task.Report {
	if end.err == nil && !end.silent {
		return done(end.result)
	}
	r := failed(end)
	if end.cause == nil {
		return r
	}
	r.RetryAfter = 0
	r.Message = sentence(end.cause.Error(), r.Message)
	switch {
	case errors.Is(end.cause, ErrCanceled):
		r.Outcome, r.Reason = task.OutcomeCanceled, task.ReasonCanceled
	case errors.Is(end.cause, ErrDeadline):
		r.Outcome, r.Reason = task.OutcomeTimedOut, task.ReasonRunDeadline
	case errors.Is(end.cause, ErrFenced):
		r.Outcome, r.Reason = task.OutcomeLost, task.ReasonHeartbeat
	case errors.Is(end.cause, ErrStale):
		r.Outcome, r.Reason = task.OutcomeLost, ReasonStale
	default:
		r.Outcome, r.Reason = task.OutcomeLost, task.ReasonTerminated
	}
	return r
}

func done(result any) task.Report {
	raw, err := encodeResult(result)
	if err != nil {
		return task.Report{Outcome: task.OutcomeFailed, Reason: ReasonResult, Message: cleanText(err.Error(), maxMessage)}
	}
	return task.Report{Outcome: task.OutcomeSucceeded, Result: raw}
}

// failed reads what kind of error a handler returned.
func failed(end ending) task.Report {
	if end.silent {
		return task.Report{Outcome: task.OutcomeFailed, Reason: task.ReasonError, Message: "the handler did not stop within its grace period"}
	}
	r := task.Report{Outcome: task.OutcomeFailed, Reason: task.ReasonError, Message: cleanText(end.err.Error(), maxMessage)}
	var failure *Failure
	if errors.As(end.err, &failure) {
		r.Reason, r.ExitCode = cleanReason(failure.Reason), failure.ExitCode
	}
	var later *retryAfterError
	if errors.As(end.err, &later) {
		r.RetryAfter = task.Seconds(max(later.after, 0).Seconds())
	}
	var final *permanentError
	if errors.As(end.err, &final) {
		r.Outcome, r.RetryAfter = task.OutcomeRejected, 0
		if final.reason != task.ReasonNone {
			r.Reason = cleanReason(final.reason)
		}
	}
	return r
}

// exitCode is what the process exits with: the command's own code where there is one and it is not one that a runner
// reserves, so that `kubectl get pod` says what the report says.
func exitCode(r task.Report) int {
	if r.Outcome == task.OutcomeSucceeded {
		return 0
	}
	if r.ExitCode == nil {
		return 1
	}
	switch code := *r.ExitCode; code {
	case 0, task.ExitGateRefused, task.ExitUnreachable:
		return 1
	default:
		return code
	}
}

func sentence(parts ...string) string {
	kept := parts[:0:0]
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return cleanText(strings.Join(kept, ": "), maxMessage)
}

// cleanText leaves out what a database does not store and cuts at a character, not inside one.
func cleanText(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if len(s) <= limit {
		return s
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// cleanReason keeps a Reason one short word: it stands between spaces in the termination message.
func cleanReason(reason task.Reason) task.Reason {
	const most = 63
	word := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
			return c
		}
		return '_'
	}, string(reason))
	if word == "" {
		return task.ReasonError
	}
	return task.Reason(word[:min(len(word), most)])
}

// encodeResult makes JSON that a database takes: no NUL, no broken UTF-8 or lone surrogate, no number out of range.
func encodeResult(result any) (json.RawMessage, error) {
	if result == nil {
		return nil, nil
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	if value, err = cleanValue(value, maxDepth); err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	cleaned := bytes.TrimSpace(out.Bytes())
	if len(cleaned) > maxResult {
		return nil, fmt.Errorf("the result has %d bytes; at most %d are kept", len(cleaned), maxResult)
	}
	return cleaned, nil
}

func cleanValue(value any, depth int) (any, error) {
	if depth == 0 {
		return nil, fmt.Errorf("it is nested more than %d levels deep", maxDepth)
	}
	var err error
	switch v := value.(type) {
	case string:
		return strings.ReplaceAll(v, "\x00", ""), nil
	case json.Number:
		f, err := strconv.ParseFloat(v.String(), 64)
		if err != nil || math.IsInf(f, 0) {
			return nil, fmt.Errorf("the number %.40s is out of range", v)
		}
	case []any:
		for i := range v {
			if v[i], err = cleanValue(v[i], depth-1); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name, inner := range v {
			cleaned, err := cleanValue(inner, depth-1)
			if err != nil {
				return nil, err
			}
			delete(v, name)
			v[strings.ReplaceAll(name, "\x00", "")] = cleaned
		}
	}
	return value, nil
}
