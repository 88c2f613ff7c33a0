package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/retention"
)

// planned is a sweep that removes all snapshots of a shelf but the first.
func planned(w *world, left map[string]*unstructured.Unstructured) *sweep {
	s := &sweep{world: w, read: maps.Clone(left)}
	for i, name := range slices.Sorted(maps.Keys(left)) {
		s.plan.Decisions = append(s.plan.Decisions, retention.Decision{Name: name, Keep: i == 0, Taken: time.Unix(int64(i), 0)})
	}
	s.plan.Good, s.plan.Remove = len(left), len(left)-1
	s.out.Planned = s.plan.Remove
	return s
}

func TestADriverThatDeletesNothingEndsACleanupWithinItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, left := shelf(t, 40, func(string) bool { return true })
		s := planned(w, left)
		for range 30 { // that an earlier Attempt asked for
			s.going = append(s.going, left["s00"])
		}
		began := time.Now()
		_, err := s.carryOut(t.Context())
		if took := time.Since(began); took > (maxStuck+1)*goneWithin+time.Minute {
			t.Errorf("it took %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), "0 of 39 removed; left: 34 are left as they were, from s06 on; s00 is still being deleted") {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestASnapshotThatIsGoneLateIsCountedAndOneStuckHoldsNoOtherUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w, left := shelf(t, 6, func(name string) bool { return name == "s02" && time.Since(began) < goneWithin+30*time.Second })
		result, err := planned(w, left).carryOut(t.Context())
		if err != nil || result.(Cleaned).Removed != 5 || len(left) != 1 {
			t.Errorf("%+v, %v; left are %v", result, err, left)
		}
	})
}

func TestACleanupThatIsStoppedInTheMiddleSaysWhatItRemovedAndWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, left := shelf(t, 6, func(name string) bool { return name == "s03" })
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(handler.ErrCanceled) })
		_, err := planned(w, left).carryOut(ctx)
		if !errors.Is(err, handler.ErrCanceled) || err.Error() != "2 of 5 removed: s01, s02; left: 2 are left as they were, from s04 on; s03 is still being deleted" {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestTheAccountOfALargeCleanupFitsAMessageAndCountsWhatItDoesNotName(t *testing.T) {
	c := Cleaned{Planned: 20_000, Removed: 10_000}
	for i := range 10_000 {
		name := fmt.Sprintf("%s-%05d", strings.Repeat("n", 50), i)
		c.Removals = append(c.Removals, retention.Decision{Name: name})
		c.Left = append(c.Left, name+": "+strings.Repeat("trouble ", 100))
	}
	c.Removals = first(c.Removals)
	text := c.account()
	if len(text) > 3<<10 || !strings.HasPrefix(text, "10000 of 20000 removed: ") || !strings.Contains(text, " and 9980 more; left: ") || !strings.HasSuffix(text, "more") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}
