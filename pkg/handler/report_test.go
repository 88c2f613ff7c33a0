package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/pkg/task"
)

func number(n int) *int { return &n }

func TestErrorsBecomeOutcomes(t *testing.T) {
	broken := errors.New("no such bucket")
	cases := map[string]struct {
		end  ending
		want task.Report
		code int
	}{
		"plain error": {
			ending{err: broken},
			task.Report{Outcome: task.OutcomeFailed, Reason: task.ReasonError, Message: "no such bucket"},
			1,
		},
		"permanent": {
			ending{err: fmt.Errorf("warm: %w", Permanent(broken, "no_bucket"))},
			task.Report{Outcome: task.OutcomeRejected, Reason: "no_bucket", Message: "warm: no such bucket"},
			1,
		},
		"permanent without a reason keeps that of the failure": {
			ending{err: Permanent(&Failure{Reason: "gone", Message: "gone for good"}, "")},
			task.Report{Outcome: task.OutcomeRejected, Reason: "gone", Message: "gone for good"},
			1,
		},
		"retry after": {
			ending{err: RetryAfter(broken, 90*time.Second)},
			task.Report{Outcome: task.OutcomeFailed, Reason: task.ReasonError, Message: "no such bucket", RetryAfter: 90},
			1,
		},
		"failure with an exit code": {
			ending{err: &Failure{Reason: task.ReasonExitCode, ExitCode: number(3)}},
			task.Report{Outcome: task.OutcomeFailed, Reason: task.ReasonExitCode, Message: "exit_code", ExitCode: number(3)},
			3,
		},
		"an exit code that a runner reserves is reported but not used": {
			ending{err: &Failure{Reason: task.ReasonExitCode, ExitCode: number(121)}},
			task.Report{Outcome: task.OutcomeFailed, Reason: task.ReasonExitCode, Message: "exit_code", ExitCode: number(121)},
			1,
		},
		"a reason with spaces stays one word": {
			ending{err: &Failure{Reason: "disk is full", Message: "x"}},
			task.Report{Outcome: task.OutcomeFailed, Reason: "disk_is_full", Message: "x"},
			1,
		},
		"finished although told to stop": {
			ending{cause: ErrCanceled},
			task.Report{Outcome: task.OutcomeSucceeded},
			0,
		},
		"an exit with 0 that is no success exits with 1": {
			ending{cause: ErrTerminated, err: &Failure{Reason: task.ReasonSignal, Message: "left no result", ExitCode: number(0)}},
			task.Report{
				Outcome: task.OutcomeLost, Reason: task.ReasonTerminated, ExitCode: number(0),
				Message: "the pod is being stopped: left no result",
			},
			1,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := conclude(c.end)
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(c.want)
			if !bytes.Equal(a, b) {
				t.Errorf("got  %s\nwant %s", a, b)
			}
			if code := exitCode(got); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
		})
	}
}

func TestAReportHoldsNothingThatADatabaseRefuses(t *testing.T) {
	raw, err := encodeResult(json.RawMessage(`{"a\u0000":"x\u0000y","lone":"\ud800","bad":"` + "\xff" + `","n":1.50,"html":"<&>"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(raw), `{"a":"xy","bad":"`+"\uFFFD"+`","html":"<&>","lone":"`+"\uFFFD"+`","n":1.50}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r := conclude(ending{err: errors.New("bad \x00\xff" + strings.Repeat("é", maxMessage))})
	if !utf8.ValidString(r.Message) || strings.Contains(r.Message, "\x00") || len(r.Message) > maxMessage || len(r.Message) < maxMessage-1 {
		t.Errorf("message of %d bytes, valid %v", len(r.Message), utf8.ValidString(r.Message))
	}
}

func TestAResultThatCannotBeKeptIsAFailureThatSaysSo(t *testing.T) {
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	for name, result := range map[string]any{
		"too large":    strings.Repeat("x", maxResult),
		"no JSON":      make(chan int),
		"out of range": json.RawMessage(`1e999999`),
		"too deep":     json.RawMessage(deep),
	} {
		r := conclude(ending{result: result})
		if r.Outcome != task.OutcomeFailed || r.Reason != ReasonResult || r.Message == "" || r.Result != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := conclude(ending{result: strings.Repeat("x", maxResult-2)}); r.Outcome != task.OutcomeSucceeded {
		t.Errorf("a result of exactly the bound: %+v", r)
	}
}

func TestTheTailKeepsTheEndAndPassesEverythingOn(t *testing.T) {
	var kept tail
	var out, all bytes.Buffer
	a, b := kept.stream(&out), kept.stream(&out)
	for i := range 9000 {
		line := fmt.Sprintf("line %d \xff\n", i)
		all.WriteString(line)
		to := a
		if i%2 == 1 {
			to = b
		}
		if _, err := to.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out.Bytes(), all.Bytes()) {
		t.Error("the output was changed on its way")
	}
	if got, want := kept.bytes(), all.Bytes()[all.Len()-maxTail:]; !bytes.Equal(got, want) {
		t.Errorf("kept %d bytes that are not the end", len(got))
	}
	if _, err := a.Write(bytes.Repeat([]byte("z"), 3*maxTail)); err != nil || len(kept.bytes()) != maxTail {
		t.Errorf("one long write: kept %d, %v", len(kept.bytes()), err)
	}
}

func TestParametersThatAHandlerDoesNotKnowAreRefused(t *testing.T) {
	var params struct{ Size int }
	for _, raw := range []string{`{"sise": 3}`, `[]`, `{"Size": "x"}`} {
		err := Task{Params: json.RawMessage(raw)}.Decode(&params)
		if r := conclude(ending{err: err}); r.Outcome != task.OutcomeRejected || r.Reason != ReasonParams {
			t.Errorf("%s: %+v", raw, r)
		}
	}
	if err := (Task{}).Decode(&params); err != nil {
		t.Errorf("no parameters at all: %v", err)
	}
}
