package store_test

import (
	"errors"
	"testing"

	"slipway.dev/slipway/controlplane/internal/store"
)

// A restore is played by a new sequence of fences: the old one is gone with what it knew.
func TestNothingIsClaimedFromADatabaseThatMayHaveBeenRestoredBeforeItsFencesWereCompared(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	d.enqueue(item("volume:ns/a"), item("volume:ns/b"))
	if was, err := d.RaiseFence(ctx, 40); err != nil || was != 0 {
		t.Fatalf("raise: %d, %v", was, err)
	}
	if c := d.claimOne(); c.Attempt.Fence != 41 {
		t.Fatalf("fence %d, want 41", c.Attempt.Fence)
	}
	d.sql("ALTER SEQUENCE slipway.fences RENAME TO forgotten; CREATE SEQUENCE slipway.fences")
	if _, err := d.Claim(ctx, "default", 1); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("claim: %v", err)
	}
	if _, err := d.KnownAttempts(ctx, []int64{1}); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("known: %v", err)
	}
	select {
	case <-d.Doubts():
	default:
		t.Fatal("nobody was told to compare")
	}
	if was, err := d.RaiseFence(ctx, 500); err != nil || was != 0 {
		t.Fatalf("raise again: %d, %v", was, err)
	}
	if c := d.claimOne(); c.Attempt.Fence != 501 {
		t.Fatalf("fence %d, want 501", c.Attempt.Fence)
	}
	if was, err := d.RaiseFence(ctx, 7); err != nil || was != 501 {
		t.Fatalf("it was lowered: %d, %v", was, err)
	}
}
