package storage

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

// folder is where a pod has its volume.
const folder = "/data"

// Pod is a pod that mounts a claim and does what it is told.
type Pod struct {
	Namespace, Name string

	storage *Storage
}

// Pod makes a pod that mounts a claim, without waiting for it. It goes with the namespace.
func (s *Storage) Pod(t testing.TB, namespace, claim string) *Pod {
	t.Helper()
	image := rig.RunnerImage()
	if image == "" {
		image = local.PauseImage // on a cluster that the rig did not make; it holds the volume and answers nothing
	}
	p := &Pod{Namespace: namespace, Name: rig.Name("mounts-" + claim), storage: s}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			TerminationGracePeriodSeconds: new(int64(0)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), FSGroup: new(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "shell", Image: image, Command: []string{"/bin/busybox", "sleep", "86400"},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "volume", MountPath: folder}},
			}},
			Volumes: []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
	if _, err := s.Kube.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("make pod %s: %v", p.Name, err)
	}
	return p
}

// Mount makes a pod that mounts a claim and waits until it has it.
func (s *Storage) Mount(t testing.TB, namespace, claim string) *Pod {
	t.Helper()
	p := s.Pod(t, namespace, claim)
	p.UntilRunning(t)
	return p
}

// UntilRunning waits until the pod has its volume.
func (p *Pod) UntilRunning(t testing.TB) {
	t.Helper()
	rig.Eventually(t, "pod "+p.Name+" to run", func(ctx context.Context) (bool, error) {
		pod, err := p.storage.Kube.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil || pod.Status.Phase == corev1.PodRunning {
			return err == nil, err
		}
		return false, fmt.Errorf("its phase is %s, conditions %+v", pod.Status.Phase, pod.Status.Conditions)
	})
}

// Delete ends the pod and waits until its volume is unmounted.
func (p *Pod) Delete(t testing.TB) {
	t.Helper()
	pods := p.storage.Kube.CoreV1().Pods(p.Namespace)
	if err := pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete pod %s: %v", p.Name, err)
	}
	rig.Eventually(t, "pod "+p.Name+" to be gone", func(ctx context.Context) (bool, error) {
		_, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

// Run runs a line of shell in the volume's folder and gives what it prints.
func (p *Pod) Run(t testing.TB, line string) string {
	t.Helper()
	c := p.storage.Cluster
	cmd := exec.CommandContext(t.Context(), c.Kubectl, "--kubeconfig", c.Kubeconfig, "exec", "--namespace", p.Namespace, p.Name, "--",
		"/bin/busybox", "sh", "-c", "cd "+folder+" && "+line)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run %q in pod %s: %v: %s", line, p.Name, err, out)
	}
	return string(out)
}

// DF is the size of the file system that the pod sees, in bytes.
func (p *Pod) DF(t testing.TB) int64 {
	t.Helper()
	out := p.Run(t, "df -P -k . | tail -n 1")
	fields := strings.Fields(out)
	if len(fields) < 2 {
		t.Fatalf("df printed %q", out)
	}
	kib, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		t.Fatalf("df printed %q", out)
	}
	return kib << 10
}

// Write makes a file of random bytes and gives their checksum; Sum is that of a file. Size is in KiB.
func (p *Pod) Write(t testing.TB, name string, size int) string {
	t.Helper()
	p.Run(t, fmt.Sprintf("head -c %d /dev/urandom > %s", size<<10, name))
	return p.Sum(t, name)
}

// Sum is the checksum of a file in the volume.
func (p *Pod) Sum(t testing.TB, name string) string {
	t.Helper()
	return strings.Fields(p.Run(t, "sha256sum "+name))[0]
}
