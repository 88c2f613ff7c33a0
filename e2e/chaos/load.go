package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"slipway.dev/slipway/e2e/checker"
	"slipway.dev/slipway/e2e/rig"
)

// perMinute is how many Tasks are submitted, as the checker asks for and some more; what an outage holds up is made good
// later. The last ones are to run before the last faults are over.
const (
	perMinute = 324
	early     = 6 * time.Second
)

// answerWithin is how long a client waits for one answer, and stubborn how long it goes on asking after the storm.
const (
	answerWithin = 8 * time.Second
	stubborn     = 40 * time.Second
)

// load submits until the storm is nearly over, and returns once every client has its answer.
func (s *storm) load(ctx context.Context) {
	wishes := make(chan wish)
	var clients, people sync.WaitGroup
	for range 24 {
		clients.Go(func() {
			for w := range wishes {
				if id := s.submit(ctx, w); id != "" {
					people.Go(func() { s.meddle(ctx, w, id) })
				}
			}
		})
	}
	people.Go(func() { s.retryByHand(ctx) })
	random := s.random("load")
	all := int(perMinute * s.lasts.Minutes())
	for n := 0; n < all && ctx.Err() == nil; n++ {
		nap(ctx, time.Until(s.began.Add((s.lasts-early)*time.Duration(n)/time.Duration(all))))
		w := s.draw(random, n)
		select {
		case wishes <- w:
		case <-ctx.Done():
		}
	}
	close(wishes)
	clients.Wait()
	people.Wait()
}

// submit sends a wish until it is answered, and gives the id of its Task; none where it was refused.
func (s *storm) submit(ctx context.Context, w wish) string {
	s.mu.Lock()
	one := w.submit
	s.submits[one.Key] = &one
	s.mu.Unlock()
	if !w.double {
		return s.send(ctx, w, s.rig.Gate.Address)
	}
	var ids [2]string
	var both sync.WaitGroup
	for i := range ids {
		both.Go(func() { ids[i] = s.send(ctx, w, s.rig.Replicas[(w.user+i)%replicas].Address) })
	}
	both.Wait()
	if ids[0] == "" {
		return ids[1]
	}
	return ids[0]
}

// send is one client: it sends the same under the same key until somebody has an answer.
func (s *storm) send(ctx context.Context, w wish, first string) string {
	s.mark(w, func(is *checker.Submit) {
		if is.Sent.IsZero() {
			is.Sent = time.Now()
		}
	})
	user, method, path := s.users[w.user], http.MethodPost, "/v1/tasks"
	if w.retryOf != "" {
		path = "/v1/tasks/" + w.retryOf + "/retry"
	}
	address := first
	var id string
	s.insist(ctx, func(ctx context.Context) bool {
		answer, err := user.Via(address).Do(ctx, method, path, w.body, "Idempotency-Key", w.submit.Key)
		address = s.rig.Gate.Address
		if err != nil || answer.Status >= 500 || answer.Status == http.StatusTooManyRequests {
			return false
		}
		if answer.Status != http.StatusCreated && answer.Status != http.StatusOK {
			if answer.Status != http.StatusConflict {
				s.t.Errorf("%s %s with %v: answered %d %s", method, path, w.body, answer.Status, answer.Body)
			}
			return true
		}
		task := s.shown(answer)
		id = task.ID
		s.mark(w, func(is *checker.Submit) {
			if !slices.Contains(is.IDs, id) {
				is.IDs = append(is.IDs, id)
			}
			if w.long {
				s.long[id] = true
			}
			if is.Answered.IsZero() {
				is.Answered = time.Now()
				if is.Lane == "" {
					s.free[w.user] = append(s.free[w.user], id)
				}
			}
			// One that was absorbed stands where the other stands.
			is.Ordered = is.Ordered && answer.Header.Get("Slipway-Coalesced") != "true"
		})
		return true
	})
	return id
}

func (s *storm) mark(w wish, change func(*checker.Submit)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.submits[w.submit.Key])
}

// shown reads the Task of an answer and notes an end that it shows: it may never change again.
func (s *storm) shown(a rig.Answer) (task checker.Task) {
	if err := json.Unmarshal(a.Body, &task); err != nil {
		s.t.Errorf("read a task: %v in %.200s", err, a.Body)
		return task
	}
	switch task.State {
	case "succeeded", "failed", "canceled":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ends[task.ID] = task.State
	}
	return task
}

// insist tries until try says that it is done; after the storm not for ever.
func (s *storm) insist(ctx context.Context, try func(context.Context) bool) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), s.began.Add(s.lasts+stubborn))
	defer cancel()
	for ctx.Err() == nil {
		one, done := context.WithTimeout(ctx, answerWithin)
		ok := try(one)
		done()
		if ok {
			return
		}
		nap(ctx, 200*time.Millisecond)
	}
}

// meddle does to a Task what people do: cancel it, twice or from two sides, or hold it for a while.
func (s *storm) meddle(ctx context.Context, w wish, id string) {
	user := s.users[w.user]
	if w.holdFor > 0 {
		held := false
		s.insist(ctx, func(ctx context.Context) bool {
			answer, err := user.Do(ctx, http.MethodPost, "/v1/tasks/"+id+"/hold", nil)
			held = err != nil || answer.Status != http.StatusConflict // also where nobody knows
			return err == nil && answer.Status < 500
		})
		if held {
			nap(ctx, w.holdFor)
			s.insist(ctx, func(ctx context.Context) bool {
				answer, err := user.Do(ctx, http.MethodPost, "/v1/tasks/"+id+"/unhold", nil)
				return err == nil && answer.Status < 500
			})
		}
	}
	if w.cancelAfter > 0 {
		nap(ctx, w.cancelAfter)
		var both sync.WaitGroup
		for range w.cancels {
			both.Go(func() { s.cancel(ctx, user, id) })
		}
		both.Wait()
	}
}

func (s *storm) cancel(ctx context.Context, user *rig.User, id string) {
	s.insist(ctx, func(ctx context.Context) bool {
		answer, err := user.Do(ctx, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil)
		if err != nil || answer.Status >= 500 {
			return false
		}
		switch answer.Status {
		case http.StatusOK, http.StatusAccepted:
			s.shown(answer)
		case http.StatusConflict: // it has ended
		default:
			s.t.Errorf("cancel %s: answered %d %s", id, answer.Status, answer.Body)
		}
		return true
	})
}

// retryByHand submits ended Tasks again, now and then.
func (s *storm) retryByHand(ctx context.Context) {
	random := s.random("retries")
	for n := 0; time.Until(s.began.Add(s.lasts)) > 8*time.Second; n++ {
		nap(ctx, 2*time.Second)
		i := random.IntN(len(s.users))
		answer, err := s.users[i].Do(ctx, http.MethodGet, "/v1/tasks?state=failed&limit=20&namespace="+s.rig.Namespaces[i], nil)
		var page struct{ Items []checker.Task }
		if err != nil || answer.Status != http.StatusOK || json.Unmarshal(answer.Body, &page) != nil || len(page.Items) == 0 {
			continue
		}
		task := page.Items[random.IntN(len(page.Items))]
		if s.works(task.ID) {
			continue // nobody would cancel it
		}
		s.submit(ctx, wish{user: i, retryOf: task.ID, submit: checker.Submit{
			Key: fmt.Sprintf("retry-%d-%d", s.seed, n), Lane: task.Lane, Idempotent: s.idempotent(task.Name), Retry: true,
		}})
	}
}

// works tells whether the handler of a Task works on until it is stopped.
func (s *storm) works(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.long[id]
}

// idempotent tells whether the Task of a key may be repeated.
func (s *storm) idempotent(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.submits[key]
	return one == nil || one.Idempotent
}
