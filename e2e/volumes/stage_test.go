package volumes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/perform"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/runner/kinds/volume"
)

func TestMain(m *testing.M) {
	perform.Main()
	os.Exit(rig.Main(m))
}

var snapshotGroup = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

// stage is a namespace on a real API server, with what a driver and its helpers would be.
type stage struct {
	*testing.T
	rig       *rig.Rig
	namespace string
	admin     dynamic.Interface
	class     string
}

func set(t *testing.T) *stage {
	t.Helper()
	r := rig.New(t, rig.Options{Profile: local.API})
	admin, err := dynamic.NewForConfig(r.Config)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{T: t, rig: r, namespace: r.Namespace(), admin: admin, class: rig.Name("grows")}
	file := filepath.Join(t.TempDir(), "definitions.yaml")
	if err := os.WriteFile(file, []byte(definitions), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Kubectl(t, "apply", "--server-side", "-f", file)
	r.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "-f", file)
	expand := true
	_, err = r.Kube.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.class}, Provisioner: "played.slipway.dev", AllowVolumeExpansion: &expand,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Kube.StorageV1().StorageClasses().Delete(context.Background(), s.class, metav1.DeleteOptions{})
	})
	return s
}

// claim makes a bound claim of a size.
func (s *stage) claim(name, size string) *corev1.PersistentVolumeClaim {
	s.Helper()
	ctx, pv := s.Context(), rig.Name("pv")
	quantity := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	_, err := s.rig.Kube.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pv},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: quantity, AccessModes: modes, StorageClassName: s.class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Namespace: s.namespace, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "played.slipway.dev", VolumeHandle: pv}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = s.rig.Kube.CoreV1().PersistentVolumes().Delete(context.Background(), pv, metav1.DeleteOptions{})
	})
	_, err = s.rig.Kube.CoreV1().PersistentVolumeClaims(s.namespace).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &s.class, VolumeName: pv, Resources: corev1.VolumeResourceRequirements{Requests: quantity},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return s.claimUntil(name, "to be bound", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Phase == corev1.ClaimBound && !c.Status.Capacity.Storage().IsZero()
	})
}

func (s *stage) claimUntil(name, what string, is func(*corev1.PersistentVolumeClaim) bool) *corev1.PersistentVolumeClaim {
	s.Helper()
	var found *corev1.PersistentVolumeClaim
	rig.Eventually(s, "claim "+name+" "+what, func(ctx context.Context) (bool, error) {
		var err error
		found, err = s.rig.Kube.CoreV1().PersistentVolumeClaims(s.namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && is(found), err
	})
	return found
}

// asked waits until the claim asks for a size.
func (s *stage) asked(name, size string) {
	s.Helper()
	want := resource.MustParse(size)
	s.claimUntil(name, "to ask for "+size, func(c *corev1.PersistentVolumeClaim) bool {
		is := c.Spec.Resources.Requests[corev1.ResourceStorage]
		return is.Cmp(want) == 0
	})
}

// play writes a status as the helpers of a driver do; fields are JSON.
func (s *stage) play(what schema.GroupVersionResource, namespace, name, status string) {
	s.Helper()
	_, err := s.admin.Resource(what).Namespace(namespace).Patch(s.Context(), name, types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
	if err != nil {
		s.Fatalf("play %s %s: %v", what.Resource, name, err)
	}
}

func (s *stage) playClaim(name, status string) {
	s.Helper()
	s.play(schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}, s.namespace, name, status)
}

func (s *stage) playSnapshot(name, status string) {
	s.Helper()
	s.play(snapshotGroup.WithResource("volumesnapshots"), s.namespace, name, status)
}

// as is the cluster as the account of a kind sees it.
func (s *stage) as(kind string) *rest.Config {
	s.Helper()
	return perform.As(s, s.rig.Config, s.rig.Kube, s.namespace, kind)
}

// run is a handler at work.
type run struct {
	stage  *stage
	cancel context.CancelCauseFunc
	done   chan struct{}
	result any
	err    error

	mu  sync.Mutex
	log bytes.Buffer
}

// Write keeps the log.
func (r *run) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(text)
}

func (r *run) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// start runs a handler under the account of its kind.
func (s *stage) start(kind, task, params string) *run {
	s.Helper()
	return s.attempt(1, nil, kind, task, params)
}

// attempt runs a later one; with a cause, one that is told to stop before its first step.
func (s *stage) attempt(number int, stop error, kind, task, params string) *run {
	s.Helper()
	config := s.as(kind)
	ctx, cancel := context.WithCancelCause(s.Context())
	if stop != nil {
		cancel(stop)
	}
	r := &run{stage: s, cancel: cancel, done: make(chan struct{})}
	all := volume.On(func() (dynamic.Interface, error) { return volume.Connect(config) })
	go func() {
		defer close(r.done)
		r.result, r.err = all[kind](ctx, handler.Task{ID: task, Kind: kind, Namespace: s.namespace, Attempt: number, Params: json.RawMessage(params), Stdout: r})
	}()
	s.Cleanup(func() { cancel(handler.ErrStale); <-r.done })
	return r
}

// says waits until the handler has said so.
func (r *run) says(text string) {
	r.stage.Helper()
	rig.Eventually(r.stage, "the handler to say "+text, func(context.Context) (bool, error) {
		if strings.Contains(r.text(), text) {
			return true, nil
		}
		select {
		case <-r.done:
			return false, fmt.Errorf("it has ended with %+v, %w; said:\n%s", r.result, r.err, r.text())
		default:
			return false, fmt.Errorf("it said:\n%s", r.text())
		}
	})
}

// ends waits for the end and gives it as text.
func (r *run) ends() string {
	r.stage.Helper()
	select {
	case <-r.done:
	case <-time.After(60 * time.Second):
		r.stage.Fatalf("the handler does not end; it said:\n%s", r.text())
	}
	if r.err != nil {
		return r.err.Error()
	}
	raw, err := json.Marshal(r.result)
	if err != nil {
		r.stage.Fatal(err)
	}
	return string(raw)
}

// expect fails the test unless the end holds each of the texts.
func (r *run) expect(texts ...string) {
	r.stage.Helper()
	end := r.ends()
	for _, text := range texts {
		if !strings.Contains(end, text) {
			r.stage.Errorf("it ended with %s\nwithout %s; it said:\n%s", end, text, r.text())
		}
	}
}

// killed runs a handler as a process that dies by SIGKILL at a step.
func (s *stage) killed(kind, task, params, step string) {
	s.Helper()
	perform.Run{Kind: kind, Namespace: s.namespace, Task: task, Params: params, Attempt: 1, Config: s.as(kind)}.Killed(s, step)
}

// snapshots lists the names of all snapshots of the namespace.
func (s *stage) snapshots() []string { return s.names("volumesnapshots", s.namespace) }

func (s *stage) names(resource, namespace string) []string {
	s.Helper()
	all, err := s.admin.Resource(snapshotGroup.WithResource(resource)).Namespace(namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	names := []string{}
	for _, o := range all.Items {
		names = append(names, o.GetName())
	}
	return names
}

// make creates an object of the snapshot group.
func (s *stage) make(resource, namespace string, object map[string]any) *unstructured.Unstructured {
	s.Helper()
	object["apiVersion"] = snapshotGroup.String()
	made, err := s.admin.Resource(snapshotGroup.WithResource(resource)).Namespace(namespace).Create(s.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return made
}

func (s *stage) drop(resource, namespace, name string) {
	s.Helper()
	ctx := context.WithoutCancel(s.Context()) // when the test is over, too
	of := s.admin.Resource(snapshotGroup.WithResource(resource)).Namespace(namespace)
	_, _ = of.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}) // it may have none
	_ = of.Delete(ctx, name, metav1.DeleteOptions{})                                                                    // it may be gone
}
