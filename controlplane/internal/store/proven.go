package store

import (
	"context"
	"fmt"
	"sync"

	"gorm.io/gorm"
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

// doubted reports whether claims were made from another lineage before.
func (p *proven) doubted(lineage string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lineage != "" && p.lineage != lineage
}

func (p *proven) set(lineage string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lineage = lineage
}

// Doubts says that the database may have been restored since RaiseFence: it is to be called again. One consumer.
func (s *Store) Doubts() <-chan struct{} { return s.proven.doubts }

// fencesUnderWay is how far fences are moved past those that are known. A claim that was made from the database before
// it was restored may still be on its way to the cluster, where no Job shows its fence yet: none of them meets one that
// is made from now on.
const fencesUnderWay = 1000

// Lineage names the database as it is now: one that was restored, or whose standby took over, has another.
func (s *Store) Lineage(ctx context.Context) (string, error) {
	var row struct{ Lineage string }
	if err := query(s.db.WithContext(ctx), "attempt/lineage", nil, &row); err != nil {
		return "", classify(ctx, fmt.Errorf("ask for the database's lineage: %w", err))
	}
	return row.Lineage, nil
}

// RaiseFence makes every later fence larger than above, the largest in the cluster as it was read after lineage, and
// gives the last one that was drawn. From then on claims are made from this database, until it shows another lineage.
// ErrUnavailable says that it shows another already: then above may not know what the one before has drawn.
func (s *Store) RaiseFence(ctx context.Context, lineage string, above int64) (was int64, err error) {
	var row struct {
		Was     int64
		Lineage string
		Raised  *int64
	}
	err = s.inTx(ctx, func(tx *gorm.DB) error {
		// One at a time: another replica's move must not be taken back.
		if _, err := exec(tx, "attempt/prove_alone", nil); err != nil {
			return err
		}
		err := query(tx, "attempt/prove", args{
			"above": above, "under_way": fencesUnderWay, "lineage": lineage, "doubted": s.proven.doubted(lineage),
		}, &row)
		if err != nil || row.Raised == nil {
			return err
		}
		_, err = exec(tx, "attempt/prove_ids", nil)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("raise the fence: %w", err)
	}
	if row.Lineage != lineage {
		return 0, fmt.Errorf("raise the fence: %w: it was restarted while the cluster was read", ErrUnavailable)
	}
	s.proven.set(lineage)
	return row.Was, nil
}

// stillProven refuses what was read from a database whose fences were not compared.
func (s *Store) stillProven(ctx context.Context) error {
	lineage, err := s.Lineage(ctx)
	if err != nil {
		return err
	}
	return s.proven.check(lineage)
}
