package rig

import (
	"fmt"
	"testing"
	"time"
)

// A test clock stands still until it is moved. It stands in for the two functions that all times of Slipway come from: what
// it decides and stamps, on every replica, is by this clock (DESIGN 3.9). What Kubernetes says and how long a process
// waits are not.

// setUpClock gives the database a clock of its own, which stands at an instant.
func (r *Rig) setUpClock(t testing.TB, at time.Time) {
	t.Helper()
	r.Exec(t, `CREATE TABLE slipway.test_clock (t timestamptz NOT NULL);
		INSERT INTO slipway.test_clock VALUES (now());
		CREATE OR REPLACE FUNCTION slipway.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT t FROM slipway.test_clock';
		CREATE OR REPLACE FUNCTION slipway.stamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT t FROM slipway.test_clock'`)
	r.SetClock(t, at)
}

// SetClock moves the test clock of Options.Clock, forward or back. Replicas notice within a second.
func (r *Rig) SetClock(t testing.TB, at time.Time) {
	t.Helper()
	r.Exec(t, "UPDATE slipway.test_clock SET t = '"+at.UTC().Format(time.RFC3339Nano)+"'")
}

// Advance moves the test clock by d.
func (r *Rig) Advance(t testing.TB, d time.Duration) {
	t.Helper()
	r.Exec(t, fmt.Sprintf("UPDATE slipway.test_clock SET t = t + interval '%d milliseconds'", d.Milliseconds()))
}

// Clock is what the test clock shows.
func (r *Rig) Clock(t testing.TB) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, r.Value(t, `SELECT to_char(t AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM slipway.test_clock`))
	if err != nil {
		t.Fatalf("read the test clock: %v", err)
	}
	return at
}
