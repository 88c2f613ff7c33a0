package cases

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/proxy"
	"slipway.dev/slipway/e2e/rig"
)

// Two leaders, or two replicas firing the same tick. The schedule fires each second instead of each minute. Shrunk unless
// FULL=1: a replica is away for 10 s instead of 1.5 lease lengths.
func TestCase05(t *testing.T) {
	replay(t, 5, "each instant of a schedule is one task and one Job, whoever freezes, wakes, is cut off or is replaced", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API, Replicas: 2, Proxied: true})
		r.Exec(t, "UPDATE slipway.queues SET cap = 10000, ns_cap = 10000") // what has begun runs on until it is canceled
		w := timed{t, r, r.User(t, r.Namespace())}
		made := w.made("tick", map[string]any{"every": "1s", "missed": "all", "up_to": 1000, "overlap": "allow"})
		lame := r.Replicas[0]
		stop := steady(t, w.user, 500*time.Millisecond)
		away(w, lame, made.ID)
		replaced(w, lame, made.ID)
		w.user.Must(t, http.MethodPost, "/v1/schedules/"+made.ID+"/pause", nil, http.StatusOK)
		ids := stop()
		fires := w.ledger(made.ID)
		for i, f := range fires {
			if f.Outcome != "fired" || f.Task == "" || i > 0 && f.At.Sub(fires[i-1].At) != time.Second {
				t.Errorf("line %d of the ledger: %+v", i, f)
			}
			ids = append(ids, f.Task)
		}
		late := w.Value(t, `SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM noted_at - at))::text FROM slipway.schedule_fires`)
		t.Logf("%d fires, half of them within %s s of their instant", len(fires), late)
		launchedAndCanceled(t, w.user, ids) // each once
		if n := w.Value(t, "SELECT count(*)::text FROM slipway.tasks WHERE schedule IS NOT NULL"); n != fmt.Sprint(len(fires)) {
			t.Errorf("%s tasks of %d fires", n, len(fires))
		}
	})
}

// fired counts the lines of a ledger that became Tasks.
func (w timed) fired(id string) int {
	w.Helper()
	n, err := strconv.Atoi(w.Value(w, `SELECT count(*)::text FROM slipway.schedule_fires f JOIN slipway.schedules s ON s.key = f.schedule
		WHERE f.outcome = 'fired' AND s.id = '`+id+`'`))
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// away takes a replica away for a while, in three ways; the other fires on.
func away(w timed, lame *rig.Replica, id string) {
	for what, take := range map[string]func() (giveBack func()){
		"frozen": func() func() {
			lame.Freeze(w)
			return func() { lame.Wake(w) }
		},
		"cut off from the cluster": func() func() { return lame.Cluster.Add(proxy.APIFault{Action: proxy.APISilentConnections}) },
		"cut off from the database": func() func() {
			lame.Database.Set(proxy.PostgresFault{Kind: proxy.PostgresSilent})
			return func() { lame.Database.Set() }
		},
	} {
		w.Gate.Skip(lame.Address)
		before := w.fired(id)
		giveBack := take()
		time.Sleep(sleepOf())
		if n := w.fired(id) - before; n < int(sleepOf().Seconds())-5 {
			w.Errorf("while one replica was %s, %d fires in %v", what, n, sleepOf())
		}
		giveBack()
		lame.WaitReady(w)
		w.Gate.Skip()
	}
}

// replaced is a rolling update: for a while there are three.
func replaced(w timed, lame *rig.Replica, id string) {
	next := w.AddReplica(w, nil)
	next.WaitReady(w)
	before := w.fired(id)
	rig.Eventually(w, "three replicas to fire", func(context.Context) (bool, error) { return w.fired(id) > before+3, nil })
	w.Gate.Skip(lame.Address)
	lame.Stop(w)
	rig.Eventually(w, "the others to fire", func(context.Context) (bool, error) { return w.fired(id) > before+6, nil })
}
