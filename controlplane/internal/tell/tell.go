// Package tell writes Kubernetes Events on the objects that Tasks name. It is best effort: nothing waits for it, what does
// not fit its queue or is not taken is counted and forgotten, and it writes no faster than a fixed pace.
//
// Only the replica whose transaction took a step tells of it. What is told twice all the same has the same name and is
// refused by the API server.
//
// Allowed imports: pkg/task.
package tell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// Notice is one Event on one object.
type Notice struct {
	Namespace string
	Object    task.Object
	Key       string // the same for the same step of the same Task
	Reason    string // as TaskStarted
	Action    string // the Task's kind
	Note      string
	Warning   bool
}

// Writer writes Events. task.ErrTaken says that it stands there already.
type Writer interface {
	WriteEvent(ctx context.Context, n Notice) error
}

// What became of a Notice.
const (
	Sent    = "sent"
	Failed  = "failed"
	Dropped = "dropped"
)

// Config is what a Teller needs.
type Config struct {
	Writer Writer
	Count  func(result string) // Sent, Failed or Dropped
	Log    *slog.Logger
	Pace   time.Duration // between two Events; default 50 ms
}

const (
	defaultPace = 50 * time.Millisecond
	queueSize   = 1000
	writeTime   = 5 * time.Second
)

// Teller tells objects of the steps of Tasks. Make it with New.
type Teller struct {
	cfg   Config
	queue chan Notice
}

// New makes a Teller. It starts nothing: see Run.
func New(cfg Config) *Teller {
	if cfg.Pace <= 0 {
		cfg.Pace = defaultPace
	}
	return &Teller{cfg: cfg, queue: make(chan Notice, queueSize)}
}

// Tell tells the objects of t of a step. It never waits.
func (l *Teller) Tell(t task.Task, step task.Step, attempt int) {
	for _, n := range notices(t, step, attempt) {
		select {
		case l.queue <- n:
		default:
			l.cfg.Count(Dropped)
		}
	}
}

// Run writes until ctx is done; what is left then is dropped.
func (l *Teller) Run(ctx context.Context) error {
	pace := time.NewTicker(l.cfg.Pace)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			for range len(l.queue) {
				l.cfg.Count(Dropped)
			}
			return nil
		case n := <-l.queue:
			l.write(ctx, n)
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
}

func (l *Teller) write(ctx context.Context, n Notice) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err := l.cfg.Writer.WriteEvent(ctx, n)
	if err == nil || errors.Is(err, task.ErrTaken) {
		l.cfg.Count(Sent)
		return
	}
	l.cfg.Count(Failed)
	l.cfg.Log.DebugContext(ctx, "write an event", "namespace", n.Namespace, "kind", n.Object.Kind, "name", n.Object.Name, "error", err)
}

// plainReason is a cause that is a word of a machine; a runner may report any text as one.
var plainReason = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// notices are the Events of one step. Nothing that a handler said stands in them, and no parameter: who may read Events
// need not be who may read Tasks.
func notices(t task.Task, step task.Step, attempt int) []Notice {
	if step == "" || len(t.Spec.Objects) == 0 {
		return nil
	}
	note := fmt.Sprintf("Task %s (%s) ", t.ID, t.Kind)
	switch step {
	case task.StepStarted:
		note += "has started, attempt " + strconv.Itoa(attempt)
	case task.StepRetrying:
		note += "is tried again after attempt " + strconv.Itoa(attempt)
	case task.StepSucceeded:
		note += "has succeeded"
	case task.StepFailed:
		note += "has failed"
	case task.StepCanceled:
		note += "was canceled"
	}
	if reason := string(t.Reason); step != task.StepStarted && step != task.StepSucceeded && plainReason.MatchString(reason) {
		note += ": " + reason
	}
	var all []Notice
	for _, o := range t.Spec.Objects {
		all = append(all, Notice{
			Namespace: t.Namespace, Object: o, Key: fmt.Sprint(t.ID, " ", step, " ", attempt), Reason: "Task" + string(step),
			Action: t.Kind, Note: note, Warning: step == task.StepFailed || step == task.StepRetrying,
		})
	}
	return all
}
