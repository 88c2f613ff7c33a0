package manifests

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// written are overlays as those write them who enable a namespace, or bring kinds of their own.
var written = map[string][]byte{
	"overlays/tenant/kustomization.yaml":      []byte("namespace: team-a\nresources: [../../components/tenant, ../../components/tenant-network]\n"),
	"overlays/volumes/kustomization.yaml":     []byte("namespace: team-a\nresources: [../../components/tenant-volumes]\n"),
	"overlays/kinds/kustomization.yaml":       []byte(ownKinds),
	"overlays/alerts/kustomization.yaml":      []byte("resources: [../../base]\ncomponents: [../../components/alerts]\n"),
	"overlays/kinds/kinds.yaml":               []byte("kinds: []\n"),
	"overlays/kinds-later/kustomization.yaml": []byte(ownKinds),
	"overlays/kinds-later/kinds.yaml":         []byte("kinds: [{name: report.build, image: report:3, command: [/report]}]\n"),
}

const ownKinds = `
resources: [../../base]
components: [../../components/kinds]
configMapGenerator: [{name: slipway-kinds, namespace: slipway-system, files: [kinds.yaml]}]
`

var folders = []string{
	"base", "overlays/local", "overlays/current", "overlays/demo", "overlays/tenant", "overlays/volumes", "overlays/kinds", "overlays/alerts",
	"components/admission",
}

// objects renders a folder and splits it; as decodes one of them.
func objects(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	out, err := Render(folder, written)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for document := range bytes.SplitSeq(out, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			t.Fatalf("%s: %v", folder, err)
		}
		all = append(all, object)
	}
	return all
}

func as[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	raw, err := object.MarshalJSON()
	if err == nil {
		err = yaml.UnmarshalStrict(raw, &typed)
	}
	if err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return typed
}

func find(t *testing.T, folder, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range objects(t, folder) {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Fatalf("%s has no %s %s", folder, kind, name)
	return nil
}

// rules lists every grant as "group/resource verb".
func rules(t *testing.T, object *unstructured.Unstructured) []string {
	t.Helper()
	var grants []string
	for _, rule := range as[rbacv1.ClusterRole](t, object).Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					grants = append(grants, group+"/"+resource+" "+verb)
				}
			}
		}
	}
	slices.Sort(grants)
	return grants
}

func TestEveryRightIsNamed(t *testing.T) {
	for _, folder := range folders {
		for _, object := range objects(t, folder) {
			switch object.GetKind() {
			case "ClusterRole", "Role":
				for _, rule := range as[rbacv1.ClusterRole](t, object).Rules {
					words := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs)
					for _, word := range words {
						if strings.Contains(word, "*") {
							t.Errorf("%s: %s gives %v", folder, object.GetName(), words)
						}
					}
					for _, verb := range []string{"escalate", "bind", "impersonate"} {
						if slices.Contains(rule.Verbs, verb) {
							t.Errorf("%s: %s gives %s", folder, object.GetName(), verb)
						}
					}
					if slices.Contains(rule.Resources, "secrets") {
						t.Errorf("%s: %s reaches secrets", folder, object.GetName())
					}
				}
			case "ClusterRoleBinding", "RoleBinding":
				b := as[rbacv1.ClusterRoleBinding](t, object)
				if !strings.HasPrefix(b.RoleRef.Name, "slipway-") && b.RoleRef.Name != "demo-user-jobs" {
					t.Errorf("%s: %s binds %s", folder, b.Name, b.RoleRef.Name)
				}
				for _, subject := range b.Subjects {
					if subject.Kind != rbacv1.ServiceAccountKind {
						t.Errorf("%s: %s binds a %s", folder, b.Name, subject.Kind)
					}
				}
			}
		}
	}
}

var rightsLine = regexp.MustCompile(`^//\t+(""|[a-z.0-9]+) +([a-z/]+) +(.*)$`)

// documented reads the rights in the package comment of kube: in each namespace, and in the cluster.
func documented(t *testing.T) (inNamespace, inCluster []string) {
	t.Helper()
	text, err := os.ReadFile("../controlplane/internal/kube/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	into := &inNamespace
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "// In the cluster:") {
			into = &inCluster
		}
		m := rightsLine.FindStringSubmatch(line)
		if m == nil || m[1] == "apiGroup" {
			continue
		}
		verbs := regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(m[3], "")
		for _, verb := range strings.Fields(verbs) {
			*into = append(*into, fmt.Sprintf("%s/%s %s", strings.Trim(m[1], `"`), m[2], verb))
		}
	}
	slices.Sort(inNamespace)
	slices.Sort(inCluster)
	return inNamespace, inCluster
}

func TestTheControlPlaneHasTheRightsThatItsPackageCommentListsAndNoOthers(t *testing.T) {
	inNamespace, inCluster := documented(t)
	if len(inNamespace) < 10 || len(inCluster) < 2 {
		t.Fatalf("read too little from the package comment: %q, %q", inNamespace, inCluster)
	}
	for _, folder := range []string{"base", "overlays/local", "overlays/current"} {
		if got := rules(t, find(t, folder, "ClusterRole", "slipway-launcher")); !slices.Equal(got, inNamespace) {
			t.Errorf("%s: in a namespace\ngot  %q\nwant %q", folder, got, inNamespace)
		}
		if got := rules(t, find(t, folder, "ClusterRole", "slipway-asker")); !slices.Equal(got, inCluster) {
			t.Errorf("%s: in the cluster\ngot  %q\nwant %q", folder, got, inCluster)
		}
	}
}

func TestTheLauncherIsBoundInTenantNamespacesOnly(t *testing.T) {
	for _, folder := range folders {
		for _, object := range objects(t, folder) {
			if !strings.HasSuffix(object.GetKind(), "RoleBinding") {
				continue
			}
			b := as[rbacv1.ClusterRoleBinding](t, object)
			for _, subject := range b.Subjects {
				if subject.Name != "slipway" {
					continue
				}
				if subject.Namespace != "slipway-system" {
					t.Errorf("%s: %s binds an account of namespace %s", folder, b.Name, subject.Namespace)
				}
				inCluster := object.GetKind() == "ClusterRoleBinding"
				if inCluster && b.RoleRef.Name != "slipway-asker" || !inCluster && object.GetNamespace() == "slipway-system" {
					t.Errorf("%s: %s gives %s", folder, b.Name, b.RoleRef.Name)
				}
			}
		}
	}
}

func TestARunnersAccountHasNoRights(t *testing.T) {
	for _, folder := range folders {
		for _, object := range objects(t, folder) {
			if strings.HasSuffix(object.GetKind(), "RoleBinding") {
				for _, subject := range as[rbacv1.ClusterRoleBinding](t, object).Subjects {
					if subject.Name == "slipway-runner" || subject.Name == "default" {
						t.Errorf("%s: %s gives a pod's account rights", folder, object.GetName())
					}
				}
			}
		}
	}
	account := as[corev1.ServiceAccount](t, find(t, "overlays/tenant", "ServiceAccount", "slipway-runner"))
	if account.Namespace != "team-a" || account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
		t.Errorf("the runner's account is %+v", account)
	}
}

func TestNoSecretStandsInAnyManifest(t *testing.T) {
	for _, folder := range folders {
		out, err := Render(folder, written)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(out, []byte("kind: Secret\n")) || bytes.Contains(out, []byte("stringData")) {
			t.Errorf("%s renders a Secret", folder)
		}
	}
}

// podsOf gives the pod templates of a folder by name.
func podsOf(t *testing.T, folder string) map[string]corev1.PodSpec {
	t.Helper()
	pods := map[string]corev1.PodSpec{}
	for _, object := range objects(t, folder) {
		switch object.GetKind() {
		case "Deployment":
			pods[object.GetName()] = as[appsv1.Deployment](t, object).Spec.Template.Spec
		case "StatefulSet":
			pods[object.GetName()] = as[appsv1.StatefulSet](t, object).Spec.Template.Spec
		case "Job", "Pod", "DaemonSet", "CronJob", "ReplicaSet":
			t.Errorf("%s: this test does not look into a %s", folder, object.GetKind())
		}
	}
	return pods
}

func TestEveryPodKeepsToPodSecurityRestricted(t *testing.T) {
	for _, folder := range folders {
		for name, pod := range podsOf(t, folder) {
			s := pod.SecurityContext
			if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 ||
				s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: pod %s: %+v", folder, name, s)
			}
			if pod.HostNetwork || pod.HostPID || pod.HostIPC {
				t.Errorf("%s: pod %s shares the host's namespaces", folder, name)
			}
			for _, volume := range pod.Volumes {
				certificate := volume.Secret != nil && volume.Secret.SecretName == "slipway-tls" && *volume.Secret.DefaultMode == 0o440
				kinds := volume.ConfigMap != nil && strings.HasPrefix(volume.ConfigMap.Name, "slipway-kinds-")
				if volume.EmptyDir == nil && !certificate && !kinds {
					t.Errorf("%s: pod %s has volume %s", folder, name, volume.Name)
				}
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				s := c.SecurityContext
				if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil ||
					!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 ||
					s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
					t.Errorf("%s: container %s: %+v", folder, c.Name, s)
				}
				if c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s: container %s names no resources", folder, c.Name)
				}
			}
		}
	}
}

func TestNoTaskPreemptsAnything(t *testing.T) {
	seen := 0
	for _, object := range objects(t, "base") {
		if object.GetKind() != "PriorityClass" {
			continue
		}
		seen++
		class := as[schedulingv1.PriorityClass](t, object)
		if class.Value > 0 || class.GlobalDefault || class.PreemptionPolicy == nil || *class.PreemptionPolicy != corev1.PreemptNever {
			t.Errorf("%+v", class)
		}
	}
	if seen != 4 {
		t.Errorf("%d priority classes", seen)
	}
}

func TestVariablesAreSetBeforeTheyAreUsed(t *testing.T) {
	use := regexp.MustCompile(`\$\(([A-Z_]+)\)`)
	for _, folder := range []string{"base", "overlays/local", "overlays/current"} {
		for _, pod := range podsOf(t, folder) {
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				set := map[string]bool{}
				for _, env := range c.Env {
					for _, m := range use.FindAllStringSubmatch(env.Value, -1) {
						// What ends so comes from a Service of the namespace.
						if !set[m[1]] && !strings.HasSuffix(m[1], "_SERVICE_HOST") && !strings.HasSuffix(m[1], "_SERVICE_PORT") {
							t.Errorf("%s: %s uses %s before it is set", folder, env.Name, m[1])
						}
					}
					set[env.Name] = true
				}
			}
		}
	}
}

func TestTheRoleForTheServiceProxyReachesSlipwaysServiceAndIsBoundToNobody(t *testing.T) {
	role := as[rbacv1.Role](t, find(t, "base", "Role", "slipway-proxy"))
	names := []string{"http:slipway:http", "https:slipway:http"}
	if role.Namespace != "slipway-system" || len(role.Rules) != 1 || !slices.Equal(role.Rules[0].Resources, []string{"services/proxy"}) ||
		!slices.Equal(role.Rules[0].ResourceNames, names) {
		t.Errorf("%+v", role)
	}
	for _, folder := range folders {
		for _, object := range objects(t, folder) {
			if object.GetKind() == "RoleBinding" && as[rbacv1.RoleBinding](t, object).RoleRef.Name == "slipway-proxy" {
				t.Errorf("%s: %s binds it", folder, object.GetName())
			}
		}
	}
}

func TestTheControlPlaneServesTLSAndIsProbedByIt(t *testing.T) {
	for _, folder := range []string{"base", "overlays/local", "overlays/current"} {
		c := podsOf(t, folder)["slipway"].Containers[0]
		for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
			if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
				t.Errorf("%s: the %s probe is %s", folder, name, probe.HTTPGet.Scheme)
			}
		}
		set := map[string]string{}
		for _, env := range c.Env {
			set[env.Name] = env.Value
		}
		if !strings.HasPrefix(set["SLIPWAY_RUNNER_URL"], "https://") || set["SLIPWAY_TLS_CERT"] == "" || set["SLIPWAY_TLS_KEY"] == "" ||
			set["SLIPWAY_RUNNER_CA"] == "" || set["SLIPWAY_PLAIN_HTTP"] != "" {
			t.Errorf("%s: %v", folder, set)
		}
	}
}
