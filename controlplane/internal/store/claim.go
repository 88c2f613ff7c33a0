package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/controlplane/internal/failpoint"
	"slipway.dev/slipway/pkg/task"
)

// Claim takes up to limit heads of ready lanes of a queue, within its caps and rate, in turn over the namespaces and
// by rank. Each gets an Attempt and a fence; composite Tasks become running without one.
func (s *Store) Claim(ctx context.Context, queue string, limit int) (ClaimResult, error) {
	return s.ClaimFor(ctx, queue, limit, Inline{})
}

// Inline says what of a claim may run in the claiming process itself (task.ExecutorInline).
type Inline struct {
	Kinds []string // that it has handlers for
	Room  int      // most that it takes; the others stay where they are
	// Fallback names the namespaces that take no Jobs at the moment: what may run inline does so there.
	Fallback []string
	// Only takes nothing that would need a Job: there are none to be had anywhere.
	Only bool
}

// The lanes that a claim looks at.
const (
	inlineToo  = iota // all of them
	inlineOnly        // those whose head runs inline
	inlineNone        // the others
)

func (i Inline) mode() int {
	switch {
	case len(i.Kinds) == 0:
		return inlineToo
	case i.Only:
		return inlineOnly
	case i.Room <= 0:
		return inlineNone
	}
	return inlineToo
}

// ClaimFor is Claim by a process that can run some kinds itself. A Task runs inline where its kind is switched to that, or
// was accepted for that, or falls back to it, and its Spec allows it; else as a Job.
func (s *Store) ClaimFor(ctx context.Context, queue string, limit int, inline Inline) (ClaimResult, error) {
	var c claim
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		c = claim{tx: tx, queue: queue, limit: limit, inline: inline, replica: s.cfg.Replica, proven: &s.proven, ahead: &s.ahead}
		return c.run()
	})
	if err != nil {
		// Where the commit is unknown, what was claimed is launched as overdue (DESIGN 4.3).
		return ClaimResult{}, fmt.Errorf("claim from queue %s: %w", queue, err)
	}
	if inline.mode() == inlineToo { // else lanes that are ready were left out
		s.ahead.end(queue, c.turn, c.firsts)
	}
	s.announce(effects{nudged: c.result.Parents > 0})
	return c.result, nil
}

type claim struct {
	tx      *gorm.DB
	queue   string
	limit   int
	inline  Inline
	replica string
	proven  *proven
	ahead   *ahead

	live   int64 // no live Attempt has a smaller id
	woke   bool  // lanes became ready in this very claim
	turn   int
	firsts map[string]time.Time
	row    queueRow
	room   roomRow
	tokens float64
	result ClaimResult
}

type queueRow struct {
	Name             string
	Cap, NsCap       int
	Paused, Draining bool
	Rate, Burst      float64
	Tokens           float64
	RefilledAt       *time.Time
}

type roomRow struct {
	Now              time.Time
	Live             int
	Oldest           int64 // id of the oldest live Attempt, or of the newest of all
	Frozen           bool
	FrozenNamespaces []byte
	OffKinds         []byte
	ReadyAt          *time.Time
	Lineage          string
}

type lanesRow struct {
	Lanes             []byte
	Candidates, Taken int
	Capped            bool
	Firsts            []byte // rank of the first ready lane by namespace
}

type headRow struct {
	Row       taskRow `gorm:"embedded"`
	AttemptID *int64
	Number    *int
	Fence     int64
	RunBy     *string
	ClaimedAt *time.Time
}

// run is the transaction: queue row, room, lanes, heads.
func (c *claim) run() error {
	var rows []queueRow
	if err := query(c.tx, "claim/queue", args{"queue": c.queue}, &rows); err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("queue %s: %w", c.queue, ErrNotFound)
	}
	c.row = rows[0]
	if err := c.look(); err != nil {
		return err
	}
	want := c.want()
	if want <= 0 {
		return nil
	}
	if c.room.ReadyAt != nil && !c.room.ReadyAt.After(c.room.Now) {
		n, err := exec(c.tx, "claim/ready", args{"queue": c.queue})
		if err != nil {
			return err
		}
		c.woke = n > 0
		c.result.More = n > 0 && int(n) >= want
	}
	lanes, err := c.lanes(want)
	if err != nil {
		return err
	}
	c.next(lanes, want)
	if lanes.Taken == 0 {
		return nil
	}
	failpoint.Hit("claim-lanes-locked")
	return c.take(lanes.Lanes)
}

// look reads what room there is.
func (c *claim) look() error {
	from, lineage := c.ahead.live(c.queue)
	if err := query(c.tx, "claim/room", args{"queue": c.queue, "live_from": from, "lineage": lineage}, &c.room); err != nil {
		return err
	}
	if err := c.proven.check(c.room.Lineage); err != nil {
		return err
	}
	if lineage == c.room.Lineage {
		c.live = from
	}
	c.ahead.raise(c.queue, c.room.Lineage, c.room.Oldest)
	return nil
}

// lanes takes lanes from where the ready ones are known to begin; where that gives too few, it looks at all of them.
func (c *claim) lanes(want int) (lanesRow, error) {
	if c.inline.mode() != inlineToo {
		return c.lanesFrom(nil, want)
	}
	least, turn := c.ahead.begin(c.queue, c.woke)
	found, err := c.lanesFrom(least, want)
	if err == nil && least != nil && found.Candidates < want {
		_, turn = c.ahead.begin(c.queue, true)
		found, err = c.lanesFrom(nil, want)
	}
	if err != nil {
		return lanesRow{}, err
	}
	c.turn, c.firsts = turn, map[string]time.Time{}
	if len(found.Firsts) > 0 {
		err = json.Unmarshal(found.Firsts, &c.firsts)
	}
	return found, err
}

func (c *claim) lanesFrom(least map[string]time.Time, want int) (found lanesRow, err error) {
	var known *string
	if least != nil {
		text := jsonOf(least)
		known = &text
	}
	err = query(c.tx, "claim/lanes", args{
		"queue": c.queue, "want": want, "ns_cap": c.row.NsCap, "least": known, "live_from": c.live,
		"frozen": list(c.room.FrozenNamespaces), "off": object(c.room.OffKinds), "inline": names(c.inline.Kinds),
		"fallback": names(c.inline.Fallback), "mode": c.inline.mode(),
	}, &found)
	return found, err
}

// want says how many may be taken, and names what forbids it.
func (c *claim) want() int {
	want := c.limit
	if at := c.room.ReadyAt; at != nil && at.After(c.room.Now) {
		c.result.NextIn = at.Sub(c.room.Now)
	}
	c.tokens = c.row.Burst
	if c.row.Rate > 0 {
		c.tokens = c.row.Tokens
		if c.row.RefilledAt != nil {
			c.tokens += c.row.Rate * max(0, c.room.Now.Sub(*c.row.RefilledAt).Seconds())
		}
		c.tokens = min(c.tokens, c.row.Burst)
		want = min(want, int(math.Floor(c.tokens)))
	}
	free := c.row.Cap - c.room.Live
	switch {
	case c.row.Paused, c.row.Draining:
		c.result.Blocked = task.WaitPaused
	case c.room.Frozen:
		c.result.Blocked = task.WaitFrozen
	case free <= 0:
		c.result.Blocked = task.WaitCap
	case want <= 0:
		c.result.Blocked = task.WaitRate
		c.soon(time.Duration((1 - c.tokens) / c.row.Rate * float64(time.Second)))
	default:
		return min(want, free)
	}
	return 0
}

// soon lowers the time of the next look.
func (c *claim) soon(d time.Duration) {
	d = max(d, time.Millisecond)
	if c.result.NextIn == 0 || d < c.result.NextIn {
		c.result.NextIn = d
	}
}

// next says whether and when to look again.
func (c *claim) next(l lanesRow, want int) {
	const skipped = 20 * time.Millisecond
	switch {
	case l.Candidates >= want && want == c.limit:
		c.result.More = true
	case l.Candidates >= want && c.row.Rate > 0:
		c.result.Blocked = task.WaitRate
		c.soon(time.Duration(float64(time.Second) / c.row.Rate))
	case l.Candidates >= want, l.Capped:
		c.result.Blocked = task.WaitCap
	}
	if l.Taken < l.Candidates {
		c.soon(skipped) // who holds a skipped lane wakes us as well
	}
}

func (c *claim) take(lanes []byte) error {
	var rows []headRow
	err := query(c.tx, "claim/heads", args{
		"lanes": string(lanes), "queue": c.queue, "replica": c.replica,
		"inline": names(c.inline.Kinds), "fallback": names(c.inline.Fallback), "mode": c.inline.mode(), "inline_room": c.inline.Room,
	}, &rows)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		c.result.More = false // none of the heads may run here now, as where the clock was set back: the poll looks again
	}
	for _, r := range rows {
		if r.AttemptID == nil {
			c.result.Parents++
			continue
		}
		t, err := r.Row.task()
		if err != nil {
			return err
		}
		c.result.Claims = append(c.result.Claims, Claimed{Task: t, Attempt: task.Attempt{
			ID: *r.AttemptID, TaskKey: t.Key, TaskID: t.ID, Number: value(r.Number), Fence: r.Fence, Lane: t.Lane, Queue: t.Queue,
			Namespace: t.Namespace, Kind: t.Kind, Executor: task.Executor(value(r.RunBy)), Replica: c.replica, State: task.Leased,
			ClaimedAt: instant(r.ClaimedAt),
		}})
	}
	if c.row.Rate > 0 && len(c.result.Claims) > 0 {
		_, err := exec(c.tx, "claim/spend", args{"queue": c.queue, "tokens": c.tokens - float64(len(c.result.Claims)), "now": c.room.Now})
		return err
	}
	return nil
}

func list(raw []byte) string {
	if len(raw) == 0 || !json.Valid(raw) {
		return "[]"
	}
	return string(raw)
}

func object(raw []byte) string {
	if len(raw) == 0 || !json.Valid(raw) {
		return "{}"
	}
	return string(raw)
}

func names(all []string) string { return jsonOf(append([]string{}, all...)) }
