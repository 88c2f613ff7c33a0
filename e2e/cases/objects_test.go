package cases

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

func TestObjectsThatATaskNamesTellOfItsSteps(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node, Replicas: 2})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	if _, err := r.Kube.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Kube.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("none"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	submit := func(line, object string, spec map[string]any) string {
		s := shell(ns, line, spec)
		kind, name, _ := strings.Cut(object, "/")
		s["objects"] = []map[string]string{{"apiVersion": "v1", "kind": kind, "name": name}}
		return user.Submit(t, s).ID
	}
	good := submit("echo hunter2", "ConfigMap/settings", nil)
	bad := submit("exit 3", "PersistentVolumeClaim/data", nil)
	later := rig.Command(ns, "true")
	later["delay"], later["objects"] = 3600, []map[string]string{{"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"}}
	waits := user.Submit(t, later).ID
	user.Must(t, "POST", "/v1/tasks/"+waits+"/cancel", nil, 200)
	verdicts(t, user, map[string]wanted{good: succeeded, bad: exit3})

	shows := func(what string, command []string, want ...string) {
		t.Helper()
		rig.Eventually(t, what, func(context.Context) (bool, error) {
			out := r.Kubectl(t, append(command, "--namespace", ns)...)
			for _, text := range want {
				if n := strings.Count(out, text); n != 1 {
					return false, fmt.Errorf("%q stands there %d times:\n%s", text, n, out)
				}
			}
			if strings.Contains(out, "hunter2") {
				t.Error("an event tells what a command printed")
			}
			return true, nil
		})
	}
	shows("the events of the config map", []string{"events", "--for", "configmap/settings"},
		"Task "+good+" (command.run) has started, attempt 1", "Task "+good+" (command.run) has succeeded", "Task "+waits+" (command.run) was canceled")
	shows("the events of the claim", []string{"describe", "persistentvolumeclaim", "data"},
		"Task "+bad+" (command.run) has started, attempt 1", "Task "+bad+" (command.run) has failed: exit_code")
}
