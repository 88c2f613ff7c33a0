package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// The rule is 4.12, before the submit: a user learns what the cluster would say without making a Task.
func TestADryRunNamesWhatTheClusterWouldSay(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.API})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	with := func(spec map[string]any) map[string]any {
		s := rig.Command(ns, "x")
		s["spec"] = spec
		return s
	}
	good, bad := with(map[string]any{"limits": map[string]string{"memory": "32Mi"}}), with(map[string]any{"service_account": "nope"})
	try := func(submit any, status int) (task api.Task) {
		t.Helper()
		a := user.Must(t, http.MethodPost, "/v1/tasks?dry_run=true", submit, status)
		if err := json.Unmarshal(a.Body, &task); status == http.StatusOK && err != nil {
			t.Fatal(err)
		}
		return task
	}
	if would := try(good, http.StatusOK); len(would.Warnings) != 0 {
		t.Errorf("a good one is warned of: %+v", would.Warnings)
	}
	for what, submit := range map[string]any{"/v1/tasks?dry_run=true": bad, "/v1/tasks:batch?dry_run=true": map[string]any{"tasks": []any{good, bad}}} {
		p := decodeProblem(t, user.Must(t, http.MethodPost, what, submit, http.StatusUnprocessableEntity))
		if len(p.Errors) != 1 || !strings.HasSuffix(p.Errors[0].Pointer, "/spec") || !strings.Contains(p.Errors[0].Reason, `serviceaccount "nope" not found`) {
			t.Errorf("%s without its account: %+v", what, p)
		}
	}

	quotas := r.Kube.CoreV1().ResourceQuotas(ns)
	if _, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the quota to act", func(context.Context) (bool, error) {
		if w := try(good, http.StatusOK).Warnings; len(w) != 1 || w[0].Reason != "quota" {
			return false, fmt.Errorf("warnings %+v", w)
		}
		return true, nil
	})
	if err := quotas.Delete(t.Context(), "full", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	r.Kubectl(t, "label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
	if would := try(good, http.StatusOK); len(would.Warnings) != 0 {
		t.Errorf("our own pod under PodSecurity restricted: %+v", would.Warnings)
	}

	if page := list(t, user, ns, url.Values{}, http.StatusOK); len(page.Items) != 0 {
		t.Errorf("tasks were stored: %+v", page.Items)
	}
	if jobs := r.JobsCreated(t, ns); len(jobs) != 0 {
		t.Errorf("Jobs were created: %v", jobs)
	}
}
