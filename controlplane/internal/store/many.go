package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

// PickRule says which Tasks a change of many can be about.
type PickRule string

// The rules. Parts of composite Tasks follow those. What a retry by hand was made of, and in lanes of mode latest what a
// newer one has overtaken, is not retried again.
const (
	PickEnded PickRule = `t.ended_at IS NOT NULL AND t.parent IS NULL AND t.children = 0
		AND NOT EXISTS (SELECT 1 FROM slipway.tasks r WHERE r.retry_of = t.key)
		AND (t.mode <> 'latest' OR NOT EXISTS (SELECT 1 FROM slipway.tasks n WHERE n.lane = t.lane AND n.kind = t.kind AND n.key > t.key))`
	PickOpen PickRule = `t.state IN ('queued', 'running') AND t.cancel_at IS NULL AND t.parent IS NULL`
)

// Picked names a Task that a change of many is about.
type Picked struct{ ID, Namespace, Kind string }

// Pick names the Tasks that match, the oldest first, at most so many. Cursor and Limit of the filter do not count.
func (s *Store) Pick(ctx context.Context, f ListFilter, rule PickRule, most int) ([]Picked, error) {
	f.Cursor = ""
	var out []Picked
	err := s.narrowed(ctx, func(tx *gorm.DB) error {
		db, err := f.narrow(tx.Table("slipway.tasks AS t"))
		if err != nil {
			return err
		}
		out = nil
		return db.Select("t.id", "t.namespace", "t.kind").Where(string(rule)).Order("t.key").Limit(most).Find(&out).Error
	})
	if err != nil {
		return nil, fmt.Errorf("pick tasks: %w", err)
	}
	return out, nil
}

// TasksByID reads Tasks in the order of their ids; one that is gone is left out.
func (s *Store) TasksByID(ctx context.Context, ids []string) ([]task.Task, error) {
	found, err := s.tasksByID(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	out := make([]task.Task, 0, len(found))
	for _, id := range ids {
		if t, ok := found[id]; ok {
			out = append(out, t)
		}
	}
	return out, nil
}

// Pin is an idempotency key under which it is kept which Tasks a change of many is about.
type Pin struct {
	Caller, Key string
	Hash        []byte
}

func (p Pin) row(ids []string) keyRow {
	kept := make([]answer, len(ids))
	for i, id := range ids {
		kept[i].ID = id
	}
	return keyRow{Key: p.Key, Hash: hex.EncodeToString(p.Hash), Answer: kept}
}

// Pinned gives what was kept under a key, in its order; a *ConflictError where that was for another request.
func (s *Store) Pinned(ctx context.Context, p Pin) (all []Picked, ok bool, err error) {
	ids, over, err := p.recall(s.db.WithContext(ctx))
	if err != nil || ids == nil || len(over) > 0 {
		return nil, false, classify(ctx, err)
	}
	all, err = s.named(ctx, ids)
	return all, err == nil, err
}

// Keep keeps which Tasks are meant. Where another request with the same key was first, its Tasks are meant.
func (s *Store) Keep(ctx context.Context, p Pin, ids []string) ([]Picked, error) {
	kept := ids
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		kept = ids
		for range 2 { // what is over is taken out of the way once
			var won []struct{ Key string }
			err := query(tx, "enqueue/remember", args{"caller": p.Caller, "keys": jsonOf([]keyRow{p.row(ids)})}, &won)
			if sqlState(err) == lockNotAvailable {
				return conflict(Conflict{Item: -1, Reason: ConflictInProgress})
			}
			if err != nil || len(won) > 0 {
				return err
			}
			earlier, over, err := p.recall(tx)
			if err != nil {
				return err
			}
			if earlier != nil {
				kept = earlier
				return nil
			}
			if _, err := exec(tx, "enqueue/forget", args{"caller": p.Caller, "keys": jsonOf(over)}); err != nil {
				return err
			}
		}
		return conflict(Conflict{Item: -1, Reason: ConflictInProgress})
	})
	if err != nil {
		return nil, fmt.Errorf("keep which tasks are meant: %w", err)
	}
	return s.named(ctx, kept)
}

// recall reads the ids under a key, or the row of it that counts no more; neither where there is nothing.
func (p Pin) recall(tx *gorm.DB) (ids []string, over []overRow, err error) {
	var found struct {
		Hash   string
		Answer []byte
		Over   bool
	}
	if err := query(tx, "enqueue/recall", args{"caller": p.Caller, "keys": jsonOf([]string{p.Key})}, &found); err != nil {
		return nil, nil, err
	}
	switch {
	case found.Answer == nil:
		return nil, nil, nil
	case found.Over:
		return nil, []overRow{{p.Key, found.Answer}}, nil
	}
	var kept []answer
	if err := json.Unmarshal(found.Answer, &kept); err != nil || len(kept) == 0 {
		return nil, nil, fmt.Errorf("read what is kept under an idempotency key: %w", err)
	}
	if found.Hash != hex.EncodeToString(p.Hash) {
		return nil, nil, conflict(Conflict{Item: -1, TaskID: kept[0].ID, Reason: ConflictBody})
	}
	for _, k := range kept {
		ids = append(ids, k.ID)
	}
	return ids, nil, nil
}

// named tells of each Task what Picked says.
func (s *Store) named(ctx context.Context, ids []string) ([]Picked, error) {
	var rows []Picked
	if err := query(s.db.WithContext(ctx), "read/named", args{"ids": jsonOf(ids)}, &rows); err != nil {
		return nil, classify(ctx, err)
	}
	return rows, nil
}

// once leaves out the items whose Task was submitted again before. The rows of the Tasks that they repeat are locked: two
// requests for the same never both see that nothing was done yet. Those have ended, so nobody who holds a lane waits for
// one of them.
func (w *submit) once(tx *gorm.DB) error {
	sources := map[string]*entry{}
	for _, e := range w.fresh() {
		if e.item.Once {
			sources[e.item.Task.RetryOf] = e
		}
	}
	if len(sources) == 0 {
		return nil
	}
	ids := make([]string, 0, len(sources))
	for id := range sources {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if _, err := exec(tx, "enqueue/lock_sources", args{"ids": jsonOf(ids)}); err != nil {
		return err
	}
	var done []struct{ Source, Task string }
	if err := query(tx, "enqueue/again", args{"ids": jsonOf(ids)}, &done); err != nil {
		return err
	}
	for _, d := range done {
		w.repeated[sources[d.Source].top] = answer{ID: d.Task, Result: Repeated}
	}
	return nil
}
