package bench

import (
	"context"
	"sync"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
)

// holding is a dispatcher whose Tasks take a while, and which notes how long those that it was told of have waited.
type holding struct {
	*rig
	hold time.Duration

	mu        sync.Mutex
	submitted map[string]time.Time
	waited    []time.Duration
}

func (h *holding) note(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.submitted[id] = time.Now()
}

func (h *holding) claimed(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at, told := h.submitted[id]; told {
		h.waited = append(h.waited, time.Since(at))
	}
}

// dispatch claims whenever something may be ready, until ctx is done; it returns once all its Tasks have ended.
func (h *holding) dispatch(ctx context.Context) error {
	var ends sync.WaitGroup
	defer ends.Wait()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-h.QueueWakes():
		case <-poll.C:
		case <-ctx.Done():
			return nil
		}
		got, err := h.Claim(context.WithoutCancel(ctx), queue, 20)
		if err != nil {
			return err
		}
		for _, c := range got.Claims {
			h.claimed(c.Task.ID)
			ends.Go(func() {
				time.Sleep(h.hold)
				_, _ = h.Finish(context.WithoutCancel(ctx), c.Attempt.ID, c.Attempt.Fence, success, store.Ending{}) // a slot that stays taken shows in the waits
			})
		}
	}
}
