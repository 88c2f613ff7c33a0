package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// Bounds of what one estimate looks at.
const (
	foreseeMost  = 500 // Tasks that wait in its queue
	foreseeDepth = 4   // of what waits for what
	foreseeNeeds = 10  // Tasks that one waits for
)

// serviceTimes remembers for a moment how long recent Attempts took.
type serviceTimes struct {
	mu    sync.Mutex
	of    map[serviceKey][]time.Duration
	until time.Time // of this process's clock
}

type serviceKey struct{ queue, kind string }

func (c *serviceTimes) get(read func() (map[serviceKey][]time.Duration, error)) (map[serviceKey][]time.Duration, error) {
	const fresh = 5 * time.Second
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of != nil && time.Now().Before(c.until) {
		return c.of, nil
	}
	of, err := read()
	if err != nil {
		return nil, err
	}
	c.of, c.until = of, time.Now().Add(fresh)
	return of, nil
}

// Foresee estimates when a queued Task starts. Of the view, what it waits for counts and all that it was to run after.
func (s *Store) Foresee(ctx context.Context, t task.Task, v View) (task.Forecast, error) {
	f, err := s.foresee(ctx, t, v, foreseeDepth)
	if err != nil {
		return f, fmt.Errorf("estimate the start of task %s: %w", t.ID, err)
	}
	return f, nil
}

// endless are waits that end when somebody ends them.
var endless = map[task.WaitReason]string{
	task.WaitHeld: "it is held", task.WaitPaused: "its queue is paused", task.WaitFrozen: "launches are frozen",
	task.WaitKindOff: "its kind is switched off", task.WaitQuota: "it waits for room in a quota",
	task.WaitLaunch: "no Job can be launched",
}

func (s *Store) foresee(ctx context.Context, t task.Task, v View, depth int) (task.Forecast, error) {
	if why, ok := endless[v.Wait]; ok {
		return task.Forecast{Unknown: why}, nil
	}
	soon, late, why, err := s.notBefore(ctx, t, v, depth)
	if err != nil || why != "" {
		return task.Forecast{Unknown: why}, err
	}
	l, why, err := s.line(ctx, t)
	if err != nil || why != "" {
		return task.Forecast{Unknown: why}, err
	}
	own := l.Lanes[l.Own].Tasks
	own[len(own)-1].NotBefore = soon
	f := task.Foresee(l, uint64(t.Key))
	if soon != late && f.Unknown == "" {
		own[len(own)-1].NotBefore = late
		f.P90 = max(f.P90, task.Foresee(l, uint64(t.Key)).P90)
	}
	return f, nil
}

// notBefore is when a Task may run at all: its time has come, its parent runs, and what it runs after has ended; with
// even chance, and with one of nine in ten.
func (s *Store) notBefore(ctx context.Context, t task.Task, v View, depth int) (soon, late time.Duration, why string, err error) {
	now, err := s.Now(ctx)
	if err != nil {
		return 0, 0, "", err
	}
	soon = max(t.RunAt.Sub(now), 0)
	late = soon
	if t.Seq != 0 || t.Parent == "" && len(v.Needs) == 0 {
		return soon, late, "", nil
	}
	if depth == 0 || len(v.Needs) > foreseeNeeds {
		return 0, 0, "it waits for too many others", nil
	}
	if t.Parent != "" {
		p, pv, err := s.Task(ctx, t.Parent)
		if err != nil {
			return 0, 0, "", err
		}
		if p.State == task.Queued {
			f, err := s.foresee(ctx, p, pv, depth-1)
			if err != nil || f.Unknown != "" {
				return 0, 0, joinWhy("its parent", f.Unknown), err
			}
			soon, late = max(soon, f.P50), max(late, f.P90)
		}
	}
	for _, id := range v.Needs {
		n, nv, err := s.Task(ctx, id)
		if err != nil {
			return 0, 0, "", err
		}
		f, err := s.end(ctx, n, nv, depth-1)
		if err != nil || f.Unknown != "" {
			return 0, 0, joinWhy("task "+id+", which it runs after", f.Unknown), err
		}
		soon, late = max(soon, f.P50), max(late, f.P90)
	}
	return soon, late, "", nil
}

func joinWhy(whose, why string) string {
	if why == "" {
		return ""
	}
	return whose + ": " + why
}

// end estimates the end of a Task.
func (s *Store) end(ctx context.Context, t task.Task, v View, depth int) (task.Forecast, error) {
	if t.State.Terminal() {
		return task.Forecast{}, nil
	}
	if t.Children > 0 {
		return task.Forecast{Unknown: "it is composite"}, nil
	}
	service, err := s.service(ctx, t.Queue)
	if err != nil {
		return task.Forecast{}, err
	}
	if len(service[t.Kind]) == 0 {
		return task.Forecast{Unknown: "no recent task of kind " + t.Kind + " tells how long it takes"}, nil
	}
	if t.State == task.Running {
		now, err := s.Now(ctx)
		age := now.Sub(t.StartedAt)
		if v.Attempt != nil {
			age = now.Sub(v.Attempt.ClaimedAt)
		}
		left := task.Remaining(service[t.Kind], age)
		return task.Forecast{P50: task.Quantile(left, 0.5), P90: task.Quantile(left, 0.9)}, err
	}
	f, err := s.foresee(ctx, t, v, depth)
	whole := task.Remaining(service[t.Kind], 0)
	f.P50, f.P90 = f.P50+task.Quantile(whole, 0.5), f.P90+task.Quantile(whole, 0.9)
	return f, err
}

// service tells how long recent Attempts of each kind took in one queue.
func (s *Store) service(ctx context.Context, queue string) (map[string][]time.Duration, error) {
	all, err := s.services.get(func() (map[serviceKey][]time.Duration, error) {
		var rows []struct {
			Queue, Kind string
			Seconds     []byte
		}
		if err := query(s.db.WithContext(ctx), "foresee/service", nil, &rows); err != nil {
			return nil, classify(ctx, err)
		}
		of := map[serviceKey][]time.Duration{}
		for _, r := range rows {
			var seconds []task.Seconds
			if err := json.Unmarshal(r.Seconds, &seconds); err != nil {
				return nil, fmt.Errorf("read service times: %w", err)
			}
			for _, one := range seconds {
				of[serviceKey{r.Queue, r.Kind}] = append(of[serviceKey{r.Queue, r.Kind}], max(one.Duration(), 0))
			}
		}
		return of, nil
	})
	out := map[string][]time.Duration{}
	for k, times := range all {
		if k.queue == queue {
			out[k.kind] = times
		}
	}
	return out, err
}

// line reads what a Task stands in; why says that it cannot be played.
func (s *Store) line(ctx context.Context, t task.Task) (l task.Line, why string, err error) {
	db := s.db.WithContext(ctx)
	var q viewRow
	if err := query(db, "foresee/queue", args{"queue": t.Queue}, &q); err != nil {
		return l, "", classify(ctx, err)
	}
	l.Cap, l.NamespaceCap, l.Rate = value(q.Cap), value(q.NsCap), q.Rate
	if q.Rate > 0 {
		if missing := 1 - tokens(q); missing > 0 {
			l.NextLaunch = time.Duration(missing / q.Rate * float64(time.Second))
		}
	}
	if l.Service, err = s.service(ctx, t.Queue); err != nil {
		return l, "", err
	}
	lanes := map[string]int{}
	if why, err = s.waitingIn(ctx, t, &l, lanes); err != nil || why != "" {
		return l, why, err
	}
	var live []struct {
		Lane, Namespace, Kind string
		Age                   float64
		Free, Composite       bool
	}
	if err := query(db, "foresee/live", args{"queue": t.Queue, "lane": t.Lane}, &live); err != nil {
		return l, "", classify(ctx, err)
	}
	for _, w := range live {
		if w.Composite {
			return l, "a composite task holds its lane", nil
		}
		at, known := lanes[w.Lane]
		if !known {
			at = -1
		}
		l.Live = append(l.Live, task.LiveWork{
			Lane: at, Namespace: w.Namespace, Kind: w.Kind, Age: task.Seconds(w.Age).Duration(), Free: w.Free,
		})
	}
	return l, "", nil
}

// waitingIn lays out the lanes. The Task stands last in its own: nobody behind it matters.
func (s *Store) waitingIn(ctx context.Context, t task.Task, l *task.Line, lanes map[string]int) (why string, err error) {
	var rows []struct {
		Key                   int64
		Lane, Namespace, Kind string
		Rank                  time.Time
		Children              int
		Delay                 float64
	}
	a := args{"queue": t.Queue, "lane": t.Lane, "most": foreseeMost + 1}
	if err := query(s.db.WithContext(ctx), "foresee/waiting", a, &rows); err != nil {
		return "", classify(ctx, err)
	}
	if len(rows) > foreseeMost {
		return fmt.Sprintf("more than %d tasks wait in its queue", foreseeMost), nil
	}
	l.Own = -1
	closed := map[string]bool{} // nothing behind is played
	place := func(lane, namespace string) *task.LineLane {
		at, ok := lanes[lane]
		if !ok {
			at = len(l.Lanes)
			lanes[lane] = at
			l.Lanes = append(l.Lanes, task.LineLane{Namespace: namespace})
		}
		return &l.Lanes[at]
	}
	for _, r := range rows {
		if closed[r.Lane] {
			continue
		}
		own := r.Key == t.Key
		if !own && r.Children > 0 {
			if r.Lane == t.Lane {
				return "a composite task is before it in its lane", nil
			}
			closed[r.Lane] = true
			continue
		}
		lane := place(r.Lane, r.Namespace)
		lane.Tasks = append(lane.Tasks, task.LineTask{Kind: r.Kind, Rank: r.Rank, NotBefore: task.Seconds(r.Delay).Duration()})
		if own {
			l.Own, closed[r.Lane] = lanes[r.Lane], true
		}
	}
	switch {
	case l.Own >= 0:
	case t.Seq != 0:
		return "too many are before it in its lane", nil
	default: // it stands outside its lane, and goes to its end
		lane := place(t.Lane, t.Namespace)
		lane.Tasks = append(lane.Tasks, task.LineTask{Kind: t.Kind, Rank: t.EligibleAt.Add(time.Duration(t.Class) * 2 * time.Minute)})
		l.Own = lanes[t.Lane]
	}
	return "", nil
}
