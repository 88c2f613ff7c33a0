package kube

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"go.uber.org/goleak"
	"slipway.dev/slipway/e2e/cluster/local"
)

// clusterName names the API server of these tests: one for each run, unless SLIPWAY_KEEP_CLUSTER asks to leave it running
// for the next one.
var clusterName = "test-kube"

func init() {
	if os.Getenv("SLIPWAY_KEEP_CLUSTER") == "" {
		clusterName = fmt.Sprintf("test-kube-%d", os.Getpid())
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	if server.up && os.Getenv("SLIPWAY_KEEP_CLUSTER") == "" {
		if err := local.Down(context.Background(), clusterName); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code == 0 {
		server.close()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// server is the real API server of the tests that need one, with the Job controller and without a node.
var server apiServer

type apiServer struct {
	once  sync.Once
	up    bool
	err   error
	admin *rest.Config
	api   kubernetes.Interface
}

func (s *apiServer) start(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an API server")
	}
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		s.err = s.bring(ctx)
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
}

func (s *apiServer) bring(ctx context.Context) error {
	c, err := local.Up(ctx, local.Options{Name: clusterName, Profile: local.API, Log: os.Stderr})
	if err != nil {
		return err
	}
	s.up = true
	// Connections are shared between clients of one certificate, so this has to come before the first of them.
	if err := pings(); err != nil {
		return err
	}
	if s.admin, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return err
	}
	s.admin.QPS = -1
	if s.api, err = kubernetes.NewForConfig(s.admin); err != nil {
		return err
	}
	return s.grant(ctx)
}

// grant gives the control plane's account what the manifests give it in the cluster.
func (s *apiServer) grant(ctx context.Context) error {
	file, err := os.Open("../../../manifests/base/rights.yaml")
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	documents := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		var both struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Rules             []rbacv1.PolicyRule `json:"rules"`
			RoleRef           rbacv1.RoleRef      `json:"roleRef"`
			Subjects          []rbacv1.Subject    `json:"subjects"`
		}
		if err := documents.Decode(&both); err != nil {
			return nil // the end
		}
		name := metav1.ObjectMeta{Name: both.Name}
		switch both.Kind {
		case "ClusterRole":
			_, err = s.api.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: name, Rules: both.Rules}, metav1.CreateOptions{})
		case "ClusterRoleBinding":
			_, err = s.api.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: name, RoleRef: both.RoleRef, Subjects: both.Subjects,
			}, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

// close lets go of idle connections.
func (s *apiServer) close() {
	if s.admin == nil {
		return
	}
	if transport, err := rest.TransportFor(s.admin); err == nil {
		closeIdle(transport)
	}
}
