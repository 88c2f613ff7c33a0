package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster plays Kubernetes: tokens by audience, rights by text.
type cluster struct {
	tokens  map[string]Identity // key: audience + " " + token
	rights  map[string]bool     // key: user + ": " + access
	reviews atomic.Int64
	checks  atomic.Int64
	wait    chan struct{} // nil: answer at once
	fail    error
}

func (c *cluster) ReviewToken(_ context.Context, token, audience string) (Identity, bool, error) {
	c.reviews.Add(1)
	if c.wait != nil {
		<-c.wait
	}
	id, ok := c.tokens[audience+" "+token]
	return id, ok, c.fail
}

func (c *cluster) Allowed(_ context.Context, id Identity, a Access) (bool, error) {
	c.checks.Add(1)
	return c.rights[id.User+": "+a.String()], c.fail
}

func jwt(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func TestATokenOfOneAudienceIsNeverAcceptedForTheOther(t *testing.T) {
	ada := Identity{User: "ada"}
	pod := Identity{User: "runner", Namespace: "shop", PodName: "p", PodUID: "u"}
	both := jwt(`{"aud":["slipway","slipway-runner"]}`)
	c := &cluster{tokens: map[string]Identity{
		"slipway ada": ada, "slipway-runner pod": pod,
		"slipway " + both: ada, "slipway-runner " + both: pod,
	}}
	g := New(Config{Reviewer: c, Accessor: c})
	for _, tc := range []struct {
		name string
		ask  func(context.Context, string) (Identity, error)
		with string
		want error
	}{
		{"user as user", g.User, "ada", nil},
		{"runner as runner", g.Runner, "pod", nil},
		{"runner as user", g.User, "pod", ErrNoIdentity},
		{"user as runner", g.Runner, "ada", ErrNoIdentity},
		{"both as user", g.User, both, ErrNoIdentity},
		{"both as runner", g.Runner, both, ErrNoIdentity},
		{"nothing as user", g.User, "", ErrNoIdentity},
		{"nothing as runner", g.Runner, "", ErrNoIdentity},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := tc.ask(t.Context(), tc.with); !errors.Is(err, tc.want) {
				t.Errorf("got error %v, want %v", err, tc.want)
			}
		})
	}
}

func TestARunnerTokenWithoutAPodIsRefused(t *testing.T) {
	c := &cluster{tokens: map[string]Identity{"slipway-runner t": {User: "runner", Namespace: "shop"}}}
	if _, err := New(Config{Reviewer: c}).Runner(t.Context(), "t"); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("got error %v, want %v", err, ErrNoIdentity)
	}
}

func TestAnswersAreKeptForTenSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		see := Access{Verb: "get", Group: Group, Resource: "tasks", Namespace: "shop"}
		c := &cluster{
			tokens: map[string]Identity{"slipway ada": {User: "ada"}},
			rights: map[string]bool{"ada: " + see.String(): true},
		}
		g := New(Config{Reviewer: c, Accessor: c, Keep: time.Hour})
		ask := func() (error, error) {
			id, err := g.User(t.Context(), "ada")
			return err, g.May(t.Context(), id, see)
		}
		for range 5 {
			if who, may := ask(); who != nil || may != nil {
				t.Fatalf("ada: identity %v, rights %v", who, may)
			}
			time.Sleep(time.Second)
		}
		if c.reviews.Load() != 1 || c.checks.Load() != 1 {
			t.Errorf("asked %d times for the token and %d for the right, want once each", c.reviews.Load(), c.checks.Load())
		}
		delete(c.tokens, "slipway ada")
		delete(c.rights, "ada: "+see.String())
		time.Sleep(5 * time.Second)
		who, may := ask()
		var forbidden *ForbiddenError
		if !errors.Is(who, ErrNoIdentity) || !errors.As(may, &forbidden) {
			t.Errorf("ten seconds after the change: identity %v, rights %v", who, may)
		}
	})
}

func TestCallersWithOneTokenAskOnceAndALeaverHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{tokens: map[string]Identity{"slipway ada": {User: "ada"}}, wait: make(chan struct{})}
		g := New(Config{Reviewer: c})
		leaver, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := g.User(leaver, "ada")
			left <- err
		}()
		synctest.Wait()
		var all sync.WaitGroup
		var good atomic.Int64
		for range 20 {
			all.Go(func() {
				if id, err := g.User(t.Context(), "ada"); err == nil && id.User == "ada" {
					good.Add(1)
				}
			})
		}
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the leaver got %v", err)
		}
		close(c.wait)
		all.Wait()
		if good.Load() != 20 || c.reviews.Load() != 1 {
			t.Errorf("%d of 20 were known after %d reviews", good.Load(), c.reviews.Load())
		}
	})
}

func TestTroubleIsToldAsTroubleAndNotKept(t *testing.T) {
	c := &cluster{tokens: map[string]Identity{"slipway ada": {User: "ada"}}, fail: errors.New("connection refused")}
	g := New(Config{Reviewer: c, Accessor: c})
	if _, err := g.User(t.Context(), "ada"); !errors.Is(err, task.ErrUnavailable) {
		t.Errorf("identity under trouble: %v", err)
	}
	if err := g.May(t.Context(), Identity{User: "ada"}, Access{}); !errors.Is(err, task.ErrUnavailable) {
		t.Errorf("rights under trouble: %v", err)
	}
	c.fail = nil
	if _, err := g.User(t.Context(), "ada"); err != nil {
		t.Errorf("identity after the trouble: %v", err)
	}
}

func TestDuringAnOutageAnOldAnswerIsGoodForReadingOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := jwt(`{"exp":` + fmt.Sprint(time.Now().Add(5*time.Minute).Unix()) + `}`)
		c := &cluster{
			tokens: map[string]Identity{"slipway ada": {User: "ada"}, "slipway " + short: {User: "ada"}},
			rights: map[string]bool{"ada: get tasks in namespace shop": true, "ada: create tasks in namespace shop": true},
		}
		g := New(Config{Reviewer: c, Accessor: c, Outage: 10 * time.Minute})
		ask := func(token, verb string) error {
			id, err := g.User(t.Context(), token)
			if err != nil {
				return err
			}
			return g.May(t.Context(), id, Access{Verb: verb, Resource: "tasks", Namespace: "shop"})
		}
		for _, token := range []string{"ada", short} {
			for _, verb := range []string{"get", "create"} {
				if err := ask(token, verb); err != nil {
					t.Fatalf("before the outage, %s: %v", verb, err)
				}
			}
		}
		c.fail = errors.New("connection refused")
		time.Sleep(maxKeep)
		for range 2 { // an answer that is used stays
			if err := ask("ada", "get"); err != nil {
				t.Errorf("reading: %v", err)
			}
			if err := ask("ada", "create"); !errors.Is(err, task.ErrUnavailable) {
				t.Errorf("writing: %v", err)
			}
		}
		if err := ask("stranger", "get"); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("somebody who was never here: %v", err)
		}
		c.wait = make(chan struct{}) // now it is silent
		began := time.Now()
		if err := ask("ada", "get"); err != nil || time.Since(began) > 2*patience {
			t.Errorf("reading under silence: %v after %v", err, time.Since(began))
		}
		time.Sleep(time.Minute)
		close(c.wait)
		synctest.Wait()
		c.wait = nil
		time.Sleep(5 * time.Minute)
		if err := ask(short, "get"); !errors.Is(err, ErrNoIdentity) {
			t.Errorf("a token whose time is over: %v", err)
		}
		time.Sleep(5 * time.Minute)
		if err := ask("ada", "get"); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("after ten minutes: %v", err)
		}
		c.fail = nil
		if err := ask("ada", "create"); err != nil {
			t.Errorf("after the outage: %v", err)
		}
		delete(c.tokens, "slipway ada")
		time.Sleep(maxKeep)
		if err := ask("ada", "get"); !errors.Is(err, ErrNoIdentity) {
			t.Errorf("a token that was revoked: %v", err)
		}
	})
}

// A busy API server takes longer than a reader waits: a write waits for its answer.
func TestWhoWantsToWriteWaitsForASlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{tokens: map[string]Identity{"slipway ada": {User: "ada"}}, rights: map[string]bool{"ada: create tasks in namespace shop": true}}
		g := New(Config{Reviewer: c, Accessor: c, Outage: time.Hour})
		ask := func() error {
			id, err := g.User(t.Context(), "ada")
			if err != nil {
				return err
			}
			return g.May(t.Context(), id, Access{Verb: "create", Resource: "tasks", Namespace: "shop"})
		}
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * maxKeep)
		c.wait = make(chan struct{})
		go func() {
			time.Sleep(3 * patience)
			close(c.wait)
		}()
		if err := ask(); err != nil {
			t.Errorf("a write: %v", err)
		}
	})
}

func TestRoomForAnswersIsBounded(t *testing.T) {
	as := newAnswers[int, int](time.Minute, 0)
	for i := range maxAnswers + 100 {
		if _, _, err := as.get(t.Context(), i, func(context.Context) (int, error) { return i, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(as.known); n > maxAnswers {
		t.Errorf("%d answers kept, want at most %d", n, maxAnswers)
	}
}

func TestASessionKeyIsGoodForItsAttemptFenceAndPodOnly(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	s := Session{Attempt: 7, Fence: 9, PodUID: "u"}
	key := s.Key(secret)
	if err := s.Check(secret, key); err != nil {
		t.Errorf("its own key: %v", err)
	}
	for name, other := range map[string]Session{
		"attempt": {Attempt: 8, Fence: 9, PodUID: "u"},
		"fence":   {Attempt: 7, Fence: 10, PodUID: "u"},
		"pod":     {Attempt: 7, Fence: 9, PodUID: "v"},
	} {
		if err := other.Check(secret, key); !errors.Is(err, ErrNoIdentity) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if err := s.Check(nil, s.Key(nil)); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("without a secret: %v", err)
	}
}
