package hollow_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/hollow"
	"slipway.dev/slipway/e2e/recorder"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// stage is Slipway with hollow nodes below it.
type stage struct {
	*rig.Rig
	fleet    *hollow.Fleet
	recorder *recorder.Recorder
	user     *rig.User
}

const kinds = `kinds:
- name: work
  image: slipway.dev/runner:played
  wrap: own
  command: [/slipway-runner, exec, --, /work]
  defaults: {idempotent: true, grace: 1, fence_after: 15, retry: {attempts: 1, lost: 0}}
  pod: {spec: {containers: [{name: main, env: [
    {name: FENCE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['slipway.dev/fence']"}}},
    {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]}]}}
`

func set(t *testing.T) *stage {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "kinds.yaml")
	if err := os.WriteFile(file, []byte(kinds), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &stage{Rig: rig.New(t, rig.Options{Profile: local.API, Env: map[string]string{"SLIPWAY_KINDS": file, "SLIPWAY_HEARTBEAT": "2s"}})}
	s.user = s.User(t, s.Namespace())
	programs, err := hollow.Build(t.Context(), "../..", dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.recorder, err = recorder.Start(t.Context(), s.Cluster.HostIP, filepath.Join(dir, "records")); err != nil {
		t.Fatal(err)
	}
	s.fleet = hollow.New(hollow.Options{
		Kube: s.Kube, Namespaces: s.Namespaces, Nodes: 2, Programs: programs, Entrypoint: []string{"/slipway-runner"},
		Service: s.Gate.Address, Host: s.Cluster.HostIP, Dir: dir,
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		err := s.fleet.Run(ctx)
		if ctx.Err() == nil {
			t.Errorf("the fleet has ended: %v", err)
		}
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, s.recorder.Close()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(dir, "logs", "*"))
			for _, log := range logs {
				text, _ := os.ReadFile(log)
				t.Logf("%s:\n%s", filepath.Base(log), text)
			}
		}
	})
	return s
}

func (s *stage) work(t *testing.T, millis int, more map[string]any) string {
	t.Helper()
	params := map[string]any{"recorder": s.recorder.Address, "millis": millis}
	for k, v := range more {
		params[k] = v
	}
	return s.user.Submit(t, map[string]any{"kind": "work", "namespace": s.Namespace(), "params": params}).ID
}

// running waits until the handler of a Task is at work and gives its pod.
func (s *stage) running(t *testing.T, id string) hollow.Pod {
	t.Helper()
	var found hollow.Pod
	rig.Eventually(t, "the handler of "+id+" to be at work", func(context.Context) (bool, error) {
		records, err := os.ReadFile(s.recorder.File)
		if err != nil || !strings.Contains(string(records), id) {
			return false, err
		}
		job := s.user.JobOf(t, id)
		for _, p := range s.fleet.Running() {
			if p.Job == job {
				found = p
				return true, nil
			}
		}
		return false, nil
	})
	return found
}

// ends waits for the end of a Task and holds outcome, reason and rule against what they should be.
func (s *stage) ends(t *testing.T, id string, outcome api.Outcome, reason, rule string) {
	t.Helper()
	task := s.user.Await(t, id)
	if task.Outcome != outcome || task.Reason != reason || !strings.HasPrefix(task.Attempt.Rule, rule) {
		t.Errorf("task %s ended as %s/%s by rule %q (%s), want %s/%s by %q", id, task.Outcome, task.Reason, task.Attempt.Rule, task.Message, outcome, reason, rule)
	}
}

func TestSlipwayTakesAHollowNodeForARealOne(t *testing.T) {
	s := set(t)
	pods, zero := s.Kube.CoreV1().Pods(s.Namespace()), int64(0)
	for name, c := range map[string]struct {
		params  map[string]any
		millis  int
		trouble func(t *testing.T, id string, p hollow.Pod)
		outcome api.Outcome
		reason  string
		rule    string
	}{
		"done":   {outcome: api.OutcomeSucceeded, rule: "1 "},
		"failed": {params: map[string]any{"fail_first": 1, "exit": 7}, outcome: api.OutcomeFailed, reason: "exit_code", rule: "1 "},
		"crash":  {params: map[string]any{"fail_first": 1, "crash": true}, outcome: api.OutcomeFailed, reason: "signal", rule: "1 "},
		"cancel": {millis: 60_000, outcome: api.OutcomeCanceled, reason: "cancel", rule: "0 ", trouble: func(t *testing.T, id string, _ hollow.Pod) {
			s.user.Must(t, "POST", "/v1/tasks/"+id+"/cancel", nil, 200, 202)
		}},
		"cancel of a deaf one": {millis: 60_000, params: map[string]any{"deaf": true}, outcome: api.OutcomeCanceled, reason: "cancel", rule: "0 ", trouble: func(t *testing.T, id string, _ hollow.Pod) {
			s.user.Must(t, "POST", "/v1/tasks/"+id+"/cancel", nil, 200, 202)
		}},
		"killed": {millis: 60_000, outcome: api.OutcomeFailed, reason: "signal", rule: "8 ", trouble: func(_ *testing.T, _ string, p hollow.Pod) { p.Kill() }},
		"oom":    {millis: 60_000, outcome: api.OutcomeFailed, reason: "oom_killed", rule: "6 ", trouble: func(_ *testing.T, _ string, p hollow.Pod) { p.OOM() }},
		"evict":  {millis: 60_000, outcome: api.OutcomeLost, reason: "evicted", rule: "", trouble: func(_ *testing.T, _ string, p hollow.Pod) { p.Evict() }},
		"force delete": {millis: 60_000, outcome: api.OutcomeLost, reason: "deleted", rule: "", trouble: func(t *testing.T, _ string, p hollow.Pod) {
			if err := pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
				t.Fatal(err)
			}
		}},
		"freeze": {millis: 3_000, outcome: api.OutcomeSucceeded, rule: "1 ", trouble: func(t *testing.T, _ string, p hollow.Pod) { p.Freeze(t.Context(), 2*time.Second) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := s.work(t, max(c.millis, 300), c.params)
			if c.trouble != nil {
				c.trouble(t, id, s.running(t, id))
			}
			s.ends(t, id, c.outcome, c.reason, c.rule)
		})
	}
}

func TestWhatRunsOnALostNodeEndsByItself(t *testing.T) {
	s := set(t)
	id := s.work(t, 300_000, nil)
	p := s.running(t, id)
	var lost *hollow.Node
	for _, n := range s.fleet.Nodes() {
		if n.Name == p.Node {
			lost = n
		}
	}
	if err := s.fleet.Lose(t.Context(), lost, time.Second, 60*time.Second); err != nil {
		t.Fatal(err)
	}
	pod, err := s.Kube.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
	if err != nil || pod.Status.Phase != corev1.PodFailed || pod.DeletionTimestamp == nil {
		t.Errorf("%v, %v: want a pod that its Node's deletion has failed and deleted", pod.Status, err)
	}
	rig.Eventually(t, "the handler to fall silent", func(context.Context) (bool, error) {
		last, err := os.Stat(s.recorder.File)
		return err == nil && time.Since(last.ModTime()) > 3*time.Second, err
	})
	if task := s.user.Task(t, id); task.State != api.StateRunning {
		t.Errorf("the task is %s before its fence time is over", task.State)
	}
	s.ends(t, s.work(t, 300, nil), api.OutcomeSucceeded, "", "1 ")
}
