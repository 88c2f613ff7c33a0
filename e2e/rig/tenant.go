package rig

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/images/archive"
	"slipway.dev/slipway/manifests"
)

// testerAccount is the user of a tenant: slipway-operator, and allowed to create Jobs.
const testerAccount = "tester"

// tester is what the user of a tenant needs.
const tester = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: tester}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tester-slipway}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: slipway-operator}
subjects: [{kind: ServiceAccount, name: tester}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tester-jobs}
rules: [{apiGroups: [batch], resources: [jobs], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tester-jobs}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tester-jobs}
subjects: [{kind: ServiceAccount, name: tester}]
`

// rights are the kinds of manifests/base that a control plane outside of the cluster needs.
var rights = map[string]bool{
	"Namespace": true, "ServiceAccount": true, "ClusterRole": true, "ClusterRoleBinding": true, "PriorityClass": true,
}

// applyRights gives the cluster the accounts and roles of manifests/base, and nothing else of it.
func applyRights(ctx context.Context, c *local.Cluster) error {
	rendered, err := manifests.Render("base", nil)
	if err != nil {
		return err
	}
	var wanted [][]byte
	for _, doc := range bytes.Split(rendered, []byte("\n---\n")) {
		var object struct{ Kind string }
		if err := yaml.Unmarshal(doc, &object); err != nil {
			return fmt.Errorf("read manifests/base: %w", err)
		}
		if rights[object.Kind] {
			wanted = append(wanted, doc)
		}
	}
	return apply(ctx, c, bytes.Join(wanted, []byte("\n---\n")))
}

func apply(ctx context.Context, c *local.Cluster, documents []byte) error {
	cmd := exec.CommandContext(ctx, c.Kubectl, "--kubeconfig", c.Kubeconfig, "apply", "--server-side", "-f", "-")
	cmd.Stdin = bytes.NewReader(documents)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply: %w\n%s", err, out)
	}
	return nil
}

// makeTenant makes a namespace that the control plane may launch in, as an overlay would, under PodSecurity restricted.
func (r *Rig) makeTenant(t testing.TB) string {
	t.Helper()
	name := Name("tenant")
	tenant, err := manifests.Render("rig", map[string][]byte{
		"rig/kustomization.yaml": []byte("namespace: " + name + "\nresources: [../components/tenant, ../components/tenant-volumes, tester.yaml]\n"),
		"rig/tester.yaml":        []byte(tester),
	})
	if err != nil {
		t.Fatalf("render a tenant: %v", err)
	}
	// What belongs to no namespace has a name of its own for each.
	tenant = regexp.MustCompile(`(kind: ClusterRoleBinding\n(?:.*\n)*?  name: \S+)`).ReplaceAll(tenant, []byte("${1}-"+name))
	space := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + ", labels: {pod-security.kubernetes.io/enforce: restricted}}\n"
	if err := apply(t.Context(), r.Cluster, []byte(space)); err != nil {
		t.Fatalf("make namespace %s: %v", name, err)
	}
	if err := apply(t.Context(), r.Cluster, tenant); err != nil {
		t.Fatalf("enable namespace %s: %v", name, err)
	}
	return name
}

// Grant gives the user of a tenant one more ClusterRole there. It goes with the namespace.
func (r *Rig) Grant(t testing.TB, namespace, role string) {
	t.Helper()
	r.Kubectl(t, "create", "rolebinding", Name("granted"), "-n", namespace, "--clusterrole="+role, "--serviceaccount="+namespace+":"+testerAccount)
}

func (r *Rig) authority(t testing.TB) []byte {
	t.Helper()
	config, err := clientcmd.LoadFromFile(r.Cluster.Kubeconfig)
	if err != nil {
		t.Fatalf("read the administrator's kubeconfig: %v", err)
	}
	for _, c := range config.Clusters {
		return c.CertificateAuthorityData
	}
	t.Fatal("the administrator's kubeconfig names no cluster")
	return nil
}

// runnerRef is the image that was loaded into the node.
var runnerRef string

// loadImages puts the runner's image on the node.
func loadImages(ctx context.Context, c *local.Cluster) error {
	images, err := archive.Build(ctx, archive.Options{Names: []string{"runner"}, Root: root(), Log: Progress})
	if err != nil {
		return err
	}
	runnerRef = images[0].Ref
	return c.Load(ctx, images[0].Archive)
}

// RunnerImage is the image that the node profile has loaded.
func RunnerImage() string { return runnerRef }

func runnerImage(profile local.Profile) string {
	if profile == local.Node {
		return runnerRef
	}
	return "slipway.dev/runner:played" // nothing pulls it
}

// Kubectl runs kubectl as the administrator and gives what it printed.
func (r *Rig) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), r.Cluster.Kubectl, append([]string{"--kubeconfig", r.Cluster.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// teardown ends the replicas and lets go of what they held in the cluster, so that its namespaces can go.
func (r *Rig) teardown(t testing.TB) {
	for _, p := range r.Replicas {
		if p.Running() {
			_ = p.cmd.Process.Kill() // its end is awaited below
		}
		<-p.end
	}
	if t.Failed() {
		for _, p := range r.Replicas {
			fmt.Fprintf(Progress, "the last lines of %s:\n%s\n", p.Name, p.Tail())
		}
	}
	if r.Cluster.Profile == local.Fake {
		return // it may be full of them, and goes as a whole
	}
	ctx := context.Background()
	background := metav1.DeletePropagationBackground
	for _, ns := range r.Namespaces {
		_ = r.Kube.BatchV1().Jobs(ns).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{}) // the cluster goes anyway
		pods, err := r.Kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, pod := range pods.Items {
			_, _ = r.Kube.CoreV1().Pods(ns).Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
		_ = r.Kube.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{})
	}
}

// Job reads a Job.
func (r *Rig) Job(t testing.TB, namespace, name string) *batchv1.Job {
	t.Helper()
	job, err := r.Kube.BatchV1().Jobs(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("read job %s: %v", name, err)
	}
	return job
}

// Apply applies what a kustomization beside the folders of manifests renders.
func (r *Rig) Apply(t testing.TB, kustomization string) {
	t.Helper()
	text, err := manifests.Render("rig", map[string][]byte{"rig/kustomization.yaml": []byte(kustomization)})
	if err == nil {
		err = apply(t.Context(), r.Cluster, text)
	}
	if err != nil {
		t.Fatalf("apply a kustomization: %v", err)
	}
}
