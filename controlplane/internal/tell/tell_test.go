package tell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/pkg/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster plays the API server.
type cluster struct {
	mu    sync.Mutex
	wrote []Notice
	at    []time.Time
	says  error
	wait  bool // until the context of the call is over
}

func (c *cluster) WriteEvent(ctx context.Context, n Notice) error {
	if c.wait {
		<-ctx.Done()
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrote, c.at = append(c.wrote, n), append(c.at, time.Now())
	return c.says
}

type counted map[string]int

func start(t *testing.T, c *cluster) (*Teller, counted, func()) {
	t.Helper()
	count, mu := counted{}, sync.Mutex{}
	l := New(Config{Writer: c, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Count: func(result string) {
		mu.Lock()
		defer mu.Unlock()
		count[result]++
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	return l, count, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func about(objects int) task.Task {
	t := task.Task{ID: "t-1", Kind: "volume.resize", Namespace: "shop", Message: "secret", Reason: "exit_code"}
	for n := range objects {
		t.Spec.Objects = append(t.Spec.Objects, task.Object{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint("c", n)})
	}
	return t
}

func TestEachObjectIsToldOfAStepAtASteadyPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		l, count, stop := start(t, c)
		l.Tell(about(0), task.StepStarted, 1)
		l.Tell(about(3), task.StepFailed, 2)
		l.Tell(about(3), "", 2)
		time.Sleep(time.Second)
		stop()
		if len(c.wrote) != 3 || count[Sent] != 3 {
			t.Fatalf("wrote %+v, counted %v", c.wrote, count)
		}
		for i := 1; i < len(c.at); i++ {
			if c.at[i].Sub(c.at[i-1]) < defaultPace {
				t.Errorf("two within %v", c.at[i].Sub(c.at[i-1]))
			}
		}
		if n := c.wrote[1]; n.Namespace != "shop" || n.Object.Name != "c1" || n.Reason != "TaskFailed" || n.Action != "volume.resize" || !n.Warning ||
			n.Note != "Task t-1 (volume.resize) has failed: exit_code" {
			t.Errorf("wrote %+v", n)
		}
	})
}

func TestWhatAHandlerSaidNeverStandsInANote(t *testing.T) {
	for _, step := range []task.Step{task.StepStarted, task.StepRetrying, task.StepSucceeded, task.StepFailed, task.StepCanceled} {
		told := about(1)
		told.Reason = "my secret is hunter2"
		told.Params, told.Result = []byte(`"secret"`), []byte(`"secret"`)
		if n := notices(told, step, 1)[0]; strings.Contains(n.Note, "secret") || !strings.Contains(n.Note, "t-1") {
			t.Errorf("%s: %q", step, n.Note)
		}
	}
}

func TestTheSameStepHasTheSameKeyAndAnotherAnother(t *testing.T) {
	seen := map[string]bool{}
	for _, step := range []task.Step{task.StepStarted, task.StepRetrying} {
		for attempt := range 2 {
			key := notices(about(1), step, attempt)[0].Key
			if seen[key] || key != notices(about(1), step, attempt)[0].Key {
				t.Errorf("%s", key)
			}
			seen[key] = true
		}
	}
}

func TestNothingWaitsForAClusterThatIsAwayAndWhatIsDroppedIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{wait: true}
		l, count, stop := start(t, c)
		began := time.Now()
		for range queueSize {
			l.Tell(about(2), task.StepStarted, 1)
		}
		if time.Since(began) != 0 {
			t.Error("a teller waited")
		}
		time.Sleep(2 * writeTime)
		stop()
		if count[Dropped]+count[Failed] != 2*queueSize || count[Failed] == 0 || count[Sent] != 0 {
			t.Errorf("counted %v", count)
		}
	})
}

func TestAnEventThatStandsThereIsAsGoodAsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{says: fmt.Errorf("write: %w", task.ErrTaken)}
		l, count, stop := start(t, c)
		l.Tell(about(1), task.StepStarted, 1)
		synctest.Wait()
		c.mu.Lock()
		c.says = errors.New("no")
		c.mu.Unlock()
		l.Tell(about(1), task.StepStarted, 1)
		time.Sleep(time.Second)
		stop()
		if count[Sent] != 1 || count[Failed] != 1 {
			t.Errorf("counted %v", count)
		}
	})
}
