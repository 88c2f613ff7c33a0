package kinds

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"slipway.dev/slipway/manifests/rights"
	"slipway.dev/slipway/pkg/task"
)

func TestEachKindOfVolumesHasItsLaneItsAccountAndNothingFree(t *testing.T) {
	for kind, tc := range map[string]struct{ params, lane, queue string }{
		"volume.resize":           {`{"pvc":"data","size":"2Gi"}`, "volume:shop/data", "volume"},
		"volume.modify":           {`{"pvc":"data","class":"gold"}`, "volume:shop/data", "volume"},
		"volume.snapshot":         {`{"pvc":"data","rule":"default"}`, "volume:shop/data", "volume"},
		"volume.snapshot.delete":  {`{"pvc":"data","snapshot":"data-1"}`, "volume:shop/data", "volume"},
		"volume.snapshot.cleanup": {`{"rule":"default","keep":{"count":3}}`, "volume-rules:shop/default", "maintenance"},
	} {
		b, err := Build(builtIn(t, kind), Request{Namespace: "shop", Params: json.RawMessage(tc.params)})
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		s := b.Task.Spec
		if b.Task.Lane != tc.lane || b.Task.Queue != tc.queue || b.Free || !s.Idempotent || !s.Pod.API || s.ServiceAccount != rights.Account(kind) {
			t.Errorf("%s: %+v", kind, b)
		}
		if about := len(s.Objects) == 1 && s.Objects[0].Name == "data"; about != (tc.queue == "volume") {
			t.Errorf("%s is about %v", kind, s.Objects)
		}
		// A pod of one's own choice under such an account is a pod of one's own.
		b, err = Build(builtIn(t, kind), Request{Namespace: "shop", Params: json.RawMessage(tc.params), Spec: json.RawMessage(`{"pod":{"env":{"A":{"value":"1"}}}}`)})
		if err != nil || !b.Free {
			t.Errorf("%s with wishes for its pod: free %v, %v", kind, b.Free, err)
		}
	}
	table := map[string]bool{}
	for _, k := range rights.Kinds() {
		table[k.Name] = true
	}
	for _, name := range BuiltIn().Names() {
		k, _ := BuiltIn().Get(name)
		if k.Spec.Pod.API != table[name] || table[name] != (k.Spec.ServiceAccount != "") {
			t.Errorf("%s: in the table %v, a token %v, account %q", name, table[name], k.Spec.Pod.API, k.Spec.ServiceAccount)
		}
	}
}

func TestBadParametersOfVolumesAreNamed(t *testing.T) {
	for _, tc := range []struct{ kind, params, field string }{
		{"volume.resize", `{"pvc":"data"}`, "/params/size"},
		{"volume.resize", `{"pvc":"data","size":"much"}`, "/params/size"},
		{"volume.resize", `{"pvc":"data","size":"0"}`, "/params/size"},
		{"volume.resize", `{"pvc":"data","size":"-1Gi"}`, "/params/size"},
		{"volume.resize", `{"pvc":"data","size":"2Ei"}`, "/params/size"},
		{"volume.resize", `{"pvc":"data","size":"1e999999999"}`, "/params/size"},
		{"volume.resize", `{"pvc":"data","size":"1e99999999999999999999"}`, "/params/size"},
		{"volume.resize", `{"pvc":"data","size":"999999999999999999999999999999999999Ei"}`, "/params/size"},
		{"volume.resize", `{"pvc":"data","size":"1.0000000000000000001Ei"}`, "/params/size"},
		{"volume.resize", `{"pvc":"../x","size":"1Gi"}`, "/params/pvc"},
		{"volume.modify", `{"pvc":"data","class":""}`, "/params/class"},
		{"volume.snapshot", `{"pvc":"data","rule":"A B"}`, "/params/rule"},
		{"volume.snapshot.delete", `{"pvc":"data"}`, "/params/snapshot"},
		{"volume.snapshot.cleanup", `{"rule":"default"}`, "/params/keep"},
		{"volume.snapshot.cleanup", `{"rule":"default","keep":{}}`, "/params/keep/count"},
		{"volume.snapshot.cleanup", `{"rule":"default","keep":{"count":-1}}`, "/params/keep/count"},
		{"volume.snapshot.cleanup", `{"rule":"default","keep":{"daily":3,"zone":"Mars/Olympus"}}`, "/params/keep/zone"},
		{"volume.snapshot.cleanup", `{"rule":"default","keep":{"daily":3,"max_share":2}}`, "/params/keep/max_share"},
		{"volume.snapshot.cleanup", `{"rule":"default","keep":{"daily":3,"yearly":2}}`, "/params/keep/yearly"},
	} {
		_, err := Build(builtIn(t, tc.kind), Request{Namespace: "shop", Params: json.RawMessage(tc.params)})
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Fields[0].Pointer, tc.field) {
			t.Errorf("%s %s: %v", tc.kind, tc.params, err)
		}
	}
}

func TestASnapshotOfALaneWaitsAndACleanupIsAbsorbed(t *testing.T) {
	if k := builtIn(t, "volume.snapshot"); k.Mode != task.Strict || k.OnConflict != task.ConflictQueue {
		t.Errorf("%+v", k)
	}
	if k := builtIn(t, "volume.snapshot.cleanup"); k.Mode != task.Latest {
		t.Errorf("%+v", k)
	}
}

func TestAResizeWantsStorageTheSameInAnySpelling(t *testing.T) {
	for size, want := range map[string]int64{"2Gi": 2 << 30, "2048Mi": 2 << 30, "2147483648": 2 << 30, "2147483648000m": 2 << 30, "1G": 1e9, "1e9": 1e9, "1n": 1, "1.5Gi": 3 << 29, "1Ei": 1 << 60} {
		b, err := Build(builtIn(t, "volume.resize"), Request{Namespace: "shop", Params: json.RawMessage(`{"pvc":"data","size":"` + size + `"}`)})
		if err != nil || b.Growth == nil || *b.Growth != (task.Growth{Claim: "data", Bytes: want}) {
			t.Errorf("%s: %+v %v", size, b.Growth, err)
		}
	}
	b, err := Build(builtIn(t, "volume.snapshot"), Request{Namespace: "shop", Params: json.RawMessage(`{"pvc":"data"}`)})
	if err != nil || b.Growth != nil {
		t.Errorf("a snapshot: %+v %v", b.Growth, err)
	}
}
