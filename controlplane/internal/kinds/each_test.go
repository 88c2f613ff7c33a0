package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/pkg/task"
)

func TestASnapshotOfEachVolumeIsATaskOfItsOwnAtAMomentOfItsOwn(t *testing.T) {
	k := builtIn(t, "volume.snapshot.each")
	params := json.RawMessage(`{"selector":"app=shop","rule":"default","class":"fast","spread":60}`)
	if _, err := Build(k, Request{Namespace: "shop", Params: params}); err != nil || k.Selector(params) != "app=shop" || !k.Composite() {
		t.Fatalf("%v, selects %q", err, k.Selector(params))
	}
	plan := func(params string, found ...string) map[string]Child {
		all, err := k.Planner.Plan(Request{Namespace: "shop", Params: json.RawMessage(params), Found: found})
		if err != nil || len(all) != len(found) {
			t.Fatalf("%d children, %v", len(all), err)
		}
		by := map[string]Child{}
		for _, c := range all {
			b, err := Build(builtIn(t, c.Kind), c.Request)
			if err != nil || b.Free || b.Task.Lane != "volume:shop/"+c.Name {
				t.Fatalf("child %s: %+v, %v", c.Name, b, err)
			}
			by[c.Name] = c
		}
		return by
	}
	var found []string
	for i := range MaxChildren {
		found = append(found, fmt.Sprintf("data-%d", i))
	}
	all, alone := plan(string(params), found...), plan(string(params), "data-7")
	if one := all["data-7"]; one.Kind != "volume.snapshot" || string(one.Params) != `{"pvc":"data-7","class":"fast","rule":"default"}` || one.Delay != alone["data-7"].Delay {
		t.Errorf("%+v, alone %+v", one, alone)
	}
	moments := map[task.Seconds]bool{}
	first, last := task.Seconds(60), task.Seconds(0)
	for _, c := range all {
		moments[c.Delay] = true
		first, last = min(first, c.Delay), max(last, c.Delay)
	}
	if len(moments) < MaxChildren*9/10 || first < 0 || first > 6 || last < 54 || last >= 60 {
		t.Errorf("%d moments from %v to %v", len(moments), first, last)
	}
	for _, c := range plan(`{"selector":"a","spread":0}`, "x", "y") {
		if c.Delay != 0 || string(c.Params) != `{"pvc":"`+c.Name+`"}` {
			t.Errorf("without a spread: %+v", c)
		}
	}
}

func TestASelectorThatFindsNothingOrTooMuchIsNamed(t *testing.T) {
	k := builtIn(t, "volume.snapshot.each")
	for _, found := range [][]string{nil, make([]string, MaxChildren+1)} {
		_, err := k.Planner.Plan(Request{Namespace: "shop", Params: json.RawMessage(`{"selector":"app=shop"}`), Found: found})
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Fields[0].Pointer != "/params/selector" || !strings.HasPrefix(invalid.Fields[0].Reason, "matches ") {
			t.Errorf("%d found: %v", len(found), err)
		}
	}
	for params, field := range map[string]string{
		`{}`:                                 "/params/selector",
		`{"selector":"app in"}`:              "/params/selector",
		`{"selector":" "}`:                   "/params/selector",
		`{"selector":"a=b","spread":-1}`:     "/params/spread",
		`{"selector":"a=b","class":""}`:      "/params/class",
		`{"selector":"a=b","rule":"A B"}`:    "/params/rule",
		`{"selector":"a=b","volumes":["x"]}`: "/params/volumes",
	} {
		_, err := Build(k, Request{Namespace: "shop", Params: json.RawMessage(params)})
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Fields[0].Pointer != field {
			t.Errorf("%s: %v", params, err)
		}
	}
}
