package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	"slipway.dev/slipway/e2e/checker"
)

// wish is a Task before it is submitted.
type wish struct {
	user    int // whose: the number of the namespace
	body    any
	double  bool   // sent twice at once, through different replicas
	retryOf string // the ended Task that it repeats
	submit  checker.Submit

	long        bool // it works on until it is stopped
	cancelAfter time.Duration
	cancels     int // clients that cancel at once
	holdFor     time.Duration
}

// draw makes the n-th Task.
func (s *storm) draw(random *rand.Rand, n int) wish {
	chance := func(percent int) bool { return random.IntN(100) < percent }
	millis := func(least, most int) int { return least + random.IntN(most-least) }
	w := wish{user: n % namespaces, double: chance(8), submit: checker.Submit{Key: fmt.Sprintf("task-%d-%d", s.seed, n), Idempotent: chance(85)}}
	spec := map[string]any{}
	params := map[string]any{"recorder": s.recorder.Address, "millis": s.duration(random)}
	body := map[string]any{"kind": "chaos.work", "namespace": s.rig.Namespaces[w.user], "name": w.submit.Key, "spec": spec, "params": params}
	if chance(55) {
		s.drawLane(random, &w, body, params)
	}
	spec["idempotent"] = w.submit.Idempotent
	if !w.submit.Idempotent {
		spec["retry"] = map[string]any{"attempts": 1}
	}
	switch {
	case chance(12):
		params["fail_first"], params["exit"] = 1+random.IntN(3), 3
	case chance(5):
		params["fail_first"], params["crash"] = 1, true
	case chance(3):
		spec["run_deadline"], params["millis"] = 1, 4000
	case chance(4): // it can never run
		body["kind"], body["params"] = "command.run", map[string]any{"command": []string{"/missing"}}
		spec["fence_after"], spec["grace"] = fenceAfter.Seconds(), 1
	}
	if chance(8) {
		params["deaf"] = true
	}
	if chance(20) {
		params["linger"] = millis(100, 900)
	}
	switch {
	case chance(6):
		body["delay"] = float64(millis(500, 4000)) / 1000
		w.submit.Ordered = false
	case w.submit.Lane == "" && chance(10):
		if after := s.anyTasks(random, w.user); len(after) > 0 {
			body["after"], body["run_if"] = after, []string{"all_finished", "all_succeeded"}[random.IntN(2)]
		}
	}
	if chance(9) {
		w.cancelAfter, w.cancels = time.Duration(millis(1, 4000))*time.Millisecond, 1+random.IntN(2)
	}
	if n%20 == 7 {
		drawLong(random, &w, body, spec, params)
	}
	if chance(4) {
		w.holdFor = time.Duration(millis(300, 2000)) * time.Millisecond
	}
	w.body = body
	return w
}

// drawLong makes a Task whose handler works until it is stopped: by a cancel, or, on a node that is lost, by its runner's
// fence time. Were it not, it would outlive the hand-over of its lane.
func drawLong(random *rand.Rand, w *wish, body, spec, params map[string]any) {
	w.long, w.cancelAfter, w.cancels = true, time.Duration(20+random.IntN(10))*time.Second, 1
	body["kind"], body["params"] = "chaos.work", params
	delete(spec, "run_deadline")
	params["millis"] = (runsOn + time.Minute).Milliseconds()
}

// duration is how many milliseconds a handler works: mostly short, now and then long enough for much to happen.
func (s *storm) duration(random *rand.Rand) int {
	if random.IntN(10) == 0 {
		return 3000 + random.IntN(5000)
	}
	return 50 + random.IntN(1500)
}

// drawLane puts a Task into one of the lanes of its namespace; every fifth lane keeps the latest only.
func (s *storm) drawLane(random *rand.Rand, w *wish, body, params map[string]any) {
	n := random.IntN(lanes / namespaces)
	w.submit.Lane = fmt.Sprintf("chaos:%s/lane-%d", s.rig.Namespaces[w.user], n)
	body["lane"], params["lane"] = w.submit.Lane, w.submit.Lane
	if n%5 == 0 {
		body["mode"] = "latest"
		w.submit.Idempotent = true // what absorbs it may be
		return
	}
	body["mode"], w.submit.Ordered = "strict", true
	switch random.IntN(20) {
	case 0:
		body["on_conflict"] = "reject"
	case 1:
		body["on_conflict"] = "replace"
		w.submit.Ordered = false // it goes next
	}
}

// anyTasks picks one or two Tasks without a lane, so that nobody waits in a circle.
func (s *storm) anyTasks(random *rand.Rand, user int) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 1 + random.IntN(2) {
		if n := len(s.free[user]); n > 0 {
			ids = append(ids, s.free[user][random.IntN(n)])
		}
	}
	return ids
}
