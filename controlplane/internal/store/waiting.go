package store

import (
	"sync"
	"time"

	"gorm.io/gorm"
)

// retrySoon is what a refused submitter is told to wait.
const retrySoon = 5 * time.Second

// waitingCounts remembers for a moment how much waits per queue and namespace: max_queued protects the database, it
// need not be exact, and a count at every submit would cost more than the submit.
type waitingCounts struct {
	mu   sync.Mutex
	rows map[waitingKey]*waitingCount
}

type waitingKey struct{ queue, namespace string }

type waitingCount struct {
	n, limit int
	until    time.Time // of this process's clock; a wake-up, not a decision
}

// admit refuses a batch for a namespace that has too much waiting, and one for a queue that does not exist.
func (w *submit) admit(tx *gorm.DB) error {
	adds := map[waitingKey]int{}
	pointers := map[waitingKey]string{}
	for _, e := range w.fresh() {
		k := waitingKey{queueOf(e), e.item.Task.Namespace}
		adds[k]++
		if _, have := pointers[k]; !have {
			pointers[k] = e.pointer
		}
	}
	for k, n := range adds {
		count, err := w.store.waiting.get(tx, k)
		if err != nil {
			return err
		}
		if count == nil {
			return FieldErrors{{pointers[k] + "/queue", "no queue " + k.queue}}
		}
		if w.batch.DryRun {
			n = 0
		}
		if !w.store.waiting.add(count, n) {
			return &FullError{Namespace: k.namespace, Queue: k.queue, Limit: count.limit, RetryAfter: retrySoon}
		}
	}
	return nil
}

func (c *waitingCounts) get(tx *gorm.DB, k waitingKey) (*waitingCount, error) {
	const fresh = 250 * time.Millisecond
	c.mu.Lock()
	have, ok := c.rows[k]
	c.mu.Unlock()
	if ok && time.Now().Before(have.until) {
		return have, nil
	}
	var rows []struct{ MaxQueued, Waiting int }
	if err := query(tx, "queue/waiting", args{"queue": k.queue, "namespace": k.namespace}, &rows); err != nil || len(rows) == 0 {
		return nil, err
	}
	have = &waitingCount{n: rows[0].Waiting, limit: rows[0].MaxQueued, until: time.Now().Add(fresh)}
	c.mu.Lock()
	defer c.mu.Unlock()
	const most = 10_000 // namespaces come and go
	if c.rows == nil || len(c.rows) > most {
		c.rows = map[waitingKey]*waitingCount{}
	}
	c.rows[k] = have
	return have, nil
}

func (c *waitingCounts) add(count *waitingCount, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if count.n+n > count.limit {
		return false
	}
	count.n += n
	return true
}
