package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// older is a session of a replica before version 3: it says nothing of its version.
func (d *database) older(sql string) (int64, error) {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close(d.t.Context())
	done, err := conn.Exec(d.t.Context(), sql)
	return done.RowsAffected(), err
}

// What the first release's statements do, in short.
const (
	oldClaim = `INSERT INTO slipway.attempts (task, number, fence, lane, queue, namespace, kind, executor, replica, state, claimed_at)
		SELECT key, attempts + 1, 99, lane, queue, namespace, kind, executor, 'old', 'leased', now() FROM slipway.tasks WHERE state = 'queued'`
	oldOverdue = `SELECT id FROM slipway.attempts WHERE state = 'leased' AND finished_at IS NULL AND claimed_at < now() + interval '1 minute'
		AND (wait_until IS NULL OR wait_until <= now() + interval '1 minute')`
	oldEnd   = `UPDATE slipway.attempts SET state = 'finished', finished_at = now() WHERE finished_at IS NULL`
	oldTasks = `UPDATE slipway.tasks SET min_binary = 0` // as if an older replica had taken them in
)

func (d *database) refused(what, sql string) {
	d.t.Helper()
	if n, err := d.older(sql); err == nil || !strings.Contains(err.Error(), "took in") {
		d.t.Errorf("an older replica could %s: %d rows, %v", what, n, err)
	}
}

func TestAnOlderReplicaRunsNothingThatANewerOneTookIn(t *testing.T) {
	d := newDatabase(t)
	d.one(item(""))
	d.refused("claim", oldClaim)
	c := d.claimOne()
	for range 2 { // fresh, and after it waited
		if n, err := d.older(oldOverdue); n != 0 || err != nil {
			t.Errorf("an older replica would launch %d overdue attempts, %v", n, err)
		}
		if err := d.MarkWaiting(t.Context(), c.Attempt.ID, c.Attempt.Fence, task.WaitQuota, "full", 0); err != nil {
			t.Fatal(err)
		}
	}
	d.refused("end it", oldEnd)
	if late, err := d.LeasedOverdue(t.Context(), -time.Minute, 10); len(late) != 1 || err != nil {
		t.Errorf("one of the same version finds %d, %v", len(late), err)
	}
	d.finish(c, success)
	d.wantState(c.Task.ID, task.Succeeded, "")
}

func TestWhatAnOlderReplicaTookInIsRunByBoth(t *testing.T) {
	d := newDatabase(t)
	d.one(item(""))
	d.one(item(""))
	if _, err := d.older(oldTasks); err != nil {
		t.Fatal(err)
	}
	d.claimOne()
	if n, err := d.older(oldOverdue); n != 1 || err != nil {
		t.Errorf("an older replica finds %d overdue attempts, %v", n, err)
	}
	if n, err := d.older(oldClaim); n != 1 || err != nil {
		t.Errorf("it claims %d, %v", n, err)
	}
	if late, err := d.LeasedOverdue(t.Context(), -time.Minute, 10); len(late) != 2 || err != nil {
		t.Errorf("a newer one finds %d, %v", len(late), err)
	}
	if n, err := d.older(oldEnd); n != 2 || err != nil {
		t.Errorf("it ends %d, %v", n, err)
	}
}

func TestANewerSubmitThatIsAbsorbedTakesTheTaskFromOlderReplicas(t *testing.T) {
	d := newDatabase(t)
	newest := item("volume:ns/a")
	newest.Task.Mode = task.Latest
	d.one(newest)
	if _, err := d.older(oldTasks); err != nil {
		t.Fatal(err)
	}
	if got := d.enqueue(newest); got[0].Result != store.Coalesced {
		t.Fatalf("%+v", got)
	}
	d.refused("claim", oldClaim)
}
