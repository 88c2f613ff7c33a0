package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
)

func part(n, of int) store.Item { return item(fmt.Sprintf("volume:ns/%d-of-%d", n, of)) }

func TestAPartitionIsCutAnewOnlyOnceNothingIsOpenInTheOldParts(t *testing.T) {
	d := newDatabase(t)
	submit := func(items ...store.Item) error {
		_, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: items})
		return err
	}
	first := d.one(part(3, 8))
	wantConflict(t, submit(part(3, 16)), store.ConflictEpoch, first.ID)
	c := d.claimOne()
	wantConflict(t, submit(item("volume:ns/x"), part(0, 16)), store.ConflictEpoch, first.ID)
	if err := submit(part(7, 8), item("volume:ns/3-of-"), item("volume:other/0-of-16"), item("backup:ns/0-of-16")); err != nil {
		t.Fatalf("what is about other lanes is refused: %v", err)
	}
	d.finish(c, success)
	for _, c := range d.claim(9) {
		d.finish(c, success)
	}

	late := part(1, 8)
	late.Delay = time.Hour
	delayed := d.one(late)
	wantConflict(t, submit(part(3, 16)), store.ConflictEpoch, delayed.ID)
	if _, err := d.Cancel(t.Context(), delayed.ID, "alice", ""); err != nil {
		t.Fatal(err)
	}
	if err := submit(part(3, 16), part(4, 16)); err != nil {
		t.Fatal(err)
	}
	if err := submit(part(3, 8)); !errors.As(err, new(*store.ConflictError)) {
		t.Fatalf("back to the old parts: %v", err)
	}
}

func TestABatchCutsLanesInOneWay(t *testing.T) {
	d := newDatabase(t)
	_, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: []store.Item{part(0, 8), part(1, 16)}})
	var refused store.FieldErrors
	if !errors.As(err, &refused) || refused[0].Pointer != "/items/1/lane" {
		t.Fatalf("%v", err)
	}
}

// Submits of two epochs meet over and over, each time just when nothing is open; never is anything of both.
func TestTwoEpochsOfAPartitionAreNeverOpenTogether(t *testing.T) {
	const rounds = 60
	d := newDatabase(t)
	turns := map[string]int{}
	for round := range rounds {
		var submits sync.WaitGroup
		for n := range 6 {
			parts := 4 + n%2
			submits.Go(func() {
				_, err := d.Enqueue(t.Context(), store.Batch{Caller: "alice", Items: []store.Item{part((round+n)%parts, parts)}})
				if err != nil && !errors.As(err, new(*store.ConflictError)) {
					t.Error(err)
				}
			})
		}
		submits.Wait()
		open := value[[]string](d, "select array_agg(distinct split_part(lane, '-of-', 2)) from slipway.tasks where state in ('queued', 'running')")
		if len(open) != 1 {
			t.Fatalf("round %d: tasks of epochs %v are open", round, open)
		}
		turns[open[0]]++
		for claims := d.claim(10); len(claims) > 0; claims = d.claim(10) {
			for _, c := range claims {
				d.finish(c, success)
			}
		}
	}
	if turns["4"] == 0 || turns["5"] == 0 {
		t.Errorf("only one epoch was ever taken: %v", turns)
	}
	t.Logf("turns: %v", turns)
}
