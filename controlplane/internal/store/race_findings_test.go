package store_test

import (
	"sort"
	"time"

	"github.com/jackc/pgx/v5"
)

// findings are computed from the stamps and places that were stored, not from what the store believes.
type findings struct {
	attempts      int
	deadlocks     int64
	overlaps      int
	orderBreaks   int
	sleepingLanes int
	capOvershoots int
}

func (r *race) findings() findings {
	d := database{t: r.t, url: r.url}
	f := findings{
		attempts: value[int](d, "select count(*) from slipway.attempts"),
		// Two holders of one lane at once: Attempts, and composite Tasks from their claim to their end.
		overlaps: value[int](d, `select count(*) from (
			select start < max(stop) over (partition by lane order by start, stop rows between unbounded preceding and 1 preceding) as bad from (
				select lane, claimed_at as start, coalesce(finished_at, 'infinity') as stop from slipway.attempts
				union all
				select lane, started_at, coalesce(ended_at, 'infinity') from slipway.tasks where children > 0 and started_at is not null) i) x where bad`),
		// A claim of a place before one that was claimed earlier, and places drawn in another order than the lane's lock was had.
		orderBreaks: value[int](d, `select count(*) from (
			select t.seq < max(t.seq) over (partition by a.lane order by a.claimed_at, a.id rows between unbounded preceding and 1 preceding) as bad
			from slipway.attempts a join slipway.tasks t on t.key = a.task) x where bad`) +
			value[int](d, `select count(*) from (
			select t.created_at < max(t.created_at) over (partition by t.lane order by t.seq rows between unbounded preceding and 1 preceding) as bad
			from slipway.tasks t where t.seq % 1024 = 0 and t.parent is null and t.run_at = t.created_at
				and not exists (select 1 from slipway.deps d where d.task = t.key)) x where bad`),
		// What nobody ran although nothing was in its way, and what a lane shows without a reason.
		sleepingLanes: value[int](d, "select count(*) from slipway.tasks where state in ('queued', 'running')") +
			value[int](d, "select count(*) from slipway.lanes where holder is not null or head is not null or private"),
		capOvershoots: r.overshoots(d),
	}
	for _, s := range r.replicas {
		f.deadlocks += s.Deadlocks()
	}
	return f
}

// overshoots walks over all claims and ends and counts the moments with more live Attempts than a cap allows.
func (r *race) overshoots(d database) int {
	conn, err := pgx.Connect(d.t.Context(), d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close(d.t.Context())
	type move struct {
		at        time.Time
		queue, ns string
		change    int
	}
	rows, err := conn.Query(d.t.Context(), `select queue, namespace, claimed_at, 1 from slipway.attempts
		union all select queue, namespace, finished_at, -1 from slipway.attempts where finished_at is not null`)
	if err != nil {
		d.t.Fatal(err)
	}
	moves, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m move, err error) {
		return m, row.Scan(&m.queue, &m.ns, &m.at, &m.change)
	})
	if err != nil {
		d.t.Fatal(err)
	}
	sort.Slice(moves, func(i, j int) bool {
		if !moves[i].at.Equal(moves[j].at) {
			return moves[i].at.Before(moves[j].at)
		}
		return moves[i].change < moves[j].change
	})
	live, bad := map[string]int{}, 0
	for _, m := range moves {
		live[m.queue] += m.change
		live[m.queue+"/"+m.ns] += m.change
		if m.change > 0 && (live[m.queue] > raceCaps[m.queue][0] || live[m.queue+"/"+m.ns] > raceCaps[m.queue][1]) {
			bad++
		}
	}
	return bad
}
