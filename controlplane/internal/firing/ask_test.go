package firing

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// shelf is schedules that are due until they have fired.
type shelf struct {
	mu    sync.Mutex
	due   []Schedule
	fired map[string]time.Time
}

func (b *shelf) Due(_ context.Context, limit int) ([]Schedule, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Schedule
	for _, s := range b.due {
		if b.fired[s.ID].IsZero() && len(out) < limit {
			out = append(out, s)
		}
	}
	return out, nil
}

func (b *shelf) Fire(_ context.Context, _ int, verdicts Verdicts) (Pass, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v := range verdicts {
		b.fired[v.ID] = time.Now()
	}
	return Pass{}, nil
}

func (b *shelf) Overtaken(context.Context, int) ([]string, error) { return nil, nil }
func (b *shelf) Replace(context.Context, string) error            { return nil }

// moods answers about a namespace after a while, or with an error.
type moods struct {
	mu    sync.Mutex
	after map[string]time.Duration
	asked map[string]int
	most  map[string]int // at once
	under map[string]int
}

func (m *moods) Ask(ctx context.Context, s Schedule) (Verdict, error) {
	m.mu.Lock()
	wait := m.after[s.Namespace]
	m.asked[s.Namespace]++
	m.under[s.Namespace]++
	m.most[s.Namespace] = max(m.most[s.Namespace], m.under[s.Namespace])
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.under[s.Namespace]--
		m.mu.Unlock()
	}()
	select {
	case <-time.After(wait):
		return Verdict{Found: []string{s.Namespace}}, nil
	case <-ctx.Done():
		return Verdict{}, fmt.Errorf("%w: %w", task.ErrUnavailable, ctx.Err())
	}
}

func TestANamespaceThatAnswersSlowlyHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &shelf{fired: map[string]time.Time{}}
		m := &moods{
			after: map[string]time.Duration{"slow": 12 * time.Second, "dead": time.Hour, "fast": 10 * time.Millisecond},
			asked: map[string]int{}, most: map[string]int{}, under: map[string]int{},
		}
		add := func(namespace string, n int) {
			for i := range n {
				id := fmt.Sprintf("%s-%d", namespace, i)
				b.due = append(b.due, Schedule{ID: id, Namespace: namespace, Template: []byte(id), Revision: 1})
			}
		}
		// More than are looked at in one go, and before all others.
		add("dead", asked+100)
		add("slow", 3)
		add("fast", 50)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		r := New(Config{Book: b, Rights: m, Log: slog.New(slog.DiscardHandler)})
		began := time.Now()
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(40 * time.Second)
		synctest.Wait()
		b.mu.Lock()
		for _, s := range b.due {
			after := b.fired[s.ID].Sub(began)
			switch fired := !b.fired[s.ID].IsZero(); s.Namespace {
			case "fast":
				if !fired || after > 4*time.Second { // two looks, each with its patience
					t.Fatalf("%s fired %v after %v", s.ID, fired, after)
				}
			case "slow":
				if !fired || after > 16*time.Second {
					t.Fatalf("%s fired %v after %v", s.ID, fired, after)
				}
			default:
				if fired {
					t.Fatalf("%s fired without an answer", s.ID)
				}
			}
		}
		b.mu.Unlock()
		m.mu.Lock()
		if m.most["dead"] != perNamespace || m.asked["slow"] != 3 {
			t.Errorf("asked %d at once about one namespace, and %d times about 3 schedules of another", m.most["dead"], m.asked["slow"])
		}
		m.mu.Unlock()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
