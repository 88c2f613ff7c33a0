package cli

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// proxied is what lets the tester of a namespace through to the control plane: Service, Role and binding. The Role is
// that of manifests/base; the Service selects nothing, since this control plane is no pod.
const proxied = `
apiVersion: v1
kind: Service
metadata: {name: slipway, namespace: slipway-system}
spec: {ports: [{name: http, port: 8080}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tester, namespace: slipway-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: slipway-proxy}
subjects: [{kind: ServiceAccount, name: tester, namespace: TENANT}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tester-token, namespace: TENANT}
rules: [{apiGroups: [""], resources: [serviceaccounts/token], resourceNames: [tester], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tester-token, namespace: TENANT}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tester-token}
subjects: [{kind: ServiceAccount, name: tester}]
`

// stand puts the replica behind the Service: the service proxy calls pods alone, so one claims its address.
func stand(t *testing.T, r *rig.Rig) {
	t.Helper()
	text := strings.ReplaceAll(proxied, "TENANT", r.Namespace())
	role, err := os.ReadFile("../../manifests/base/proxy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "proxied.yaml")
	if err := os.WriteFile(file, append(role, "---"+text...), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Kubectl(t, "apply", "--server-side", "-f", file)
	host, portText, err := net.SplitHostPort(r.Replicas[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(portText)
	if err != nil {
		t.Fatal(err)
	}
	const system = "slipway-system"
	yes, no, name, port := true, false, "http", int32(number)
	pods := r.Kube.CoreV1().Pods(system)
	pod, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "claims-an-address"}, Spec: corev1.PodSpec{
		SchedulerName: "nobody", ServiceAccountName: "slipway",
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "c", Image: "x", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.PodIP, pod.Status.PodIPs = host, []corev1.PodIP{{IP: host}}
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = r.Kube.DiscoveryV1().EndpointSlices(system).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "slipway-replica", Labels: map[string]string{discoveryv1.LabelServiceName: "slipway"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{host}, Conditions: discoveryv1.EndpointConditions{Ready: &yes},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: system, Name: pod.Name, UID: pod.UID},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// shell is where the tester types: a kubectl with the plugin on its path and a kubeconfig that holds a token for the API
// server and no more.
type shell struct{ env []string }

func newShell(t *testing.T, r *rig.Rig) shell {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "kubectl-slipway"), "slipway.dev/slipway/controlplane/cmd/slipway")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the command line: %v\n%s", err, out)
	}
	if err := os.Symlink(r.Cluster.Kubectl, filepath.Join(dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	made, err := r.Kube.CoreV1().ServiceAccounts(r.Namespace()).CreateToken(t.Context(), "tester", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := clientcmd.LoadFromFile(r.Cluster.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	for _, c := range admin.Clusters {
		config.Clusters["c"] = c
	}
	config.AuthInfos["tester"] = &clientcmdapi.AuthInfo{Token: made.Status.Token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "tester", Namespace: r.Namespace()}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, filepath.Join(dir, "config")); err != nil {
		t.Fatal(err)
	}
	return shell{env: []string{"PATH=" + dir + ":/usr/bin:/bin", "HOME=" + dir, "KUBECONFIG=" + filepath.Join(dir, "config"), "TZ=UTC", "SLIPWAY_SERVICE_ACCOUNT=tester"}}
}

// types runs one line, wants its exit code and each of says in what it prints, and gives what it printed.
func (s shell) types(t *testing.T, code int, line string, says ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); err != nil && got < 0 || got != code {
		t.Errorf("%s: exit code %d, want %d", line, got, code)
	}
	for _, want := range says {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s: does not say %q", line, want)
		}
	}
	t.Logf("$ %s\n%s[%d]", line, out, cmd.ProcessState.ExitCode())
	return string(out)
}

func (s shell) submits(t *testing.T, line string) string {
	t.Helper()
	var made api.Task
	if err := json.Unmarshal([]byte(s.types(t, 0, line)), &made); err != nil || made.ID == "" {
		t.Fatalf("%s: %+v, %v", line, made, err)
	}
	return made.ID
}

func TestAUserOfOneNamespaceGoesTheWholeRoundAndNeverSeesAnAddressOfTheControlPlane(t *testing.T) {
	r := rig.New(t, rig.Options{Profile: local.Node, TLS: true})
	stand(t, r)
	s, ns := newShell(t, r), r.Namespace()

	s.types(t, 0, "kubectl slipway version", "server")
	s.types(t, 0, "kubectl slipway kinds", "command.run")
	s.types(t, 0, "kubectl slipway kinds command.run", "run deadline", "create jobs.batch")
	s.types(t, 0, "kubectl slipway submit --name hello --dry-run -- echo hello", "hello", "takes its pod")
	s.types(t, 0, `kubectl slipway submit --name hello --wait -- sh -c 'echo hello from $SLIPWAY_TASK'`, "succeeded")
	s.types(t, 3, "kubectl slipway submit --name broken --attempts 1 --wait -- sh -c 'echo oh no; exit 9'", "exit_code")

	id := s.submits(t, "kubectl slipway submit --name slow --lane job:"+ns+"/slow -o json -- sh -c 'for i in 1 2 3; do echo step $i; sleep 1; done'")
	s.types(t, 0, "kubectl slipway logs -f "+id, "step 3")
	s.types(t, 0, "kubectl slipway wait "+id, "succeeded")
	s.types(t, 0, "kubectl slipway explain "+id, "the runner's report decides", "submitted")
	s.types(t, 0, "kubectl slipway lanes job:"+ns+"/slow", "fence")

	later := s.submits(t, "kubectl slipway submit --name later --delay 1h -o json -- true")
	s.types(t, 0, "kubectl slipway hold "+later+" --reason 'not before the release'", "not before the release")
	s.types(t, 0, "kubectl slipway unhold "+later)
	s.types(t, 0, "kubectl slipway cancel "+later+" --note 'not needed'", "canceled")
	s.types(t, 7, "kubectl slipway wait "+later)
	s.types(t, 0, "kubectl slipway retry "+id+" --wait", "succeeded", "retry of")
	s.types(t, 0, "kubectl slipway list", "broken", "later", "slow")
	s.types(t, 0, "kubectl slipway queues -n "+ns, "default")
	s.types(t, 0, `kubectl slipway __complete wait ""`, id)

	s.types(t, 1, "kubectl slipway queues", "40")
	s.types(t, 1, "kubectl slipway list -A", "403")
	s.types(t, 1, "kubectl slipway submit -n default -- true", "40")
	s.types(t, 1, "kubectl slipway get 00000000-0000-0000-0000-000000000000", "404")
	s.types(t, 1, "kubectl slipway --system-namespace default list", "Role slipway-proxy in namespace default")
	s.types(t, 1, "kubectl slipway --as-service-account default list", "serviceaccounts/token")
	s.types(t, 1, "kubectl slipway namespace enable default", "you may not")
	s.types(t, 2, "kubectl slipway frob", "unknown command")
}
