package cases

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"slipway.dev/slipway/e2e/storage"
	"slipway.dev/slipway/pkg/api"
)

// On real claims, under exactly the rights that the manifests give: what passes the limit is refused with the numbers, what
// has grown counts, and what a ResourceQuota of Kubernetes refuses is told in its words.
func TestAGrowthThatPassesTheLimitOfItsNamespaceOrAQuotaIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	r, s, user := volumes(t)
	r.Grant(t, r.Namespace(), "slipway-admin")
	ns := r.Namespace()
	for _, name := range []string{"a", "b"} {
		s.Claim(t, ns, name, storage.Claim{Size: "64Mi"})
		s.Mount(t, ns, name).Delete(t)
	}
	at := "/v1/limits/" + ns
	limit := func(storage string) *api.StorageLimit {
		t.Helper()
		return decoded[api.LimitList](t, user.Must(t, http.MethodPut, at, map[string]any{"storage": storage}, http.StatusOK)).Storage
	}
	if l := limit("256Mi"); l.InUse != "128Mi" || l.Reserved != "0" {
		t.Fatalf("%+v", l)
	}
	refused := func(pvc, size, want string) {
		t.Helper()
		a := user.Must(t, http.MethodPost, "/v1/tasks", map[string]any{
			"kind": "volume.resize", "namespace": ns, "params": map[string]any{"pvc": pvc, "size": size},
		}, http.StatusUnprocessableEntity)
		if text := string(a.Body); !strings.Contains(text, `"pointer":"/params/size"`) || !strings.Contains(text, want) {
			t.Errorf("%s to %s: %s, want %s", pvc, size, text, want)
		}
	}
	refused("a", "200Mi", fmt.Sprintf("asks for 136Mi more than namespace %s has room for within its limit of storage: the limit is 256Mi, in use are 128Mi", ns))
	outcomeOf[sizes](t, user, about(t, user, "volume.resize", map[string]any{"pvc": "a", "size": "134217728"}, nil).ID, api.StateSucceeded)
	refused("b", "160Mi", "in use are 192Mi, tasks have reserved 0 more")
	outcomeOf[sizes](t, user, about(t, user, "volume.resize", map[string]any{"pvc": "b", "size": "128Mi"}, nil).ID, api.StateSucceeded)
	if l := decoded[api.LimitList](t, user.Must(t, http.MethodGet, at, nil, http.StatusOK)).Storage; l.InUse != "256Mi" || l.Open != 0 {
		t.Errorf("at the end: %+v", l)
	}

	user.Must(t, http.MethodPut, at, map[string]any{"storage": nil}, http.StatusOK)
	r.Kubectl(t, "create", "quota", "-n", ns, "storage", "--hard=requests.storage=300Mi")
	over := user.Await(t, about(t, user, "volume.resize", map[string]any{"pvc": "b", "size": "256Mi"}, nil).ID)
	if over.State != api.StateFailed || !strings.Contains(over.Message, "exceeded quota") {
		t.Errorf("over the quota: %s %s %s", over.State, over.Reason, over.Message)
	}
	t.Logf("over the quota: %s/%s %s", over.State, over.Reason, over.Message)
}
