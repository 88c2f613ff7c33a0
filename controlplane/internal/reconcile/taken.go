package reconcile

import (
	"maps"
	"sync"
	"time"
)

// takenFor is how long a yes to a pod template holds. A quota may fill meanwhile: who would be told so is told that much later.
const takenFor = 2 * time.Second

// taken remembers which pod templates the API server would have taken a moment ago. When it is slow to make pods, very
// many Jobs have none: it is not asked about each of them.
type taken struct {
	mu sync.Mutex
	at map[string]time.Time
}

func newTaken() *taken { return &taken{at: map[string]time.Time{}} }

func (k *taken) lately(template string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, ok := k.at[template]
	return ok && now.Sub(at) < takenFor
}

func (k *taken) note(template string, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.at, func(_ string, at time.Time) bool { return now.Sub(at) >= takenFor })
	k.at[template] = now
}
