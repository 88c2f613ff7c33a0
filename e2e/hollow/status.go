package hollow

import (
	"context"
	"encoding/json"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// statuses brings the newest status of a pod to the API server, as soon as the node is heard there.
type statuses struct {
	life  *life
	dirty chan struct{}
	done  chan struct{} // closed once the last one is there

	mu   sync.Mutex
	next *corev1.PodStatus
	last bool // next is the last one
	over bool // it has arrived
}

func (s *statuses) set(status corev1.PodStatus) { s.put(status, false) }

func (s *statuses) end(status corev1.PodStatus) { s.put(status, true) }

func (s *statuses) put(status corev1.PodStatus, last bool) {
	s.mu.Lock()
	s.next, s.last = &status, last
	s.mu.Unlock()
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

func (s *statuses) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// publish patches until the last status is there or ctx ends.
func (s *statuses) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.dirty:
		}
		pod, _ := s.life.look()
		last := false
		_ = s.life.node.call(ctx, func(ctx context.Context) error { // a pod that is gone needs none
			s.mu.Lock()
			status := *s.next // the newest one, also after a while without an answer
			last = s.last
			s.mu.Unlock()
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
			if err != nil {
				return err
			}
			_, err = s.life.node.fleet.o.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		})
		if last && ctx.Err() == nil {
			s.mu.Lock()
			s.over = true
			s.mu.Unlock()
			close(s.done)
			return
		}
	}
}

func status(since time.Time, phase corev1.PodPhase, ready bool) corev1.PodStatus {
	start := metav1.NewTime(since)
	is := corev1.ConditionFalse
	if ready {
		is = corev1.ConditionTrue
	}
	s := corev1.PodStatus{Phase: phase, StartTime: &start}
	for _, c := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: c, Status: is})
	}
	return s
}

func waiting(since time.Time, reason, message string) corev1.PodStatus {
	s := status(since, corev1.PodPending, false)
	s.ContainerStatuses = []corev1.ContainerStatus{{
		Name: mainName, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}
	return s
}

// mainName is the container whose status is shown; the others of a pod are over when it starts.
const mainName = "main"

func of(pod *corev1.Pod, name string, state corev1.ContainerState) corev1.ContainerStatus {
	started := state.Running != nil
	return corev1.ContainerStatus{
		Name: name, Image: pod.Spec.Containers[0].Image, ImageID: "sha256:0", ContainerID: "hollow://" + string(pod.UID),
		State: state, Started: &started, Ready: started,
	}
}

func running(since time.Time, pod *corev1.Pod, c *container) corev1.PodStatus {
	s := status(since, corev1.PodRunning, true)
	s.ContainerStatuses = []corev1.ContainerStatus{of(pod, c.name, corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.began)},
	})}
	return s
}

// code is the exit code as a container runtime tells it.
func (c *container) code() int32 {
	w, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return 255
	case w.Signaled():
		return 128 + int32(w.Signal())
	}
	return int32(w.ExitStatus())
}

// ended is the status of a pod whose container c has ended.
func ended(since time.Time, pod *corev1.Pod, c *container, e end) corev1.PodStatus {
	phase, reason, code := corev1.PodSucceeded, "Completed", c.code()
	if code != 0 {
		phase, reason = corev1.PodFailed, "Error"
	}
	if c.oom {
		reason = "OOMKilled"
	}
	if e.reason != "" {
		phase = corev1.PodFailed
	}
	s := status(since, phase, false)
	s.Reason, s.Message = e.reason, e.message
	if e.evicted {
		s.Conditions = append(s.Conditions, disrupted("TerminationByKubelet"))
	}
	s.ContainerStatuses = []corev1.ContainerStatus{of(pod, c.name, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: c.said, ContainerID: "hollow://" + string(pod.UID),
		StartedAt: metav1.NewTime(c.began), FinishedAt: metav1.NewTime(c.ended),
	}})}
	return s
}

func disrupted(reason string) corev1.PodCondition {
	return corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now()}
}

// unknown is the status of a pod that ended before its containers were made.
func unknown(since time.Time, pod *corev1.Pod, late bool) corev1.PodStatus {
	s := status(since, corev1.PodFailed, false)
	if late {
		s.Reason, s.Message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
	}
	s.ContainerStatuses = []corev1.ContainerStatus{of(pod, pod.Spec.Containers[0].Name, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated",
	}})}
	return s
}

// failedToStart is the status of a pod whose container could not be made.
func failedToStart(since time.Time, pod *corev1.Pod, err error) corev1.PodStatus {
	s := status(since, corev1.PodFailed, false)
	s.ContainerStatuses = []corev1.ContainerStatus{of(pod, pod.Spec.Containers[0].Name, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 128, Reason: "StartError", Message: err.Error(), StartedAt: metav1.NewTime(since), FinishedAt: metav1.Now(),
	}})}
	return s
}
