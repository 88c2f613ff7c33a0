package r2

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/e2e/bench/report"
	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

// rounds is how often each number of stops is measured, in turn.
const rounds = 3

// R2 measures on a real node.
func R2(ctx context.Context, r *report.Report) (err error) {
	defer func() { err = errors.Join(err, rig.Down()) }()
	return seated(func(t testing.TB) {
		on := rig.New(t, rig.Options{Profile: local.Node, Version: rig.Released(t), Env: map[string]string{
			"SLIPWAY_CALLER_RATE": "0", // one caller asks for all
		}})
		on.Exec(t, "UPDATE slipway.queues SET cap = 100, ns_cap = 100")
		for round := range rounds {
			for _, m := range []struct {
				how             stop
				n               int
				median, slowest float64 // budgets, in ms
			}{{byCancel, 1, 1000, 2000}, {byCancel, 40, 1000, 2000}, {bare, 40, 0, 0}} {
				if ctx.Err() != nil {
					t.Fatalf("stopped: %v", ctx.Err())
				}
				name := fmt.Sprintf("%s → SIGTERM, %d at once", m.how.name, m.n)
				took := stopped(t, on, m.n, m.how)
				r.Add(report.Figure{Name: name + ", p50", Unit: "ms", Rig: "R2", Budget: m.median}, report.Quantile(took, 0.50))
				r.Add(report.Figure{Name: name + ", p99", Unit: "ms", Rig: "R2", Budget: m.slowest}, report.Quantile(took, 0.99))
				if err := r.Samples(name, round, took); err != nil {
					t.Fatalf("%v", err)
				}
			}
		}
	})
}

// seat is the place of a test for what runs outside of one: the rig asks for it.
type seat struct {
	*testing.B
	said []string
}

// Errorf keeps what went wrong.
func (s *seat) Errorf(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
	s.Fail()
}

// Fatalf keeps what went wrong and ends what runs.
func (s *seat) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	s.FailNow()
}

// Fatal is Fatalf without a format.
func (s *seat) Fatal(args ...any) { s.Fatalf("%s", fmt.Sprint(args...)) }

// seated runs fn once and takes down what it has put up.
func seated(fn func(t testing.TB)) error {
	s := &seat{}
	finished := false
	testing.Benchmark(func(b *testing.B) {
		if finished {
			return
		}
		s.B = b
		fn(s)
		finished = true
	})
	if !finished || len(s.said) > 0 {
		return errors.New(strings.Join(append(s.said, "it did not come to its end"), "; "))
	}
	return nil
}
