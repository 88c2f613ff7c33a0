package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"gorm.io/gorm"
)

// Repeated answers a Batch whose idempotency keys were all seen before, as Enqueue would; ErrNotFound where one was not.
// Of the items only the keys and hashes count: their kinds may be gone by now.
func (s *Store) Repeated(ctx context.Context, b Batch) ([]Enqueued, error) {
	w := &submit{store: s, batch: b}
	for i := range b.Items {
		w.all = append(w.all, &entry{top: i, parent: -1})
	}
	w.reset()
	if _, err := w.recall(s.db.WithContext(ctx), w.keys()); err != nil {
		return nil, classify(ctx, err)
	}
	if len(w.repeated) < len(b.Items) {
		return nil, ErrNotFound
	}
	return w.answer(ctx)
}

type keyRow struct {
	Key    string   `json:"key"`
	Hash   string   `json:"hash"`
	Answer []answer `json:"answer"`
	tops   []int
}

// keys are the idempotency keys of the batch, with the items that each covers.
func (w *submit) keys() []keyRow {
	firsts := make([]answer, len(w.batch.Items))
	for _, e := range w.all {
		if e.parent < 0 {
			firsts[e.top] = answer{ID: e.id, Result: Created}
			if e.tail != nil {
				firsts[e.top] = answer{ID: e.tailID, Result: Coalesced}
			} else if e.into != nil {
				firsts[e.top] = answer{ID: e.into.id, Result: Coalesced}
			}
		}
	}
	if w.batch.Key != "" {
		tops := make([]int, len(firsts))
		for i := range tops {
			tops[i] = i
		}
		return []keyRow{{Key: w.batch.Key, Hash: hex.EncodeToString(w.batch.Hash), Answer: firsts, tops: tops}}
	}
	var rows []keyRow
	for i, item := range w.batch.Items {
		if item.Key != "" {
			rows = append(rows, keyRow{Key: item.Key, Hash: hex.EncodeToString(item.Hash), Answer: firsts[i : i+1], tops: []int{i}})
		}
	}
	return rows
}

// remember takes the idempotency keys, the first lock of all. What was seen before is answered from then.
func (w *submit) remember(tx *gorm.DB) error {
	rows := w.keys()
	if len(rows) == 0 {
		return nil
	}
	const tries = 3 // an answer that is over is taken out of the way once; another may win the place
	for range tries {
		var won []struct{ Key string }
		if err := query(tx, "enqueue/remember", args{"caller": w.batch.Caller, "keys": jsonOf(rows)}, &won); err != nil {
			if sqlState(err) == lockNotAvailable {
				return conflict(Conflict{Item: -1, Reason: ConflictInProgress}) // the transaction of the first sender is still open
			}
			return err
		}
		if len(won) == len(rows) {
			return nil
		}
		for _, k := range won {
			rows = slices.DeleteFunc(rows, func(r keyRow) bool { return r.Key == k.Key })
		}
		over, err := w.recall(tx, rows)
		if err != nil || len(over) == 0 {
			return err
		}
		if _, err := exec(tx, "enqueue/forget", args{"caller": w.batch.Caller, "keys": jsonOf(over)}); err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(r keyRow) bool {
			return !slices.ContainsFunc(over, func(o overRow) bool { return o.Key == r.Key })
		})
	}
	return conflict(Conflict{Item: -1, Reason: ConflictInProgress})
}

type overRow struct {
	Key    string          `json:"key"`
	Answer json.RawMessage `json:"answer"`
}

// recall reads keys that were there before; it gives those whose time is over.
func (w *submit) recall(tx *gorm.DB, rows []keyRow) ([]overRow, error) {
	names := make([]string, len(rows))
	byKey := map[string]keyRow{}
	for i, r := range rows {
		names[i], byKey[r.Key] = r.Key, r
	}
	var found []struct {
		Key, Hash string
		Answer    []byte
		Over      bool
	}
	if err := query(tx, "enqueue/recall", args{"caller": w.batch.Caller, "keys": jsonOf(names)}, &found); err != nil {
		return nil, err
	}
	var over []overRow
	var clash []Conflict
	for _, f := range found {
		r := byKey[f.Key]
		if f.Over {
			over = append(over, overRow{f.Key, f.Answer})
			continue
		}
		var then []answer
		if err := json.Unmarshal(f.Answer, &then); err != nil || len(then) == 0 {
			return nil, fmt.Errorf("read the answer kept under an idempotency key: %w", err)
		}
		if f.Hash != r.Hash || len(then) != len(r.tops) {
			clash = append(clash, Conflict{Item: w.keyItem(r), TaskID: then[0].ID, Reason: ConflictBody})
			continue
		}
		for i, top := range r.tops {
			w.repeated[top] = then[i]
		}
	}
	if len(clash) > 0 {
		return nil, conflict(clash...)
	}
	return over, nil
}

func (w *submit) keyItem(r keyRow) int {
	if w.batch.Key != "" {
		return -1
	}
	return r.tops[0]
}
