package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// playedNode is the Node that the test plays in profile api: an object without a kubelet.
const playedNode = "played"

// Pod waits for the one pod of a Job. The name alone does not tell: an earlier Job may have borne it, and its pods may
// still be there.
func (r *Rig) Pod(t testing.TB, namespace, job string) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	Eventually(t, "the pod of Job "+job, func(ctx context.Context) (bool, error) {
		is, err := r.Kube.BatchV1().Jobs(namespace).Get(ctx, job, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		pods, err := r.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.ControllerUidLabel + "=" + string(is.UID)})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
		found = &pods.Items[0]
		return true, nil
	})
	return found
}

// Bind puts a pod on the played node.
func (r *Rig) Bind(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: playedNode}}
	if _, err := r.Kube.CoreV1().Nodes().Get(ctx, playedNode, metav1.GetOptions{}); err != nil {
		_, _ = r.Kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}) // another test may have been first
	}
	err := r.Kube.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: playedNode},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("bind pod %s: %v", pod.Name, err)
	}
}

// Play writes a pod's status as the kubelet would.
func (r *Rig) Play(t testing.TB, pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) {
	t.Helper()
	status := corev1.PodStatus{
		Phase: phase,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, State: state,
			ImageID: "sha256:0", ContainerID: "played://" + string(pod.UID),
		}},
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		t.Fatalf("write a pod status: %v", err)
	}
	_, err = r.Kube.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatalf("play pod %s: %v", pod.Name, err)
	}
}

// Run plays the start of the main container.
func (r *Rig) Run(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	r.Play(t, pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
}

// Exit plays the end of the main container with a code and a termination message.
func (r *Rig) Exit(t testing.TB, pod *corev1.Pod, code int32, message string) {
	t.Helper()
	phase, reason := corev1.PodSucceeded, "Completed"
	if code != 0 {
		phase, reason = corev1.PodFailed, "Error"
	}
	r.Play(t, pod, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
	}})
}

// PodToken gives the token that the kubelet would mount into a pod for its runner.
func (r *Rig) PodToken(t testing.TB, pod *corev1.Pod) string {
	t.Helper()
	return r.token(t, pod.Namespace, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequestSpec{
		Audiences:      []string{"slipway-runner"},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	})
}

// token asks the API server for a token of a service account.
func (r *Rig) token(t testing.TB, namespace, account string, spec *authenticationv1.TokenRequestSpec) string {
	t.Helper()
	day := int64(24 * 60 * 60)
	spec.ExpirationSeconds = &day
	answer, err := r.Kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: *spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make a token of %s/%s: %v", namespace, account, err)
	}
	return answer.Status.Token
}

// bound is how long Eventually waits: every fault in these tests has a smaller bound in the product.
const bound = 90 * time.Second

// Eventually waits until check says yes, and fails the test with what and the last error after 90 s.
func Eventually(t testing.TB, what string, check func(context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var last error
	for {
		ok, err := check(ctx)
		if ok && err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait for %s: not within %v; last error: %v", what, bound, last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Name makes a name that no other test of this cluster uses.
func Name(prefix string) string {
	return fmt.Sprintf("%s-%s", prefix, randomText(6))
}
