package chaos

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/checker"
	"slipway.dev/slipway/e2e/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// settle is how long nothing may end once all is well again, while something is open. The longest pause there is: a Task
// that was lost six times waits two minutes before its next try; one whose node was lost waits for fence_after, grace and
// 30 s.
const settle = 3 * time.Minute

// TestNothingIsLostDoubledOrStuckInAStorm lasts one minute, or MINUTES; SEED makes it another one.
func TestNothingIsLostDoubledOrStuckInAStorm(t *testing.T) {
	minutes, seed := number(t, "MINUTES", 1), uint64(number(t, "SEED", 20261130))
	s := gather(t, seed, time.Duration(minutes*float64(time.Minute)))
	s.blow(t.Context())
	h, err := checker.Read(s.save(), s.rig.Namespaces...)
	if err != nil {
		t.Fatal(err)
	}
	api := checker.API{Base: "http://" + s.rig.Gate.Address, Token: map[string]string{}}
	for i, ns := range s.rig.Namespaces {
		api.Token[ns] = s.users[i].Token
	}
	if err := api.Settle(t.Context(), &h, settle); err != nil {
		t.Fatal(err)
	}
	if h, err = s.again(h); err != nil {
		t.Fatal(err)
	}
	wrong := checker.Report(os.Stdout, h, checker.Scaled(minutes, s.allKinds()), seed)
	for _, text := range wrong {
		t.Error(text)
	}
	if len(wrong) > 0 {
		var told strings.Builder
		api.Explain(context.WithoutCancel(t.Context()), &told, h)
		t.Logf("the traces are in %s%s", s.dir, told.String())
		s.keepLogs()
	}
}

// again reads the files once more, after the last Task has ended, and keeps what the API has said.
func (s *storm) again(h checker.History) (checker.History, error) {
	now, err := checker.Read(s.save(), s.rig.Namespaces...)
	now.Tasks, now.Attempts, now.Within = h.Tasks, h.Attempts, h.Within
	return now, err
}

// keepLogs copies the replicas' logs beside the other traces.
func (s *storm) keepLogs() {
	for _, p := range s.rig.Replicas {
		text, err := os.ReadFile(p.LogFile)
		if err != nil {
			s.t.Logf("read the log of %s: %v", p.Name, err)
			continue
		}
		s.write(s.path(p.Name+".log"), string(text))
	}
}

func number(t *testing.T, name string, otherwise float64) float64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n <= 0 {
		t.Fatalf("%s=%s is no number above zero", name, text)
	}
	return n
}
