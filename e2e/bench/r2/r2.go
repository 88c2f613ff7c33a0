package r2

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"slipway.dev/slipway/e2e/bench/report"
	"slipway.dev/slipway/e2e/bench/seat"
	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

// rounds is how often each number of stops is measured, in turn.
const rounds = 3

// R2 measures on a real node.
func R2(ctx context.Context, r *report.Report) (err error) {
	defer func() { err = errors.Join(err, rig.Down()) }()
	return seat.Take(func(t testing.TB) {
		on := rig.New(t, rig.Options{Profile: local.Node, Version: rig.Released(t), Env: map[string]string{
			"SLIPWAY_CALLER_RATE": "0", // one caller asks for all
		}})
		on.Exec(t, "UPDATE slipway.queues SET cap = 100, ns_cap = 100")
		for range rounds {
			for _, m := range []struct {
				how             stop
				n               int
				median, slowest float64 // budgets, in ms
			}{{byCancel, 1, 1000, 2000}, {byCancel, 40, 1000, 2000}, {bare, 40, report.NoBudget, report.NoBudget}} {
				if ctx.Err() != nil {
					t.Fatalf("stopped: %v", ctx.Err())
				}
				name := fmt.Sprintf("%s → SIGTERM, %d at once", m.how.name, m.n)
				took := stopped(t, on, m.n, m.how)
				if err := r.Keep(name, report.Milliseconds(took),
					report.Figure{Name: name + ", p50", Unit: "ms", Rig: "R2", Of: report.P50, Budget: m.median},
					report.Figure{Name: name + ", p99", Unit: "ms", Rig: "R2", Of: report.P99, Budget: m.slowest}); err != nil {
					t.Fatalf("%v", err)
				}
			}
		}
	})
}
