package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/manifests"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if real.up != nil {
		if err := local.Down(context.Background(), real.up.Name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if transport, err := rest.TransportFor(real.admin.rest); err == nil {
			closeIdle(transport)
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// real is an API server without a node, with the manifests in it.
var real struct {
	once  sync.Once
	err   error
	up    *local.Cluster
	admin *Cluster
}

// needReal brings the API server up and gives the namespace shop in it, with the account ada.
func needReal(t *testing.T) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an API server")
	}
	real.once.Do(func() { real.err = bring(t.Context()) })
	if real.err != nil {
		t.Fatal(real.err)
	}
	return real.admin
}

func bring(ctx context.Context) error {
	var err error
	name := fmt.Sprintf("test-cli-%d", os.Getpid())
	if real.up, err = local.Up(ctx, local.Options{Name: name, Profile: local.API, Log: os.Stderr}); err != nil {
		return err
	}
	if real.admin, err = Open(Config{Kubeconfig: real.up.Kubeconfig, Namespace: "shop"}); err != nil {
		return err
	}
	text, err := manifests.Render("base", nil)
	if err != nil {
		return err
	}
	// The played control plane is no pod: no selector finds it.
	text = bytes.Replace(text, []byte("    targetPort: http\n  selector:\n    app.kubernetes.io/name: slipway\n"), []byte("    targetPort: http\n"), 1)
	for _, more := range []string{"Namespace\nmetadata: {name: shop}", "ServiceAccount\nmetadata: {name: ada, namespace: shop}"} {
		text = append(text, "---\napiVersion: v1\nkind: "+more+"\n"...)
	}
	apply := exec.CommandContext(ctx, real.up.Kubectl, "--kubeconfig", real.up.Kubeconfig, "apply", "--server-side", "-f", "-")
	apply.Stdin = bytes.NewReader(text)
	if out, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("apply: %w: %s", err, out)
	}
	return nil
}

// grant gives ada one right in a namespace.
func grant(t *testing.T, admin *Cluster, namespace, name string, rule *rbacv1.PolicyRule) {
	t.Helper()
	if rule != nil {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{*rule}}
		if _, err := admin.api.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ada-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "shop", Name: "ada"}},
	}
	if _, err := admin.api.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// adas is the cluster as ada's kubeconfig reaches it: with a token for the API server and no more.
func adas(t *testing.T, admin *Cluster) *Cluster {
	t.Helper()
	made, err := admin.api.CoreV1().ServiceAccounts("shop").CreateToken(t.Context(), "ada", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/config"
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: admin.rest.Host, CertificateAuthorityData: admin.rest.CAData, CertificateAuthority: admin.rest.CAFile}
	config.AuthInfos["ada"] = &clientcmdapi.AuthInfo{Token: made.Status.Token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "ada", Namespace: "shop"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	c, err := Open(Config{Kubeconfig: file, ServiceAccount: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if transport, err := rest.TransportFor(c.rest); err == nil {
			closeIdle(transport)
		}
	})
	return c
}

func closeIdle(rt http.RoundTripper) {
	for {
		switch known := rt.(type) {
		case interface{ CloseIdleConnections() }:
			known.CloseIdleConnections()
			return
		case interface{ WrappedRoundTripper() http.RoundTripper }:
			rt = known.WrappedRoundTripper()
		default:
			return
		}
	}
}

// serve puts a played control plane behind the Service of the manifests; it tells the token that it is shown.
func serve(t *testing.T, admin *Cluster) (shown func() string) {
	t.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0") // the API server calls no loopback address
	if err != nil {
		t.Fatal(err)
	}
	token := make(chan string, 100)
	played := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token <- r.Header.Get(TokenHeader) + "|" + r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"version":"1.2.3"}`)
	})}}
	played.StartTLS()
	t.Cleanup(played.Close)
	stand(t, admin, int32(listener.Addr().(*net.TCPAddr).Port))
	return func() string { return <-token }
}

// stand makes a pod that claims this machine's address, as the service proxy calls nothing but pods, and names it as what
// is behind the Service.
func stand(t *testing.T, admin *Cluster, port int32) {
	t.Helper()
	address, yes, no, name := ownAddress(t), true, false, "http"
	pods := admin.api.CoreV1().Pods(SystemNamespace)
	pod, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "played"}, Spec: corev1.PodSpec{
		ServiceAccountName: "slipway",
		SecurityContext:    &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "c", Image: "x", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = admin.api.DiscoveryV1().EndpointSlices(SystemNamespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "slipway-played", Labels: map[string]string{discoveryv1.LabelServiceName: "slipway"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &yes},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: SystemNamespace, Name: pod.Name, UID: pod.UID},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// ownAddress is an address of this machine that is none of its loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func TestAUserWithTheRoleOfTheManifestsReachesTheControlPlaneAndIsToldEachRightThatIsMissing(t *testing.T) {
	admin := needReal(t)
	shown := serve(t, admin)
	c := adas(t, admin)
	if _, err := c.Token(t.Context()); err == nil || !strings.Contains(err.Error(), "serviceaccounts/token") {
		t.Errorf("without a right: %v", err)
	}
	grant(t, admin, "shop", "token", &rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{"ada"}, Verbs: []string{"create"}})
	eventually(t, "get a token", func() error { _, err := c.Token(t.Context()); return err })
	s := &apiServer{}
	if err := s.version(t, c, true); err == nil || !strings.Contains(err.Error(), "Role slipway-proxy in namespace slipway-system") {
		t.Errorf("without the role: %v", err)
	}
	grant(t, admin, SystemNamespace, "slipway-proxy", nil)
	eventually(t, "reach the control plane", func() error { return s.version(t, c, true) })

	token, own, _ := strings.Cut(shown(), "|")
	review, err := admin.api.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: strings.TrimPrefix(token, "Bearer "), Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil || review.Status.User.Username != "system:serviceaccount:shop:ada" || own != "" {
		t.Errorf("the control plane was shown %+v and %q: %v", review.Status, own, err)
	}
	_, err = c.api.CoreV1().Services(SystemNamespace).ProxyGet("http", "other", "http", "/", nil).DoRaw(t.Context())
	if !apierrors.IsForbidden(err) {
		t.Errorf("the role reaches another service: %v", err)
	}
}

// mayLaunch asks whether the control plane may create Jobs in shop.
func mayLaunch(t *testing.T, admin *Cluster) bool {
	t.Helper()
	review, err := admin.api.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:slipway-system:slipway",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "shop", Verb: "create", Group: "batch", Resource: "jobs"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

func TestANamespaceIsEnabledAndDisabled(t *testing.T) {
	admin := needReal(t)
	for range 2 { // again changes nothing
		done, err := admin.Enable(t.Context(), Tenant{Namespace: "shop", PodSecurity: "restricted", Network: true})
		want := "[ServiceAccount slipway-runner RoleBinding slipway-launcher NetworkPolicy slipway-runner label pod-security.kubernetes.io/enforce=restricted]"
		if err != nil || fmt.Sprint(done) != want {
			t.Fatalf("%q: %v", done, err)
		}
	}
	eventually(t, "the right to launch", func() error {
		if !mayLaunch(t, admin) {
			return fmt.Errorf("not given")
		}
		return nil
	})
	if _, err := adas(t, admin).Enable(t.Context(), Tenant{Namespace: "shop"}); err == nil || !strings.Contains(err.Error(), "you may not") {
		t.Errorf("ada: %v", err)
	}
	if _, err := admin.Enable(t.Context(), Tenant{Namespace: "nowhere"}); err == nil || !strings.Contains(err.Error(), "there is no namespace nowhere") {
		t.Errorf("nowhere: %v", err)
	}
	done, err := admin.Enable(t.Context(), Tenant{Namespace: "shop", Volumes: true})
	if text := fmt.Sprint(done); err != nil || !strings.Contains(text, "ServiceAccount slipway-volume-resize") || !strings.Contains(text, "ClusterRoleBinding slipway-volume-snapshot-cluster-shop") {
		t.Errorf("with volumes: %q: %v", done, err)
	}
	if done, err = admin.Disable(t.Context(), "shop"); err == nil {
		for _, accounts := range []string{"ServiceAccount slipway-volume-", "RoleBinding slipway-volume-", "ClusterRoleBinding slipway-volume-", "ConfigMap slipway-retention-"} {
			if !strings.Contains(fmt.Sprint(done), accounts) {
				t.Errorf("%s… is left: %q", accounts, done)
			}
		}
		done = slices.DeleteFunc(done, func(what string) bool {
			return strings.Contains(what, " slipway-volume-") || strings.Contains(what, " slipway-retention-")
		})
	}
	if err != nil || fmt.Sprint(done) != "[NetworkPolicy slipway-runner RoleBinding slipway-launcher ServiceAccount slipway-runner]" {
		t.Errorf("%q: %v", done, err)
	}
	eventually(t, "no right to launch", func() error {
		if mayLaunch(t, admin) {
			return fmt.Errorf("still given")
		}
		return nil
	})
	if done, err := admin.Disable(t.Context(), "shop"); err != nil || len(done) > 0 {
		t.Errorf("again: %q: %v", done, err)
	}
}

func TestTheControlPlanesListIsChangedAndNobodysChangeIsUndone(t *testing.T) {
	admin := needReal(t)
	before, err := admin.Watched(t.Context())
	if err != nil || !before.Has("default") || before.Has("shop") {
		t.Fatalf("%+v: %v", before, err)
	}
	if err := admin.Watch(t.Context(), before.With("shop")); err != nil {
		t.Fatal(err)
	}
	if after, err := admin.Watched(t.Context()); err != nil || fmt.Sprint(after.Namespaces) != "[default shop]" {
		t.Errorf("%+v: %v", after, err)
	}
	if err := admin.Watch(t.Context(), before.With("bank")); !apierrors.IsConflict(err) {
		t.Errorf("over an older list: %v", err)
	}
	if err := admin.Watch(t.Context(), Watched{}); err == nil {
		t.Error("an empty list was taken")
	}
}

func TestReleaseLetsOurPodsGoAndNobodyElses(t *testing.T) {
	admin := needReal(t)
	pods := admin.api.CoreV1().Pods("default")
	eventually(t, "the default account", func() error {
		_, err := admin.api.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	for name, ours := range map[string]string{"ours": "slipway", "theirs": "somebody"} {
		_, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Finalizers: []string{"example.com/first", evidence},
				Labels: map[string]string{"app.kubernetes.io/managed-by": ours, "slipway.dev/instance": "i-1"},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	held, err := admin.Held(t.Context(), "")
	if err != nil || len(held) != 1 || held[0] != (Held{Namespace: "default", Name: "ours", Instance: "i-1"}) {
		t.Fatalf("%+v: %v", held, err)
	}
	for range 2 {
		if err := admin.Release(t.Context(), held[0]); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"ours": "[example.com/first]", "theirs": "[example.com/first " + evidence + "]"} {
		if pod, err := pods.Get(t.Context(), name, metav1.GetOptions{}); err != nil || fmt.Sprint(pod.Finalizers) != want {
			t.Errorf("%s: %v, %v", name, pod.Finalizers, err)
		}
	}
	if err := admin.Release(t.Context(), Held{Namespace: "default", Name: "absent"}); err != nil {
		t.Errorf("a pod that is gone: %v", err)
	}
	if _, err := adas(t, admin).Held(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "list, get and patch on pods") {
		t.Errorf("ada: %v", err)
	}
}
