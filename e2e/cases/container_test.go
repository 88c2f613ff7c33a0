package cases

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// container is a container.run of the runner's own image, whose busybox stands for any image.
func container(t *testing.T, r *rig.Rig, params map[string]any) map[string]any {
	t.Helper()
	params["image"] = rig.RunnerImage()
	return map[string]any{"kind": "container.run", "namespace": r.Namespace(), "params": params, "spec": map[string]any{"grace": 5, "fence_after": 45}}
}

// encoded is a value as JSON.
func encoded(t *testing.T, value any) []byte {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestAnyImageIsWrappedEndToEnd(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node})
	user := r.User(t, r.Namespace())
	line := `echo "$GREETING $0"; stat -c %a $SLIPWAY_PARAMS; env | grep -c secret; echo '3/7 half' > $SLIPWAY_PROGRESS
		sed 's/.*"input":\({[^}]*}\).*/\1/' $SLIPWAY_PARAMS > $SLIPWAY_RESULT; while [ ! -e /tmp/go ]; do sleep 0.2; done`
	id := user.Submit(t, container(t, r, map[string]any{
		"command": []string{"/bin/busybox", "sh", "-c"}, "args": []string{line, "$(HOME)"}, "env": map[string]string{"GREETING": "hi $(HOME) $$"},
		"input": map[string]string{"word": "secret"},
	})).ID
	seen := user.Until(t, id, "to show its progress", func(task api.Task) bool { return task.Progress != nil && task.Progress.Done == 3 })
	r.Kubectl(t, "exec", "--namespace", r.Namespace(), seen.Attempt.Pod.Name, "--", "touch", "/tmp/go")
	ended := user.Await(t, id)
	if ended.State != api.StateSucceeded || string(encoded(t, ended.Result)) != `{"word":"secret"}` {
		t.Errorf("task is %s/%s (%s) with result %s", ended.State, ended.Reason, ended.Message, encoded(t, ended.Result))
	}
	log := user.Must(t, http.MethodGet, "/v1/tasks/"+id+"/logs", nil, http.StatusOK)
	if want := "hi $(HOME) $$ $(HOME)\n400\n0\n"; string(log.Body) != want {
		t.Errorf("the log is %q, want %q", log.Body, want)
	}
	if attempts := user.Attempts(t, id); len(attempts) != 1 || !strings.HasPrefix(attempts[0].Rule, "1 ") {
		t.Errorf("attempts %+v, want one that ended by its report", attempts)
	}
}

func TestAnImageWithoutARunnerEndsByItsExitCodeBehindAGate(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node})
	user := r.User(t, r.Namespace())
	want := map[string]wanted{}
	for line, w := range map[string]wanted{
		"exit 0": succeeded, "exit 121": exit3,
		`echo "v1 $SLIPWAY_ATTEMPT $SLIPWAY_FENCE rejected bad_input no such table" > /dev/termination-log; exit 1`: {api.StateFailed, "bad_input"},
	} {
		want[user.Submit(t, container(t, r, map[string]any{"command": []string{"sh", "-c", line}, "wrap": false})).ID] = w
	}
	stopped := user.Submit(t, container(t, r, map[string]any{"command": []string{"sleep", "600"}, "wrap": false})).ID
	user.Until(t, stopped, "to pass the gate", started)
	user.Must(t, http.MethodPost, "/v1/tasks/"+stopped+"/cancel", nil, http.StatusAccepted)
	want[stopped] = wanted{api.StateCanceled, "cancel"}
	verdicts(t, user, want)
}

func TestAKindOfOnesOwnRunsFromItsFile(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node})
	file := filepath.Join(t.TempDir(), "kinds.yaml")
	text := fmt.Sprintf(`kinds:
- name: report.build
  image: %s
  command: [sh, -c, "cat $SLIPWAY_PARAMS; echo; id -u; cat /config/word; echo"]
  lane: "report:{namespace}/{params.report}"
  defaults: {grace: 5, run_deadline: 60}
  params: {type: object, required: [report], properties: {report: {type: string}}}
  pod:
    metadata: {annotations: {word: patched}}
    spec:
      volumes: [{name: config, downwardAPI: {items: [{path: word, fieldRef: {fieldPath: "metadata.annotations['word']"}}]}}]
      containers: [{name: main, volumeMounts: [{name: config, mountPath: /config}], securityContext: {runAsUser: 1000}}]
`, rig.RunnerImage())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	replica := r.AddReplica(t, map[string]string{"SLIPWAY_KINDS": file})
	replica.WaitReady(t)
	user := r.User(t, r.Namespace()).Via(replica.Address)
	id := user.Submit(t, map[string]any{"kind": "report.build", "namespace": r.Namespace(), "params": map[string]any{"report": "may"}}).ID
	if ended := user.Await(t, id); ended.State != api.StateSucceeded || ended.Lane != "report:"+r.Namespace()+"/may" {
		t.Errorf("task is %s/%s (%s) in lane %s", ended.State, ended.Reason, ended.Message, ended.Lane)
	}
	log := user.Must(t, http.MethodGet, "/v1/tasks/"+id+"/logs", nil, http.StatusOK)
	if want := "{\"report\":\"may\"}\n1000\npatched\n"; string(log.Body) != want {
		t.Errorf("the log is %q, want %q", log.Body, want)
	}
}
