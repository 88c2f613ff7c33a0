package task

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// Line is what stands between a queued Task and its start: its queue, and the lanes that wait for it.
type Line struct {
	Cap, NamespaceCap int
	Rate              float64       // launches a second; 0: no limit
	NextLaunch        time.Duration // until the rate allows one
	Live              []LiveWork
	Lanes             []LineLane
	Own               int // index in Lanes of the Task's lane; the Task is the last of it
	// Service holds for each kind how long recent Attempts of it took, from the claim to the end.
	Service map[string][]time.Duration
}

// LiveWork is an Attempt at work.
type LiveWork struct {
	Lane      int // index in Line.Lanes; -1: nobody waits for it
	Namespace string
	Kind      string
	Age       time.Duration
	Free      bool // it counts for another queue
}

// LineLane is an idle or a busy lane with the Tasks that wait in it, in order.
type LineLane struct {
	Namespace string
	Tasks     []LineTask
}

// LineTask is a Task that waits.
type LineTask struct {
	Kind      string
	Rank      time.Time
	NotBefore time.Duration
}

// Forecast is when a Task may start, from now on, with even chance and with a chance of nine in ten.
type Forecast struct {
	P50, P90 time.Duration
	Unknown  string // why nothing can be said; empty: it can
	Ahead    int    // Tasks that were played beside it
	Samples  int    // recent times of its own kind in its queue
}

// Foresee plays the line forward with service times drawn from recent ones, as a claim takes them: the namespace that has
// least at work first, of it the lane of the least rank. It is pure: the same line and seed give the same answer.
func Foresee(l Line, seed uint64) Forecast {
	own := l.Lanes[l.Own].Tasks
	f := Forecast{Samples: len(l.Service[own[len(own)-1].Kind])}
	for _, w := range l.Live {
		if len(l.Service[w.Kind]) == 0 {
			f.Unknown = "no recent task of kind " + w.Kind + " tells how long those at work take"
			return f
		}
	}
	for i, lane := range l.Lanes {
		waiting := lane.Tasks
		if i == l.Own {
			waiting = waiting[:len(waiting)-1]
		}
		f.Ahead += len(waiting)
		for _, t := range waiting {
			if len(l.Service[t.Kind]) == 0 {
				f.Unknown = "no recent task of kind " + t.Kind + " tells how long those that wait take"
				return f
			}
		}
	}
	const effort, least, most = 2_000_000, 25, 200
	runs := min(max(effort/(1+f.Ahead*f.Ahead), least), most)
	random := rand.New(rand.NewPCG(seed, uint64(f.Ahead))) //nolint:gosec // the same line is to give the same answer
	starts := make([]time.Duration, runs)
	for i := range starts {
		// A few recent times do not tell the mean exactly: each run has a sample of them of its own.
		at, ok := l.resampled(random).play(random)
		if !ok {
			f.Unknown = "its queue lets nothing begin"
			return f
		}
		starts[i] = at
	}
	slices.Sort(starts)
	f.P50, f.P90 = Quantile(starts, 0.5), Quantile(starts, 0.9)
	return f
}

// resampled is the line with service times drawn anew from its own, as many as there were.
func (l Line) resampled(random *rand.Rand) Line {
	drawn := make(map[string][]time.Duration, len(l.Service))
	for _, kind := range slices.Sorted(maps.Keys(l.Service)) {
		times := l.Service[kind]
		drawn[kind] = make([]time.Duration, len(times))
		for i := range times {
			drawn[kind][i] = times[random.IntN(len(times))]
		}
	}
	l.Service = drawn
	return l
}

// Quantile of sorted times.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Remaining are the times that work of an age has still to go, by times of others that took longer. Where none did, it is
// taken to have as long to go as a new one.
func Remaining(service []time.Duration, age time.Duration) []time.Duration {
	var left []time.Duration
	for _, s := range service {
		if s > age {
			left = append(left, s-age)
		}
	}
	if len(left) == 0 {
		left = slices.Clone(service)
	}
	slices.Sort(left)
	return left
}

// playing is one run of a line.
type playing struct {
	Line
	random  *rand.Rand
	now     time.Duration
	launch  time.Duration // when the rate allows the next one
	at      []laneAt
	work    []working
	live    int
	inSpace map[string]int
}

type laneAt struct {
	next int
	busy bool
}

type working struct {
	until time.Duration
	lane  int
	space string
	slot  bool
}

// play gives the time at which the Task starts; false: never.
func (l Line) play(random *rand.Rand) (time.Duration, bool) {
	p := playing{Line: l, random: random, launch: l.NextLaunch, at: make([]laneAt, len(l.Lanes)), inSpace: map[string]int{}}
	for _, w := range l.Live {
		left := Remaining(l.Service[w.Kind], w.Age)
		p.begin(working{until: left[random.IntN(len(left))], lane: w.Lane, space: w.Namespace, slot: !w.Free})
	}
	for {
		for p.live < p.Cap && (p.Rate == 0 || p.launch <= p.now) {
			lane := p.pick()
			if lane < 0 {
				break
			}
			t := p.Lanes[lane].Tasks[p.at[lane].next]
			p.at[lane].next++
			if lane == p.Own && p.at[lane].next == len(p.Lanes[lane].Tasks) {
				return p.now, true
			}
			times := p.Service[t.Kind]
			p.begin(working{until: p.now + times[random.IntN(len(times))], lane: lane, space: p.Lanes[lane].Namespace, slot: true})
			if p.Rate > 0 {
				p.launch = max(p.launch, p.now) + time.Duration(float64(time.Second)/p.Rate)
			}
		}
		if !p.advance() {
			return 0, false
		}
	}
}

func (p *playing) begin(w working) {
	p.work = append(p.work, w)
	if w.slot {
		p.live++
		p.inSpace[w.space]++
	}
	if w.lane >= 0 {
		p.at[w.lane].busy = true
	}
}

// pick gives the lane that a claim would take now; -1: none.
func (p *playing) pick() int {
	best, turn := -1, 0
	var rank time.Time
	for i := range p.Lanes {
		a := p.at[i]
		if a.busy || a.next >= len(p.Lanes[i].Tasks) || p.Lanes[i].Tasks[a.next].NotBefore > p.now {
			continue
		}
		n := p.inSpace[p.Lanes[i].Namespace]
		if n >= p.NamespaceCap {
			continue
		}
		r := p.rank(i)
		if best < 0 || n < turn || n == turn && r.Before(rank) {
			best, turn, rank = i, n, r
		}
	}
	return best
}

// rank of a lane is the least of what waits in it.
func (p *playing) rank(lane int) time.Time {
	tasks := p.Lanes[lane].Tasks[p.at[lane].next:]
	least := tasks[0].Rank
	for _, t := range tasks[1:] {
		if t.Rank.Before(least) {
			least = t.Rank
		}
	}
	return least
}

// advance goes to the next instant at which something can change; false: there is none.
func (p *playing) advance() bool {
	next, found := time.Duration(0), false
	consider := func(at time.Duration) {
		if at > p.now && (!found || at < next) {
			next, found = at, true
		}
	}
	for _, w := range p.work {
		consider(max(w.until, p.now+1))
	}
	for i := range p.Lanes {
		if a := p.at[i]; !a.busy && a.next < len(p.Lanes[i].Tasks) {
			consider(p.Lanes[i].Tasks[a.next].NotBefore)
		}
	}
	if p.Rate > 0 {
		consider(p.launch)
	}
	if !found {
		return false
	}
	p.now = next
	p.work = slices.DeleteFunc(p.work, func(w working) bool {
		if w.until > p.now {
			return false
		}
		if w.slot {
			p.live--
			p.inSpace[w.space]--
		}
		if w.lane >= 0 {
			p.at[w.lane].busy = false
		}
		return true
	})
	return true
}
