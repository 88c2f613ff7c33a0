package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type pods struct {
	text string
	err  error
}

func (p pods) Logs(context.Context, task.Attempt, Request) (io.ReadCloser, error) {
	if p.err != nil {
		return nil, p.err
	}
	return io.NopCloser(strings.NewReader(p.text)), nil
}

type tails struct {
	text string
	err  error
}

func (k tails) LogTail(context.Context, int64) ([]byte, error) { return []byte(k.text), k.err }

func TestALogComesFromThePodElseFromWhatWasKeptElseSaysWhyNot(t *testing.T) {
	gone := fmt.Errorf("read: %w", task.ErrNotFound)
	refused := errors.New("pods \"x\" is forbidden: raw text of the cluster")
	waiting := task.Attempt{State: task.Launched}
	inline := task.Attempt{State: task.Started, StartedAt: time.Unix(1, 0), Executor: task.ExecutorInline}
	inlineEnded := task.Attempt{State: task.Finished, StartedAt: time.Unix(1, 0), Executor: task.ExecutorInline}
	running := task.Attempt{State: task.Started, StartedAt: time.Unix(1, 0)}
	ended := task.Attempt{State: task.Finished, StartedAt: time.Unix(1, 0)}
	neverRan := task.Attempt{State: task.Finished}
	for _, tc := range []struct {
		name    string
		attempt task.Attempt
		pods    pods
		tails   tails
		want    string // source and text, or reason
	}{
		{"running", running, pods{text: "a\n"}, tails{}, "live a\n"},
		{"ended, pod there", ended, pods{text: "a\n"}, tails{text: "k"}, "live a\n"},
		{"ended, pod there, nothing printed", ended, pods{}, tails{}, "live "},
		{"ended, pod gone", ended, pods{err: gone}, tails{text: "k\n"}, "kept k\n"},
		{"ended, container gone", ended, pods{text: dropped + "containerd://1"}, tails{text: "k\n"}, "kept k\n"},
		{"ended, container gone, nothing kept", ended, pods{text: dropped + "containerd://1"}, tails{err: gone}, PodLost},
		{"ended, cluster refuses", ended, pods{err: refused}, tails{text: "k\n"}, "kept k\n"},
		{"pod lost", ended, pods{err: gone}, tails{err: gone}, PodLost},
		{"never ran", neverRan, pods{err: gone}, tails{}, NeverStarted},
		{"running inline", inline, pods{err: gone}, tails{}, NotKeptYet},
		{"ran inline", inlineEnded, pods{err: gone}, tails{text: "k\n"}, "kept k\n"},
		{"inline, replica lost", inlineEnded, pods{err: gone}, tails{}, PodLost},
		{"not yet", waiting, pods{err: gone}, tails{}, NotStarted},
		{"a program that prints the kubelet's words", running, pods{text: dropped + "fun"}, tails{}, "live " + dropped + "fun"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := New(tc.pods, tc.tails).Open(t.Context(), tc.attempt, Request{})
			var missing *MissingError
			if errors.As(err, &missing) {
				if missing.Reason != tc.want || strings.Contains(missing.Message, "raw text") {
					t.Errorf("missing: %+v, want %s", missing, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Source + " " + string(text); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTroubleIsNoAbsence(t *testing.T) {
	down := fmt.Errorf("ask: %w", task.ErrUnavailable)
	for name, r := range map[string]*Reader{
		"cluster":  New(pods{err: down}, tails{}),
		"database": New(pods{err: task.ErrNotFound}, tails{err: down}),
	} {
		if _, err := r.Open(t.Context(), task.Attempt{}, Request{}); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATailIsTheLastLines(t *testing.T) {
	for _, tc := range []struct {
		text string
		n    int
		want string
	}{
		{"a\nb\nc\n", 0, "a\nb\nc\n"},
		{"a\nb\nc\n", 1, "c\n"},
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nc\n", 3, "a\nb\nc\n"},
		{"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"a\nb", 1, "b"},
		{"", 1, ""},
		{"\n\n", 1, "\n"},
		{"\n", 5, "\n"},
	} {
		if got := string(lastLines([]byte(tc.text), tc.n)); got != tc.want {
			t.Errorf("last %d of %q: %q, want %q", tc.n, tc.text, got, tc.want)
		}
	}
}
