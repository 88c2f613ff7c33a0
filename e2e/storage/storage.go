package storage

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

// StorageClasses. A claim of Wait or FixedWait is bound when a pod mounts it; one of Fixed or FixedWait cannot grow.
const (
	Loop      = "loop"
	Wait      = "loop-wait"
	Fixed     = "loop-fixed"
	FixedWait = "loop-fixed-wait"
)

// VolumeAttributesClasses, of 500 and of 5000 IOPS.
const (
	Slow = "loop-slow"
	Fast = "loop-fast"
)

// SnapshotClass is the one VolumeSnapshotClass.
const SnapshotClass = "loop"

// Driver is the name of the CSI driver.
const Driver = "loop.csi.slipway.dev"

// Storage is the volumes of one cluster, as its administrator.
type Storage struct {
	Cluster *local.Cluster
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface // for VolumeSnapshots and their contents
}

// Of connects to a cluster with storage, such as that of a rig with Options.Storage.
func Of(t testing.TB, c *local.Cluster) *Storage {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatalf("read the administrator's kubeconfig: %v", err)
	}
	config.QPS = -1
	s := &Storage{Cluster: c}
	if s.Kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatalf("connect to the cluster: %v", err)
	}
	if s.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatalf("connect to the cluster: %v", err)
	}
	return s
}

// Namespace makes a namespace that goes with the test, under PodSecurity restricted.
func (s *Storage) Namespace(t testing.TB) string {
	t.Helper()
	name := rig.Name("volumes")
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if _, err := s.Kube.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
		t.Fatalf("make namespace %s: %v", name, err)
	}
	t.Cleanup(func() { s.remove(t, name) })
	return name
}
