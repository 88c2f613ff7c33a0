package checker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// API is where and as whom to read Tasks.
type API struct {
	Base  string            // as http://host:port
	Token map[string]string // by namespace
}

// Settle reads all Tasks until each of them has ended, or until none has ended for as long as within says, and puts what
// it read last into h. On a slow machine a backlog takes its time; that nothing moves is what tells a Task that is stuck.
func (a API) Settle(ctx context.Context, h *History, within time.Duration) error {
	began, moved, left := time.Now(), time.Now(), -1
	for {
		err := a.read(ctx, h)
		h.Within = time.Since(began)
		open := len(stuck(*h)) + len(absent(*h))
		if err == nil && open == 0 {
			break
		}
		if err == nil && open != left {
			moved, left = time.Now(), open
		}
		if time.Since(moved) > within || h.Within > 10*within {
			if err != nil {
				return err
			}
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return a.attempts(ctx, h)
}

// absent are Tasks that were accepted and that no list has shown.
func absent(h History) (ids []string) {
	for _, s := range h.Submits {
		for _, id := range s.IDs {
			if _, known := h.Tasks[id]; !known {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func (a API) read(ctx context.Context, h *History) error {
	tasks := map[string]Task{}
	for namespace := range a.Token {
		cursor := ""
		for {
			q := url.Values{"namespace": {namespace}, "limit": {"500"}}
			if cursor != "" {
				q.Set("cursor", cursor)
			}
			var page struct {
				Items []Task
				Next  string
			}
			if err := a.get(ctx, namespace, "/v1/tasks?"+q.Encode(), &page); err != nil {
				return err
			}
			for _, t := range page.Items {
				t.namespace = namespace
				tasks[t.ID] = t
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
	}
	h.Tasks = tasks
	return nil
}

// attempts reads the Attempts of Tasks that have several; of the others the Task shows the one.
func (a API) attempts(ctx context.Context, h *History) error {
	for _, id := range sorted(h.Tasks) {
		t := h.Tasks[id]
		if t.Made < 2 {
			continue
		}
		var list struct{ Items []Attempt }
		if err := a.get(ctx, t.namespace, "/v1/tasks/"+id+"/attempts", &list); err != nil {
			return err
		}
		h.Attempts[id] = list.Items
	}
	return nil
}

// raw reads what the API says of a Task, for a person.
func (a API) raw(ctx context.Context, namespace, path string) string {
	var text json.RawMessage
	if err := a.get(ctx, namespace, path, &text); err != nil {
		return err.Error()
	}
	return string(text)
}

// get tries on for a while: what is judged is the end of the storm, not one request.
func (a API) get(ctx context.Context, namespace, path string, into any) error {
	var last error
	for range 10 {
		if last = a.try(ctx, namespace, path, into); last == nil || ctx.Err() != nil {
			return last
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	return last
}

func (a API) try(ctx context.Context, namespace, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, a.Base+path, nil)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	q.Close = true
	q.Header.Set("Authorization", "Bearer "+a.Token[namespace])
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { _ = answer.Body.Close() }() // what was needed has been read
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: answered %d %.300s", path, answer.StatusCode, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
