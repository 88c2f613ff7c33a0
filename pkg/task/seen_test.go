package task

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestATerminationMessageComesBackAsItWas(t *testing.T) {
	for _, m := range []Termination{
		{Attempt: 7, Fence: 41, Outcome: OutcomeSucceeded},
		{Attempt: 1 << 62, Fence: 1 << 62, Outcome: OutcomeFailed, Reason: ReasonExitCode, Text: "exit 3: no such\nfile"},
		{Attempt: 1, Fence: 2, Outcome: TerminationStarted},
	} {
		got, ok := ParseTermination(m.String())
		if !ok || got != m {
			t.Errorf("got %+v, %v; want %+v", got, ok, m)
		}
	}
}

func TestALongTextNeverLosesTheOutcome(t *testing.T) {
	m := Termination{Attempt: 7, Fence: 41, Outcome: OutcomeFailed, Reason: "own_reason", Text: strings.Repeat("ü", 4096)}
	line := m.String()
	if len(line) > 1024 || !utf8.ValidString(line) {
		t.Fatalf("%d bytes, valid %v", len(line), utf8.ValidString(line))
	}
	// The kubelet may cut it further, in the middle of a character.
	for n := len(line); n > 40; n-- {
		got, ok := ParseTermination(line[:n])
		if !ok || got.Outcome != OutcomeFailed || got.Reason != "own_reason" {
			t.Fatalf("cut to %d bytes: %+v, %v", n, got, ok)
		}
	}
}

func TestAReasonIsOneWord(t *testing.T) {
	m := Termination{Attempt: 7, Fence: 41, Outcome: OutcomeFailed, Reason: "disk full\n succeeded", Text: "text"}
	got, ok := ParseTermination(m.String())
	if !ok || got.Reason != "disk_full_succeeded" || got.Text != "text" {
		t.Errorf("got %+v, %v", got, ok)
	}
}

func TestWhatIsNotOursIsNotRead(t *testing.T) {
	for _, text := range []string{"", "v1", "v1 7 41", "v1 7 41 failed", "v2 7 41 failed -", "v1 x 41 failed -", "v1 7 y failed -", "panic: v1 7 41 failed -"} {
		if m, ok := ParseTermination(text); ok {
			t.Errorf("%q was read as %+v", text, m)
		}
	}
}

func FuzzParseTermination(f *testing.F) {
	f.Add("v1 7 41 failed exit_code text")
	f.Fuzz(func(t *testing.T, text string) {
		m, ok := ParseTermination(text)
		if !ok || !m.Final() || m.Reason == "-" || !utf8.ValidString(text) {
			return
		}
		if again, ok := ParseTermination(m.String()); !ok || again.Attempt != m.Attempt || again.Fence != m.Fence {
			t.Errorf("%q: %+v became %+v", text, m, again)
		}
	})
}

func TestRefusalsThatMayPassEndNothing(t *testing.T) {
	for cause, want := range map[RefusalCause]bool{
		RefusedInvalid: true, RefusedNamespace: true, RefusedQuota: false, RefusedUnknown: false, RefusedUnavailable: false, "new": false,
	} {
		v, final := (&Refusal{Cause: cause, Message: "m"}).Verdict()
		if final != want || final && v.Outcome != OutcomeRejected {
			t.Errorf("%s: final %v, %+v", cause, final, v)
		}
	}
}

func TestStatesOnlyMoveForward(t *testing.T) {
	for _, s := range States {
		if s.May(s) {
			t.Errorf("%s may become itself", s)
		}
		for _, next := range States {
			if s.Terminal() && s.May(next) {
				t.Errorf("terminal %s may become %s", s, next)
			}
		}
	}
	order := []AttemptState{Leased, Launched, Started, Finished}
	for i, s := range order {
		for j, next := range order {
			if s.May(next) != (j > i) {
				t.Errorf("%s → %s: %v", s, next, s.May(next))
			}
		}
	}
}
