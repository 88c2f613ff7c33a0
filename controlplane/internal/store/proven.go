package store

import (
	"context"
	"fmt"
	"sync"
)

// proven remembers for which lineage of the database the fences are known to lie past those in the cluster. One that
// was restored, or whose standby took over, may have forgotten the newest: nothing is claimed from it, and nothing in
// the cluster is taken for an orphan, before they were compared again.
type proven struct {
	mu      sync.Mutex
	lineage string        // empty: nobody has compared yet
	doubts  chan struct{} // holds one
}

func (p *proven) check(lineage string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lineage == "" || p.lineage == lineage {
		return nil
	}
	select {
	case p.doubts <- struct{}{}:
	default:
	}
	return fmt.Errorf("%w: it was restarted, and its fences are not compared with the cluster's yet", ErrUnavailable)
}

func (p *proven) set(lineage string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lineage = lineage
}

// Doubts says that the database may have been restored since RaiseFence: it is to be called again. One consumer.
func (s *Store) Doubts() <-chan struct{} { return s.proven.doubts }

// RaiseFence makes every later fence larger than above, and gives the last one that was drawn. From then on claims are
// made from this database, until it shows another lineage.
func (s *Store) RaiseFence(ctx context.Context, above int64) (was int64, err error) {
	var row struct {
		Was     int64
		Lineage string
	}
	if err := query(s.db.WithContext(ctx), "attempt/prove", args{"above": above}, &row); err != nil {
		return 0, classify(ctx, fmt.Errorf("raise the fence: %w", err))
	}
	s.proven.set(row.Lineage)
	return row.Was, nil
}

// stillProven refuses what was read from a database whose fences were not compared.
func (s *Store) stillProven(ctx context.Context) error {
	var row struct{ Lineage string }
	if err := query(s.db.WithContext(ctx), "attempt/lineage", nil, &row); err != nil {
		return classify(ctx, fmt.Errorf("ask for the database's lineage: %w", err))
	}
	return s.proven.check(row.Lineage)
}
