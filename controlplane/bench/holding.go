package bench

import (
	"context"
	"sync"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
)

// holding is a dispatcher whose Tasks take a while, and which notes how long those took that it was told of.
type holding struct {
	*rig
	hold time.Duration

	mu        sync.Mutex
	submitted map[string]time.Time
	took      []time.Duration
}

func (h *holding) note(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.submitted[id] = time.Now()
}

func (h *holding) ended(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at, told := h.submitted[id]; told {
		h.took = append(h.took, time.Since(at))
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
			ends.Go(func() {
				time.Sleep(h.hold)
				_, err := h.Finish(context.WithoutCancel(ctx), c.Attempt.ID, c.Attempt.Fence, success, store.Ending{})
				if err == nil { // one whose slot stays taken shows in the others
					h.ended(c.Task.ID)
				}
			})
		}
	}
}
