package store_test

import (
	"errors"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
)

// heldBeat is the answer to a heartbeat that waits for a stop.
type heldBeat struct {
	answer store.BeatAnswer
	err    error
}

// held sends a heartbeat that is held, and returns when it is stored.
func (d database) held(c store.Claimed, hold <-chan struct{}) <-chan heldBeat {
	d.t.Helper()
	before := d.beatAt(c)
	answered := make(chan heldBeat, 1)
	go func() {
		a, err := d.Beat(d.t.Context(), store.BeatRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "pod", Hold: hold})
		answered <- heldBeat{a, err}
	}()
	until(d.t, func() bool { return d.beatAt(c) != before })
	return answered
}

func (d database) beatAt(c store.Claimed) time.Time {
	d.t.Helper()
	_, a, _, err := d.OpenAttempt(d.t.Context(), c.Attempt.ID)
	if err != nil {
		d.t.Fatal(err)
	}
	return a.Beat
}

// soon gives the answer, which must come well before the next batch would.
func (d database) soon(answered <-chan heldBeat) heldBeat {
	d.t.Helper()
	select {
	case h := <-answered:
		return h
	case <-time.After(20 * time.Second):
		d.t.Fatal("a held heartbeat is not answered")
		return heldBeat{}
	}
}

func TestAHeldBeatHearsOfACancelAtOnceWhereverItWasAsked(t *testing.T) {
	// A batch is collected for a minute: only who is woken is answered sooner.
	d := newDatabase(t)
	d.Store = pgtest.Open(t, store.Config{URL: d.url, Replica: "here"})
	d.running()
	slow := database{pgtest.Open(t, store.Config{URL: d.url, Replica: "slow", BeatEvery: time.Minute}), t, d.url}.running()
	for _, tc := range []struct {
		name    string
		cancels database
		stored  bool
	}{
		{"on the replica that holds it", slow, true},
		{"on another", d, true},
		{"on the replica that is about to store it", slow, false},
		{"on another, while it is about to be stored", d, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			made := d.one(item(""))
			c := d.claimOne()
			if _, _, err := d.Start(t.Context(), start(c, "pod")); err != nil {
				t.Fatal(err)
			}
			answered := make(chan heldBeat, 1)
			hold := make(chan struct{})
			before := d.beatAt(c)
			go func() {
				a, err := slow.Beat(t.Context(), store.BeatRequest{Attempt: c.Attempt.ID, Fence: c.Attempt.Fence, PodUID: "pod", Hold: hold})
				answered <- heldBeat{a, err}
			}()
			if tc.stored {
				slow.Hurry()
			}
			until(t, func() bool { return slow.Held() == 1 && (!tc.stored || d.beatAt(c) != before) })
			if _, err := tc.cancels.Cancel(t.Context(), made.ID, "bob", ""); err != nil {
				t.Fatal(err)
			}
			if h := d.soon(answered); h.err != nil || !h.answer.Cancel || h.answer.Left <= 0 {
				t.Errorf("answered %+v", h)
			}
		})
	}
	if n := slow.Held(); n != 0 {
		t.Errorf("%d attempts are still held", n)
	}
}

func TestAHeldBeatEndsWithItsHoldAndWhenTheAttemptIsNoLongerItsOwn(t *testing.T) {
	d := newDatabase(t)
	d.Store = pgtest.Open(t, store.Config{URL: d.url, Replica: "here", BeatEvery: 10 * time.Millisecond})
	d.running()
	d.one(item(""))
	c := d.claimOne()
	if _, _, err := d.Start(t.Context(), start(c, "pod")); err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	answered := d.held(c, hold)
	select {
	case h := <-answered:
		t.Fatalf("answered %+v before its hold was over", h)
	case <-time.After(100 * time.Millisecond):
	}
	close(hold)
	if h := d.soon(answered); h.err != nil || h.answer.Cancel || h.answer.Left <= 0 {
		t.Errorf("after its hold: answered %+v", h)
	}
	answered = d.held(c, make(chan struct{}))
	d.finish(c, success)
	if h := d.soon(answered); !errors.Is(h.err, store.ErrStale) {
		t.Errorf("after the end of its attempt: answered %+v", h)
	}
	if n := d.Held(); n != 0 {
		t.Errorf("%d attempts are still held", n)
	}
}
