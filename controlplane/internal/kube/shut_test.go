package kube

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// A namespace that was deleted, or is not enabled any more, still stands in the list of a replica that starts.
func TestANamespaceThatIsShutHoldsUpNobodyAndIsSeenWhenItOpens(t *testing.T) {
	shut := "shut-" + string(uuid.NewUUID())[:13]
	r := newRig(t, func(c *Config) {
		c.Namespaces = append(c.Namespaces, shut)
		c.Renew = 2 * time.Second
	}) // waits until it is synced
	if got := r.client.Shut(); !slices.Equal(got, []string{shut}) {
		t.Fatalf("shut: %q", got)
	}
	if _, ok := r.client.SyncAge(); !ok || r.client.Gap() != 0 {
		t.Errorf("filled: %v, gap: %v", ok, r.client.Gap())
	}
	_, a, _ := r.launch()
	if fence, err := r.client.MaxFence(t.Context()); err != nil || fence != a.Fence {
		t.Errorf("the largest fence is %d, %v", fence, err)
	}
	select {
	case <-r.client.Reopened():
		t.Error("nothing was opened")
	default:
	}

	r.makeNamespace(shut, nil)
	select {
	case <-r.client.Reopened():
	case <-time.After(60 * time.Second):
		t.Fatal("nobody noticed that it was opened")
	}
	r.eventually("both watches of the namespace", func(context.Context) bool { return len(r.client.Shut()) == 0 })

	if err := server.api.RbacV1().RoleBindings(shut).Delete(t.Context(), "slipway-launcher", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventually("word that it is shut again", func(context.Context) bool { return slices.Equal(r.client.Shut(), []string{shut}) })
	if gap := r.client.Gap(); gap != 0 {
		t.Errorf("one namespace counts as trouble of the cluster: %v", gap)
	}
}
