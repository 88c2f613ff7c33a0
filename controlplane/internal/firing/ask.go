package firing

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Bounds of asking.
const (
	patience     = time.Second      // that a pass waits for answers: whose come later fires with a later pass
	askTime      = 30 * time.Second // of one question
	freshFor     = 10 * time.Second // that an answer counts
	atOnce       = 64               // questions under way
	perNamespace = 4                // of them about one namespace: one that is slow holds up no other
)

// asker asks about schedules before they fire. A question that is not answered in time goes on, and its answer counts at the
// next pass. About whom nobody answers stays due: a fire is late rather than unlawful.
type asker struct {
	rights   Rights
	complain func(ctx context.Context, what string, err error)
	late     chan struct{} // says that an answer came that no pass waits for any more

	slots   chan struct{}
	mu      sync.Mutex
	asked   map[question]*asking
	spaces  map[string]*space // by namespace, as long as something is under way
	running sync.WaitGroup
}

// question is what is asked about schedules that are alike.
type question struct{ namespace, template, rights string }

func about(s Schedule) question { return question{s.Namespace, string(s.Template), string(s.Rights)} }

// asking is a question under way, or its answer until that is used.
type asking struct {
	done    chan struct{} // closed with the answer
	verdict Verdict
	err     error
	at      time.Time
	overdue bool // no pass waits for it any more
}

// space bounds the questions about a namespace.
type space struct {
	slots chan struct{}
	users int
}

func newAsker(rights Rights, complain func(context.Context, string, error)) *asker {
	return &asker{
		rights: rights, complain: complain, late: make(chan struct{}, 1), slots: make(chan struct{}, atOnce),
		asked: map[question]*asking{}, spaces: map[string]*space{},
	}
}

// ask gives what is known within patience of the schedules that are due, and how many are left without an answer.
func (a *asker) ask(ctx context.Context, due []Schedule) (verdicts Verdicts, left int) {
	like := map[question][]Version{}
	for _, s := range due {
		q := about(s)
		like[q] = append(like[q], Version{s.ID, s.Revision})
	}
	under := a.start(ctx, due)
	verdicts = make(Verdicts, len(due))
	enough, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for q, one := range under {
		select {
		case <-one.done:
		default:
			select {
			case <-one.done:
			case <-enough.Done():
				a.mu.Lock()
				one.overdue = true
				a.mu.Unlock()
				left += len(like[q])
				continue
			}
		}
		a.mu.Lock()
		delete(a.asked, q)
		a.mu.Unlock()
		if one.err != nil {
			left += len(like[q])
			continue
		}
		for _, v := range like[q] {
			verdicts[v] = one.verdict
		}
	}
	return verdicts, left
}

// start asks what is not under way yet, and forgets old answers that nobody used.
func (a *asker) start(ctx context.Context, due []Schedule) map[question]*asking {
	a.mu.Lock()
	defer a.mu.Unlock()
	for q, one := range a.asked {
		if !one.at.IsZero() && time.Since(one.at) > freshFor {
			delete(a.asked, q)
		}
	}
	under := map[question]*asking{}
	for _, s := range due {
		q := about(s)
		if under[q] != nil {
			continue
		}
		one := a.asked[q]
		if one == nil {
			one = &asking{done: make(chan struct{})}
			a.asked[q] = one
			in := a.spaces[q.namespace]
			if in == nil {
				in = &space{slots: make(chan struct{}, perNamespace)}
				a.spaces[q.namespace] = in
			}
			in.users++
			a.running.Go(func() { a.answer(ctx, s, in, one) })
		}
		under[q] = one
	}
	return under
}

// answer finds one answer.
func (a *asker) answer(ctx context.Context, s Schedule, in *space, one *asking) {
	verdict, err := a.turn(ctx, s, in)
	if err != nil && ctx.Err() == nil {
		a.complain(ctx, fmt.Sprintf("ask before the fire of schedule %s/%s", s.Namespace, s.Name), err)
	}
	a.mu.Lock()
	one.verdict, one.err, one.at = verdict, err, time.Now()
	if in.users--; in.users == 0 {
		delete(a.spaces, s.Namespace)
	}
	overdue := one.overdue
	close(one.done)
	a.mu.Unlock()
	if overdue && err == nil {
		select {
		case a.late <- struct{}{}:
		default:
		}
	}
}

func (a *asker) turn(ctx context.Context, s Schedule, in *space) (Verdict, error) {
	for _, slots := range []chan struct{}{in.slots, a.slots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return Verdict{}, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return a.rights.Ask(ctx, s)
}
