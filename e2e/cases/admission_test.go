package cases

import (
	"context"
	"errors"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// inOneNamespace keeps the policies from the other tests of the cluster.
const inOneNamespace = `
resources: [../components/admission]
patches:
  - target: {kind: ValidatingAdmissionPolicyBinding}
    patch: |-
      - {op: add, path: /spec/matchResources, value: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}}
`

func TestWithTheAdmissionPolicySlipwayRunsAsListedAccountsOnly(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.API})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	r.Apply(t, fmt.Sprintf(inOneNamespace, ns))
	if _, err := r.Kube.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "tools"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	as := rest.CopyConfig(r.Config)
	as.Impersonate.UserName = "system:serviceaccount:slipway-system:slipway"
	slipway, err := kubernetes.NewForConfig(as)
	if err != nil {
		t.Fatal(err)
	}
	tryJob := func(by kubernetes.Interface, account string) error {
		_, err := by.BatchV1().Jobs(ns).Create(t.Context(), &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: plainPod(account)}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	rig.Eventually(t, "the policies to act", func(context.Context) (bool, error) {
		if tryJob(slipway, "tools") == nil || tryPod(t, slipway, ns) == nil {
			return false, errors.New("a Job or a pod is still taken")
		}
		return true, nil
	})
	for what, by := range map[string]kubernetes.Interface{"slipway-runner": slipway, "tools": r.Kube} {
		if err := tryJob(by, what); err != nil {
			t.Errorf("a Job of %s is refused: %v", what, err)
		}
	}
	if err := tryPod(t, slipway, ns, metav1.DryRunAll); err != nil {
		t.Errorf("a dry run of a pod is refused: %v", err)
	}
	if err := tryJob(slipway, "default"); err == nil {
		t.Error("the namespace's default account was taken")
	}

	submit := func(account string) string {
		s := rig.Command(ns, "x")
		s["spec"] = map[string]any{"service_account": account}
		return user.Submit(t, s).ID
	}
	refused := user.Await(t, submit("tools"))
	if refused.State != api.StateFailed || refused.Reason != "invalid" {
		t.Errorf("the task ended %s/%s: %s", refused.State, refused.Reason, refused.Message)
	}
	if jobs := r.JobsCreated(t, ns); len(jobs) != 0 {
		t.Errorf("Jobs were created: %v", jobs)
	}
	user.JobOf(t, submit("slipway-runner"))
	list := []byte(`{"metadata":{"annotations":{"slipway.dev/service-accounts":"other, tools"}}}`)
	if _, err := r.Kube.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType, list, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the list to act", func(context.Context) (bool, error) {
		err := tryJob(slipway, "tools")
		return err == nil, err
	})
	user.JobOf(t, submit("tools"))
}

func plainPod(account string) corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName: account, RestartPolicy: corev1.RestartPolicyNever,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "main", Image: "x", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}
}

func tryPod(t *testing.T, by kubernetes.Interface, ns string, dry ...string) error {
	t.Helper()
	_, err := by.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, Spec: plainPod("slipway-runner"),
	}, metav1.CreateOptions{DryRun: dry})
	return err
}
