package kinds

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/pkg/task"
)

const withObjects = `kinds:
- name: volume.check
  image: registry.example.com/check:1
  command: [check]
  objects:
  - {apiVersion: v1, kind: PersistentVolumeClaim, name: "{params.pvc}"}
  - {apiVersion: apps/v1, kind: StatefulSet, name: "db-{namespace}"}
  params: {type: object, required: [pvc], properties: {pvc: {type: string}}}
`

func TestATaskNamesTheObjectsOfItsKindAndItsOwn(t *testing.T) {
	all, err := Read("kinds.yaml", []byte(withObjects))
	if err != nil {
		t.Fatal(err)
	}
	settings := task.Object{APIVersion: "v1", Kind: "ConfigMap", Name: "settings"}
	b, err := Build(all[0], Request{Namespace: "shop", Params: []byte(`{"pvc":"data"}`), Objects: []task.Object{settings, settings}})
	if err != nil {
		t.Fatal(err)
	}
	want := "[{v1 PersistentVolumeClaim data} {apps/v1 StatefulSet db-shop} {v1 ConfigMap settings}]"
	if got := fmt.Sprint(b.Task.Spec.Objects); got != want || b.Free {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for name, tc := range map[string]struct {
		params, pointer string
		own             task.Object
	}{
		"a parameter that is no name": {`{"pvc":"../x"}`, "/params", settings},
		"no version":                  {`{"pvc":"data"}`, "/objects/0/apiVersion", task.Object{APIVersion: "core", Kind: "ConfigMap", Name: "x"}},
		"a resource for a kind":       {`{"pvc":"data"}`, "/objects/0/kind", task.Object{APIVersion: "v1", Kind: "configmaps", Name: "x"}},
		"a template":                  {`{"pvc":"data"}`, "/objects/0/name", task.Object{APIVersion: "v1", Kind: "ConfigMap", Name: "{params.pvc}"}},
	} {
		_, err := Build(all[0], Request{Namespace: "shop", Params: []byte(tc.params), Objects: []task.Object{tc.own}})
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Fields[0].Pointer != tc.pointer {
			t.Errorf("%s: %v", name, err)
		}
	}
	var many []task.Object
	for n := range MaxObjects - 1 {
		many = append(many, task.Object{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint("c", n)})
	}
	if _, err := Build(all[0], Request{Namespace: "shop", Params: []byte(`{"pvc":"data"}`), Objects: many}); err == nil || !strings.Contains(err.Error(), "more than 8") {
		t.Errorf("nine objects: %v", err)
	}
}

func TestBadObjectsOfAKindAreNamed(t *testing.T) {
	for change, want := range map[string]string{
		`"{params.pvc}"|"{pvc}"`:                   "kind volume.check: objects.0.name: holds {pvc}",
		`"{params.pvc}"|"A B"`:                     "objects.0.name: is no name of an object",
		"kind: StatefulSet|kind: statefulsets":     "objects.1.kind: is no kind",
		"apiVersion: apps/v1|apiVersion: apps":     "objects.1.apiVersion: is no version",
		"kind: StatefulSet|kind: X, uid: 1":        "uid",
		"apiVersion: v1, kind|apiVersion: v1, kin": "kin",
	} {
		from, to, _ := strings.Cut(change, "|")
		_, err := Read("kinds.yaml", []byte(strings.Replace(withObjects, from, to, 1)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", change, err)
		}
	}
}
