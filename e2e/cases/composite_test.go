package cases

import (
	"context"
	"encoding/json"
	"testing"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// TestATreeEndsAsItShouldThoughItsControlPlaneDiesAtEachStepOfSettling runs a composite Task on a real node. The only
// replica is killed again and again in the middle of what the end of one Task means for the others.
func TestATreeEndsAsItShouldThoughItsControlPlaneDiesAtEachStepOfSettling(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node})
	user, replica, ns := r.User(t, r.Namespace()), r.Replicas[0], r.Namespace()
	child := func(ref, line string, more map[string]any) map[string]any {
		c := shell(ns, line, map[string]any{"retry": map[string]any{"attempts": 1}})
		c["ref"], c["name"] = ref, ref
		for k, v := range more {
			c[k] = v
		}
		return c
	}
	tree := map[string]any{"kind": "group", "namespace": ns, "children": []any{
		child("good", "sleep 2", nil),
		child("bad", "exit 3", nil),
		child("next", "true", map[string]any{"after": []string{"ref:good"}}),
		child("never", "true", map[string]any{"after": []string{"ref:bad"}}),
		child("last", "true", map[string]any{"after": []string{"ref:next", "ref:never"}, "run_if": "all_finished"}),
	}}
	places := []string{"settle-decides@2", "settle-before-commit@2", "settle-after-commit@2", "settle-before-commit@3"}
	replica.Stop(t)
	died := -1
	var id string
	key := rig.Name("key")
	rig.Eventually(t, "the tree to end", func(ctx context.Context) (bool, error) {
		if !replica.Running() {
			died++
			if died < len(places) {
				replica.Start(t, map[string]string{"SLIPWAY_FAILPOINTS": places[died] + "=kill"})
			} else {
				replica.Start(t)
			}
		}
		if id == "" {
			var err error
			id, err = user.TrySubmit(ctx, tree, key)
			return false, err
		}
		answer, err := user.Do(ctx, "GET", "/v1/tasks/"+id, nil)
		if err != nil || answer.Status != 200 {
			return false, err
		}
		var now api.Task
		err = json.Unmarshal(answer.Body, &now)
		return now.State == api.StateFailed, err
	})
	if died < 2 {
		t.Errorf("the replica died %d times only", died)
	}
	if replica.Running() {
		replica.Stop(t)
	}
	replica.Start(t) // without failpoints
	replica.WaitReady(t)
	got := user.Task(t, id)
	c := got.Children
	if got.Reason != "child_failed" || c == nil || c.Succeeded != 3 || c.Failed != 2 || got.Progress == nil || got.Progress.Done != 5 {
		t.Fatalf("%+v %+v", got, c)
	}
	for i, want := range []string{"succeeded", "failed exit_code", "succeeded", "failed dependency_failed", "succeeded"} {
		if text := string(c.Items[i].State); text != want && text+" "+c.Items[i].Reason != want {
			t.Errorf("child %s is %s %s, want %s", c.Items[i].Name, text, c.Items[i].Reason, want)
		}
	}
	if n := len(r.JobsCreated(t, ns)); n != 4 {
		t.Errorf("%d Jobs were created, want 4", n)
	}
	var again api.Task
	if err := json.Unmarshal(user.Must(t, "POST", "/v1/tasks/"+id+"/retry", nil, 201).Body, &again); err != nil {
		t.Fatal(err)
	}
	if again.RetryOf != id || again.Children == nil || again.Children.Count != 2 || len(again.Children.Items[1].After) != 1 ||
		again.Children.Items[1].After[0] != again.Children.Items[0].ID {
		t.Errorf("the repeat: %+v", again.Children)
	}
	if got := user.Await(t, again.ID); got.Message == "" || got.Children.Failed != 2 {
		t.Errorf("the repeat's end: %+v", got)
	}
}
