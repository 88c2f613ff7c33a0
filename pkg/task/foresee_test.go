package task_test

import (
	"testing"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// lineOf is a line of a single lane for each Task, all of kind k and namespace ns; the last one is asked about.
func lineOf(tasks int, change func(*task.Line)) task.Line {
	l := task.Line{Cap: 1, NamespaceCap: 10, Service: map[string][]time.Duration{"k": {10 * time.Second}}, Own: tasks - 1}
	for i := range tasks {
		l.Lanes = append(l.Lanes, task.LineLane{Namespace: "ns", Tasks: []task.LineTask{{Kind: "k", Rank: time.Unix(int64(i), 0)}}})
	}
	if change != nil {
		change(&l)
	}
	return l
}

func TestALineIsPlayedAsAClaimWouldTakeIt(t *testing.T) {
	busy := func(l *task.Line) {
		l.Live = []task.LiveWork{{Lane: -1, Namespace: "ns", Kind: "k", Age: 4 * time.Second}}
	}
	for name, tc := range map[string]struct {
		line task.Line
		want time.Duration
	}{
		"an empty queue starts it at once":  {lineOf(1, nil), 0},
		"behind one at work":                {lineOf(1, busy), 6 * time.Second},
		"behind one at work and two":        {lineOf(3, busy), 26 * time.Second},
		"two at a time":                     {lineOf(5, func(l *task.Line) { l.Cap = 2 }), 20 * time.Second},
		"its namespace's cap":               {lineOf(3, func(l *task.Line) { l.Cap, l.NamespaceCap = 5, 1 }), 20 * time.Second},
		"a rate":                            {lineOf(3, func(l *task.Line) { l.Cap, l.Rate, l.NextLaunch = 5, 0.5, time.Second }), 5 * time.Second},
		"its own time":                      {lineOf(1, func(l *task.Line) { l.Lanes[0].Tasks[0].NotBefore = time.Minute }), time.Minute},
		"a quiet namespace goes first":      {lineOf(3, func(l *task.Line) { busy(l); l.Cap, l.Lanes[2].Namespace = 2, "quiet" }), 0},
		"one that is late is over any time": {lineOf(1, func(l *task.Line) { busy(l); l.Live[0].Age = time.Hour }), 10 * time.Second},
		"its lane's holder elsewhere": {lineOf(1, func(l *task.Line) {
			l.Cap, l.Live = 5, []task.LiveWork{{Lane: 0, Namespace: "ns", Kind: "k", Free: true}}
		}), 10 * time.Second},
		"its lane": {lineOf(1, func(l *task.Line) {
			l.Cap, l.Lanes[0].Tasks = 5, []task.LineTask{{Kind: "k"}, {Kind: "k"}, {Kind: "k"}}
		}), 20 * time.Second},
	} {
		if f := task.Foresee(tc.line, 1); f.Unknown != "" || f.P50 != tc.want || f.P90 != tc.want {
			t.Errorf("%s: %+v, want %s", name, f, tc.want)
		}
	}
}

func TestAForecastIsHonestAndRepeatable(t *testing.T) {
	spread := lineOf(10, func(l *task.Line) {
		l.Service["k"] = []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 40 * time.Second}
	})
	a, b := task.Foresee(spread, 7), task.Foresee(spread, 7)
	if a != b || a.P90 <= a.P50 || a.Ahead != 9 || a.Samples != 4 {
		t.Errorf("%+v, %+v", a, b)
	}
	for name, l := range map[string]task.Line{
		"no times":  lineOf(2, func(l *task.Line) { l.Service = nil }),
		"no cap":    lineOf(1, func(l *task.Line) { l.Cap = 0 }),
		"work only": lineOf(1, func(l *task.Line) { l.Live = []task.LiveWork{{Lane: -1, Kind: "other"}} }),
	} {
		if f := task.Foresee(l, 1); f.Unknown == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
