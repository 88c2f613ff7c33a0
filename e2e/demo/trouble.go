package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// trouble is what keeps a pod from being ready.
type trouble struct {
	reason string // short, the same for pods that suffer from the same
	detail string
}

// maxDetail bounds what is told of one trouble, in bytes.
const maxDetail = 300

// troubles says in one line what keeps pods from being ready.
func troubles(pods []corev1.Pod) string {
	counts, details, order := map[string]int{}, map[string]string{}, []string(nil)
	for _, pod := range pods {
		t := troubleOf(pod)
		if t.reason == "" {
			continue
		}
		if counts[t.reason]++; counts[t.reason] == 1 {
			order = append(order, t.reason)
			details[t.reason] = t.detail
		}
	}
	var told []string
	for _, reason := range order {
		text := reason
		if counts[reason] > 1 {
			text += fmt.Sprintf(" (%d pods)", counts[reason])
		}
		if detail := details[reason]; detail != "" {
			text += ": " + strings.ToValidUTF8(detail[:min(len(detail), maxDetail)], "")
		}
		told = append(told, text)
	}
	return strings.Join(told, "; ")
}

func troubleOf(pod corev1.Pod) trouble {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return trouble{"unschedulable", condition.Message}
		}
	}
	for _, state := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		now := state.State
		switch {
		case now.Waiting != nil && now.Waiting.Reason != "PodInitializing" && now.Waiting.Reason != "ContainerCreating":
			reason := now.Waiting.Reason
			if reason == "ErrImagePull" { // it takes turns with
				reason = "ImagePullBackOff"
			}
			return trouble{state.Name + " " + reason, now.Waiting.Message}
		case now.Terminated != nil && now.Terminated.ExitCode != 0:
			return trouble{fmt.Sprintf("%s exited with %d", state.Name, now.Terminated.ExitCode), now.Terminated.Message}
		case now.Running != nil && !state.Ready:
			return trouble{state.Name + " is not ready yet", ""}
		}
	}
	return trouble{}
}

// noImage reports whether a pod has no image to run; hint says what would help.
func noImage(pods []corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		reason := troubleOf(pod).reason
		return strings.HasSuffix(reason, " ImagePullBackOff") || strings.HasSuffix(reason, " ErrImageNeverPull")
	})
}

const imageHint = `a node has no such image. Bring the images there, then repeat:
  any registry   IMAGE_REGISTRY=registry.example.com/team CLUSTER=current make demo
  kind           go run ./e2e/images --out bin/images && for f in bin/images/*.tar; do kind load image-archive $f; done
  minikube       go run ./e2e/images --out bin/images && for f in bin/images/*.tar; do minikube image load $f; done`
