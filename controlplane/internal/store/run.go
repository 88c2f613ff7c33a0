package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	channel       = "slipway"
	notifyEvery   = 10 * time.Millisecond
	partitionLead = 3 // days
)

// Run delivers wake-ups, exchanges notifications with the other replicas, stores heartbeats and makes the day
// partitions, until ctx ends. Trouble of the database never ends it.
func (s *Store) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, part := range []func(context.Context){
		s.wakes.queues.pump, s.wakes.attempts.pump, s.wakes.nudges.pump, s.wakes.ended.pump, s.wakes.planned.pump,
		s.listenLoop, s.notifyLoop, s.beatLoop, s.partitionLoop,
	} {
		all.Go(func() { part(ctx) })
	}
	all.Wait()
	return nil
}

// session opens a connection of its own, outside the pool, and tries again until ctx ends.
func (s *Store) session(ctx context.Context) *pgx.Conn {
	pc, err := s.cfg.poolConfig()
	if err != nil {
		return nil // Open has read the same configuration
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		conn, err := pgx.ConnectConfig(ctx, pc.ConnConfig)
		if err == nil {
			return conn
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

// sleep waits for d; false means that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// listenLoop hears the other replicas.
func (s *Store) listenLoop(ctx context.Context) {
	for ctx.Err() == nil {
		conn := s.session(ctx)
		if conn == nil {
			return
		}
		s.listen(ctx, conn)
		_ = conn.Close(context.WithoutCancel(ctx)) // lost, or no longer needed
		if !sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
}

func (s *Store) listen(ctx context.Context, conn *pgx.Conn) {
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return
	}
	// What was said while nobody listened is found by looking once.
	s.deliver(effects{nudged: true, planned: true})
	for {
		heard, err := conn.WaitForNotification(ctx)
		if pgconn.Timeout(err) && ctx.Err() == nil && conn.Ping(ctx) == nil {
			continue // nothing was said for a while, and the other side is there
		}
		if err != nil {
			return
		}
		var n notification
		if err := json.Unmarshal([]byte(heard.Payload), &n); err != nil || n.Replica == s.cfg.Replica {
			continue
		}
		s.deliver(effects{queues: n.Queues, attempts: n.Attempts, nudged: n.Nudged, planned: n.Planned})
	}
}

// notifyLoop tells the other replicas, at most once in 10 ms and on a connection of its own: a NOTIFY inside the
// working transactions would serialize their commits.
func (s *Store) notifyLoop(ctx context.Context) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wakes.outbox.signal:
		}
		payload, ok := s.wakes.outbox.take(s.cfg.Replica)
		if !ok {
			continue
		}
		if conn == nil || conn.IsClosed() {
			if conn = s.session(ctx); conn == nil {
				return
			}
		}
		if _, err := conn.Exec(ctx, "SELECT pg_notify($1, $2)", channel, payload); err != nil {
			_ = conn.Close(context.WithoutCancel(ctx)) // the others poll; the next notification opens a new one
			conn = nil
		}
		if !sleep(ctx, notifyEvery) {
			return
		}
	}
}

// partitionLoop keeps the day partitions of events and logs ahead of time.
func (s *Store) partitionLoop(ctx context.Context) {
	const often, soon = time.Hour, 10 * time.Second
	for wait := time.Duration(0); sleep(ctx, wait); {
		wait = often
		if err := s.MakePartitions(ctx); err != nil {
			wait = soon // the default partition takes the rows meanwhile
		}
	}
}

// MakePartitions makes the day partitions of events and logs for today and the next days.
func (s *Store) MakePartitions(ctx context.Context) error {
	var made int
	if err := s.db.WithContext(ctx).Raw("SELECT slipway.make_partitions(?)", partitionLead).Scan(&made).Error; err != nil {
		return classify(ctx, fmt.Errorf("make day partitions: %w", err))
	}
	return nil
}
