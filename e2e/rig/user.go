package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"slipway.dev/slipway/pkg/api"
)

// User is somebody who calls the API through the gate with a token of a service account.
type User struct {
	Token string

	rig *Rig
	via string // host:port; empty: the gate
}

// Via is the same user, calling one replica past the gate.
func (u *User) Via(address string) *User { return &User{Token: u.Token, rig: u.rig, via: address} }

// User makes the tester of a namespace: slipway-operator there, with the right to create Jobs.
func (r *Rig) User(t testing.TB, namespace string) *User {
	t.Helper()
	return &User{rig: r, Token: r.token(t, namespace, testerAccount, &authenticationv1.TokenRequestSpec{Audiences: []string{"slipway"}})}
}

// Rig is the Slipway that this user calls.
func (u *User) Rig() *Rig { return u.rig }

// Answer is what the API answered.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends one request; body is sent as it is if it is a string or bytes, else as JSON.
func (u *User) Do(ctx context.Context, method, path string, body any, header ...string) (Answer, error) {
	raw, err := encode(body)
	if err != nil {
		return Answer{}, err
	}
	address := u.via
	if address == "" {
		address = u.rig.Gate.Address
	}
	request, err := http.NewRequestWithContext(ctx, method, u.rig.scheme()+address+path, bytes.NewReader(raw))
	if err != nil {
		return Answer{}, err
	}
	request.Close = true
	request.Header.Set("Authorization", "Bearer "+u.Token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer, err := u.rig.http.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 32<<20))
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	return Answer{Status: answer.StatusCode, Header: answer.Header, Body: text}, nil
}

func encode(body any) ([]byte, error) {
	switch b := body.(type) {
	case nil:
		return nil, nil
	case string:
		return []byte(b), nil
	case []byte:
		return b, nil
	}
	return json.Marshal(body)
}

// Must sends a request and fails the test unless it is answered with one of want.
func (u *User) Must(t testing.TB, method, path string, body any, want ...int) Answer {
	t.Helper()
	a, err := u.Do(t.Context(), method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	for _, status := range want {
		if a.Status == status {
			return a
		}
	}
	t.Fatalf("%s %s: answered %d %s, want %v", method, path, a.Status, a.Body[:min(len(a.Body), 2000)], want)
	return a
}

// Submit submits a Task and returns it.
func (u *User) Submit(t testing.TB, submit any) api.Task {
	t.Helper()
	return decode[api.Task](t, u.Must(t, http.MethodPost, "/v1/tasks", submit, http.StatusCreated, http.StatusOK))
}

// TrySubmit submits a Task under an idempotency key and gives its id.
func (u *User) TrySubmit(ctx context.Context, submit any, key string) (string, error) {
	a, err := u.Do(ctx, http.MethodPost, "/v1/tasks", submit, "Idempotency-Key", key)
	if err != nil {
		return "", err
	}
	if a.Status != http.StatusCreated && a.Status != http.StatusOK {
		return "", fmt.Errorf("answered %d %s", a.Status, a.Body)
	}
	var task api.Task
	if err := json.Unmarshal(a.Body, &task); err != nil {
		return "", fmt.Errorf("read %s: %w", a.Body, err)
	}
	return task.ID, nil
}

// Task reads a Task.
func (u *User) Task(t testing.TB, id string) api.Task {
	t.Helper()
	return decode[api.Task](t, u.Must(t, http.MethodGet, "/v1/tasks/"+id, nil, http.StatusOK))
}

// Attempts reads the Attempts of a Task.
func (u *User) Attempts(t testing.TB, id string) []api.Attempt {
	t.Helper()
	return decode[api.AttemptList](t, u.Must(t, http.MethodGet, "/v1/tasks/"+id+"/attempts", nil, http.StatusOK)).Items
}

// Await waits until the Task has ended and returns it.
func (u *User) Await(t testing.TB, id string) api.Task {
	t.Helper()
	return u.Until(t, id, "to end", func(task api.Task) bool {
		return task.State == api.StateSucceeded || task.State == api.StateFailed || task.State == api.StateCanceled
	})
}

// Until waits until ok says yes of the Task.
func (u *User) Until(t testing.TB, id, what string, ok func(api.Task) bool) api.Task {
	t.Helper()
	var seen api.Task
	Eventually(t, fmt.Sprintf("task %s %s", id, what), func(ctx context.Context) (bool, error) {
		a, err := u.Do(ctx, http.MethodGet, "/v1/tasks/"+id, nil)
		if err != nil {
			return false, err
		}
		if a.Status != http.StatusOK {
			return false, fmt.Errorf("answered %d %s", a.Status, a.Body)
		}
		seen = api.Task{}
		if err := json.Unmarshal(a.Body, &seen); err != nil {
			return false, err
		}
		if !ok(seen) {
			return false, fmt.Errorf("it is %s, %s", seen.State, a.Body[:min(len(a.Body), 1500)])
		}
		return true, nil
	})
	return seen
}

func decode[T any](t testing.TB, a Answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.Body, &v); err != nil {
		t.Fatalf("read %s: %v", a.Body[:min(len(a.Body), 500)], err)
	}
	return v
}

// Command is the submit of a command.run.
func Command(namespace string, argv ...string) map[string]any {
	return map[string]any{"kind": "command.run", "namespace": namespace, "params": map[string]any{"command": argv}}
}
