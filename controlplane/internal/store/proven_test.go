package store_test

import (
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"testing"

	"slipway.dev/slipway/controlplane/internal/store"
)

// A restore is played by a new sequence of fences: the old one is gone with what it knew.
func (d *database) restore() {
	d.sql("ALTER SEQUENCE slipway.fences RENAME TO forgotten_" + strings.ToLower(rand.Text()) + "; CREATE SEQUENCE slipway.fences")
}

// raise compares the fences with those of a cluster.
func (d *database) raise(above int64) (was int64) {
	d.t.Helper()
	lineage, err := d.Lineage(d.t.Context())
	if err == nil {
		was, err = d.RaiseFence(d.t.Context(), lineage, above)
	}
	if err != nil {
		d.t.Fatalf("raise the fence: %v", err)
	}
	return was
}

func TestNothingIsClaimedFromADatabaseThatMayHaveBeenRestoredBeforeItsFencesWereCompared(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	d.enqueue(item("volume:ns/a"), item("volume:ns/b"))
	if was := d.raise(40); was != 0 {
		t.Fatalf("it was %d", was)
	}
	if c := d.claimOne(); c.Attempt.Fence <= 40 {
		t.Fatalf("fence %d", c.Attempt.Fence)
	}
	d.restore()
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
	if was := d.raise(5000); was != 0 {
		t.Fatalf("it was %d", was)
	}
	c := d.claimOne()
	if c.Attempt.Fence <= 5000 {
		t.Fatalf("fence %d", c.Attempt.Fence)
	}
	if was := d.raise(7); was != c.Attempt.Fence {
		t.Fatalf("it was %d, and %d is drawn", was, c.Attempt.Fence)
	}
	if was := d.raise(7); was != c.Attempt.Fence {
		t.Fatalf("it was moved without a reason, to %d", was)
	}
}

// The cluster does not show a fence before its Job is created, and a replica may stand still before that.
func TestAClaimUnderWayBeforeARestoreNeverMeetsOneAfterIt(t *testing.T) {
	d := newDatabase(t)
	d.enqueue(item("volume:ns/a"), item("volume:ns/b"))
	d.raise(0)
	shown, underWay := d.claimOne().Attempt, d.claimOne().Attempt
	d.restore()
	d.sql("DELETE FROM slipway.attempts WHERE id = " + strconv.FormatInt(underWay.ID, 10))
	d.sql("SELECT setval('slipway.fences', " + strconv.FormatInt(shown.Fence, 10) + "), setval('slipway.attempts_id_seq', " + strconv.FormatInt(shown.ID, 10) + ")")
	d.enqueue(item("volume:ns/c"), item("volume:ns/d"))
	d.raise(shown.Fence)
	for range 2 {
		if c := d.claimOne(); c.Attempt.Fence <= underWay.Fence || c.Attempt.ID <= underWay.ID {
			t.Errorf("attempt %d, fence %d was drawn once more", c.Attempt.ID, c.Attempt.Fence)
		}
	}
}

func TestFencesReadBeforeARestoreProveNothing(t *testing.T) {
	d := newDatabase(t)
	d.enqueue(item("volume:ns/a"))
	lineage, err := d.Lineage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.raise(0)
	d.restore()
	if _, err := d.RaiseFence(t.Context(), lineage, 40); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("raise: %v", err)
	}
	if _, err := d.Claim(t.Context(), "default", 1); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("claim: %v", err)
	}
}
