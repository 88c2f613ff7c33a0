package r1

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/e2e/bench/report"
)

// kill measures what the SIGKILL of one of two replicas does at 25 submits a second: how long until the next launch, and
// that no Task is lost and no Job made twice.
func kill(t testing.TB, b *bench) {
	const before, after = 3, 8
	rate := part(25)
	second := b.AddReplica(t, nil)
	second.WaitReady(t)
	for range rounds() {
		b.settled(t)
		b.audit.read(t)
		var all sync.WaitGroup
		ids := make([]string, rate*(before+after))
		var killed time.Time
		tick := time.NewTicker(time.Second / time.Duration(rate))
		for n := range ids {
			<-tick.C
			if n == rate*before {
				killed = time.Now()
				second.Kill(t)
			}
			all.Go(func() { ids[n] = b.insist(t, rand.Text()) })
		}
		tick.Stop()
		all.Wait()
		b.settled(t)
		b.killFound(t, ids, killed, b.audit.read(t))
		second.Start(t)
		second.WaitReady(t)
	}
	second.Stop(t)
}

// insist submits until it is answered, with one key.
func (b *bench) insist(t testing.TB, key string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		id, err := b.user.TrySubmit(ctx, b.task(endsAtOnce), key)
		if err == nil {
			return id
		}
		if ctx.Err() != nil {
			t.Errorf("submit: %v", err)
			return ""
		}
	}
}

func (b *bench) killFound(t testing.TB, ids []string, killed time.Time, events []event) {
	t.Helper()
	var launches []time.Time
	created := map[string]int{}
	at := map[string]time.Time{}
	for _, e := range events {
		if e.ObjectRef.Namespace == b.Namespace() && e.did("create", "jobs", "") {
			launches = append(launches, e.Answered)
			created[e.ObjectRef.Name]++
			at[e.ObjectRef.Name] = e.Answered
		}
	}
	slices.SortFunc(launches, time.Time.Compare)
	next := slices.IndexFunc(launches, killed.Before)
	if next < 0 {
		t.Fatalf("nothing was launched after the kill")
	}
	pauses := []float64{launches[next].Sub(killed).Seconds()}
	for i := next + 1; i < len(launches); i++ {
		pauses = append(pauses, launches[i].Sub(launches[i-1]).Seconds())
	}
	doubled := 0
	for _, n := range created {
		doubled += n - 1
	}
	doubled += b.count(t, ids, "SELECT count(*) FROM (SELECT t.key FROM slipway.tasks t JOIN slipway.attempts a ON a.task = t.key WHERE t.id = ANY ($1::uuid[]) AND a.job_name <> '' GROUP BY t.key HAVING count(*) > 1) x")
	succeeded := b.count(t, ids, "SELECT count(*) FROM slipway.tasks WHERE id = ANY ($1::uuid[]) AND state = 'succeeded'")
	var way []float64
	for _, task := range b.committed(t, ids) {
		if launched, ok := at[task.job]; ok {
			way = append(way, launched.Sub(task.committed).Seconds())
		}
	}
	b.keep(t, "launches after a kill", pauses[:1], b.figure("SIGKILL of one replica → next launch", "s", report.Figure{Budget: 3}))
	b.keep(t, "pauses after a kill", pauses, b.figure("longest pause between launches from the kill on", "s", report.Figure{Of: report.Most, Budget: 3}))
	b.keep(t, "commit to Job around a kill", way, b.figure("commit → Job exists around the kill, slowest", "s", report.Figure{Of: report.Most}))
	b.one(t, float64(len(ids)-succeeded), "lost at the kill", "tasks", report.Zero)
	b.one(t, float64(doubled), "doubled at the kill", "tasks", report.Zero)
}

func (b *bench) count(t testing.TB, ids []string, sql string) int {
	t.Helper()
	conn := b.connect(t)
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(t.Context(), sql, ids)
	if err != nil {
		t.Fatalf("count: %v", err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatalf("count: %v", err)
	}
	return n
}
