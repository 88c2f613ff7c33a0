package kube

import (
	"errors"
	"strings"
	"testing"

	"slipway.dev/slipway/pkg/task"
)

func TestAPatchThatTouchesWhatSlipwayNeedsIsRefusedByName(t *testing.T) {
	c := paperClient(t)
	for name, tc := range map[string]struct{ patch, field string }{
		"restart policy":      {`{"spec":{"restartPolicy":"OnFailure"}}`, "pod.spec.restartPolicy"},
		"a label of ours":     {`{"metadata":{"labels":{"slipway.dev/fence":"0"}}}`, "pod.metadata.labels"},
		"a label taken away":  {`{"metadata":{"labels":{"slipway.dev/fence":null}}}`, "pod.metadata.labels"},
		"finalizers":          {`{"metadata":{"finalizers":["example.com/mine"]}}`, "pod.metadata.finalizers"},
		"a name":              {`{"metadata":{"name":"mine"}}`, "pod.metadata.name"},
		"the token's volume":  {`{"spec":{"volumes":[{"name":"token","emptyDir":{},"projected":null}]}}`, "pod.spec.volumes"},
		"the runner's volume": {`{"spec":{"volumes":[{"name":"runner","emptyDir":{"medium":"Memory"}}]}}`, "pod.spec.volumes"},
		"the runner's copy":   {`{"spec":{"initContainers":[{"name":"runner","image":"other"}]}}`, "pod.spec.initContainers"},
		"the command":         {`{"spec":{"containers":[{"name":"main","command":["sh"]}]}}`, "pod.spec.containers[main].command"},
		"the image":           {`{"spec":{"containers":[{"name":"main","image":"other"}]}}`, "pod.spec.containers[main].image"},
		"the runner's env":    {`{"spec":{"containers":[{"name":"main","env":[{"name":"SLIPWAY_URL","value":"x"}]}]}}`, "pod.spec.containers[main].env"},
		"a mount of ours":     {`{"spec":{"containers":[{"name":"main","volumeMounts":[{"name":"tmp","mountPath":"/slipway"}]}]}}`, "pod.spec.containers[main].volumeMounts"},
		"the message's path":  {`{"spec":{"containers":[{"name":"main","terminationMessagePath":"/x"}]}}`, "pod.spec.containers[main].terminationMessagePath"},
		"the deadline":        {`{"spec":{"activeDeadlineSeconds":5}}`, "pod.spec.activeDeadlineSeconds"},
		"the grace period":    {`{"spec":{"terminationGracePeriodSeconds":5}}`, "pod.spec.terminationGracePeriodSeconds"},
		"the account":         {`{"spec":{"serviceAccountName":"admin"}}`, "pod.spec.serviceAccountName"},
		"an unknown field":    {`{"spec":{"restartpolicy2":"x"}}`, "pod"},
		"a directive":         {`{"spec":{"$patch":"replace"}}`, "pod"},
		"no object":           {`[]`, "pod"},
	} {
		k := task.Kind{Name: "report.build", Spec: task.DefaultSpec()}
		k.Spec.Image, k.Spec.Pod = "registry.example/report:1", task.Pod{Wrap: task.WrapExec, Command: []string{"/report"}, Patch: []byte(tc.patch)}
		err := c.CheckKind(k)
		var refused *PatchError
		if !errors.As(err, &refused) || refused.Field != tc.field {
			t.Errorf("%s: got %v, want %s refused", name, err, tc.field)
		}
		tk, a := paperAttempt()
		tk.Spec = k.Spec
		if tc.field == "pod" {
			continue // only what is merged is held at a launch
		}
		if _, _, err := c.Launch(t.Context(), tk, a); err == nil || !strings.Contains(err.Error(), tc.field) {
			t.Errorf("%s: launched with %v", name, err)
		}
	}
}

func TestAPatchOfWhatIsFreeIsTaken(t *testing.T) {
	k := task.Kind{Name: "report.build", Spec: task.DefaultSpec()}
	k.Spec.Pod.Patch = []byte(`{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}},"spec":{"hostAliases":[{"ip":"10.0.0.1","hostnames":["x"]}],
		"initContainers":[{"name":"warm","image":"x"}],"containers":[{"name":"main","env":[{"name":"A","value":"b"}],"securityContext":{"runAsUser":1000}}]}}`)
	for _, wrap := range []task.Wrap{task.WrapOwn, task.WrapExec, task.WrapNone} {
		k.Spec.Pod.Wrap = wrap
		if err := paperClient(t).CheckKind(k); err != nil {
			t.Errorf("wrap %q: %v", wrap, err)
		}
	}
}
