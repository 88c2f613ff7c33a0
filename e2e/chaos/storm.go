package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/checker"
	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/hollow"
	"slipway.dev/slipway/e2e/recorder"
	"slipway.dev/slipway/e2e/rig"
)

// Size of a storm.
const (
	replicas   = 3
	namespaces = 3
	nodes      = 8
	lanes      = 60 // in all
	fenceAfter = 15 * time.Second
	handOver   = fenceAfter + time.Second + 30*time.Second // of a lane whose holder is silent: with its grace and a margin
	runsOn     = handOver + time.Minute                    // a lost machine: long enough for the next in the lane to begin
)

// storm is one run.
type storm struct {
	t        testing.TB
	rig      *rig.Rig
	users    []*rig.User // by namespace, in the order of the rig's
	fleet    *hollow.Fleet
	recorder *recorder.Recorder
	dir      string
	seed     uint64
	lasts    time.Duration
	began    time.Time

	mu      sync.Mutex
	submits map[string]*checker.Submit // by key
	ends    map[string]string          // by Task: an end that an answer has shown
	free    [namespaces][]string       // Tasks without a lane
	long    map[string]bool            // Tasks whose handler works on until it is stopped
	faults  []checker.Fault
}

// kinds is the file of kinds: their handler is the one that tells the recorder what it does.
const kinds = `kinds:
- name: chaos.work
  image: slipway.dev/runner:played
  wrap: own
  command: [/slipway-runner, exec, --, /work]
  supersedes: [chaos.work]
  defaults: {idempotent: true, grace: 1, fence_after: 15, retry: {attempts: 3, backoff: 0.3, cap: 2, lost: 50}}
  pod: {spec: {containers: [{name: main, env: [
    {name: FENCE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['slipway.dev/fence']"}}},
    {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]}]}}
`

// gather brings up everything that the storm is to break.
func gather(t testing.TB, seed uint64, lasts time.Duration) *storm {
	t.Helper()
	dir, err := os.MkdirTemp("", "slipway-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir) // a leftover in the temporary folder harms nobody
		}
	})
	s := &storm{t: t, dir: dir, seed: seed, lasts: lasts, submits: map[string]*checker.Submit{}, ends: map[string]string{}, long: map[string]bool{}}
	file := filepath.Join(dir, "kinds.yaml")
	if err := os.WriteFile(file, []byte(kinds), 0o600); err != nil {
		t.Fatal(err)
	}
	programs, err := hollow.Build(t.Context(), "../..", dir)
	if err != nil {
		t.Fatal(err)
	}
	s.rig = rig.New(t, rig.Options{
		Profile: local.API, Replicas: replicas, Namespaces: namespaces, Proxied: true, Seed: seed, Version: rig.Unraced(t),
		Env: map[string]string{
			"SLIPWAY_KINDS": file, "SLIPWAY_HEARTBEAT": "2s", "SLIPWAY_RESYNC": "5s", "SLIPWAY_CALLER_RATE": "0",
			"SLIPWAY_SWEEP_EVERY": "5s", "SLIPWAY_SWEEP_AGE": "10s", "SLIPWAY_LOG_LEVEL": "info",
		},
	})
	// The rig's server loses the newest commits in a crash, which no server does that Slipway is made for.
	s.sql(t.Context(), "ALTER SYSTEM SET synchronous_commit = on", "SELECT pg_reload_conf()")
	for _, ns := range s.rig.Namespaces {
		s.users = append(s.users, s.rig.User(t, ns))
	}
	if s.recorder, err = recorder.Start(t.Context(), s.rig.Cluster.HostIP, s.path("records")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.recorder.Close(); err != nil {
			t.Error(err)
		}
	})
	s.fleet = hollow.New(hollow.Options{
		Kube: s.rig.Kube, Namespaces: s.rig.Namespaces, Nodes: nodes, Programs: programs, Entrypoint: []string{"/slipway-runner"},
		Service: s.rig.Gate.Address, Host: s.rig.Cluster.HostIP, Dir: dir, Seed: seed,
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.fleet.Run(ctx); err != nil || ctx.Err() == nil {
			t.Errorf("the hollow nodes have ended: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return s
}

func (s *storm) path(name string) string { return filepath.Join(s.dir, name) }

// random is a stream of chance of its own for everybody who needs one, so that nobody's draws depend on another's pace.
func (s *storm) random(who string) *rand.Rand {
	sum := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(who) {
		sum = (sum ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(s.seed, sum))
}

// blow lets the storm loose and returns when it is over and all is well again.
func (s *storm) blow(ctx context.Context) {
	s.began = time.Now()
	calm, stop := context.WithTimeout(ctx, s.lasts)
	defer stop()
	var group sync.WaitGroup
	for _, track := range s.tracks() {
		group.Go(func() { s.follow(calm, track) })
	}
	s.load(calm)
	group.Wait()
	s.mend()
}

// happened writes a fault down.
func (s *storm) happened(kind, note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, checker.Fault{Kind: kind, At: time.Now(), Note: note})
}

// save writes down what the clients know, for the checker.
func (s *storm) save() checker.Files {
	s.mu.Lock()
	defer s.mu.Unlock()
	var submits []checker.Submit
	for _, one := range s.submits {
		if len(one.IDs) > 0 {
			one.Ended = s.ends[one.IDs[0]]
			submits = append(submits, *one)
		}
	}
	f := checker.Files{Submits: s.path("submits"), Faults: s.path("faults"), Records: s.recorder.File, Audit: s.rig.Cluster.AuditLog}
	s.write(f.Submits, lines(submits))
	s.write(f.Faults, lines(s.faults))
	return f
}

func lines[T any](all []T) string {
	var text strings.Builder
	for _, one := range all {
		raw, err := json.Marshal(one)
		if err != nil {
			panic(err) // plain data
		}
		_, _ = fmt.Fprintf(&text, "%s\n", raw) // a builder takes everything
	}
	return text.String()
}

func (s *storm) write(file, text string) {
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Errorf("write down what happened: %v", err)
	}
}

// nap waits, or until ctx ends.
func nap(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
