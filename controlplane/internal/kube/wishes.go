package kube

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/pkg/task"
)

// queueLabel tells labels that a queueing system reads from the Job, not from its pods.
func queueLabel(key string) bool { return strings.HasPrefix(key, "kueue.x-k8s.io/") }

// podLabels lays ours over what was asked for.
func podLabels(asked, ours map[string]string) map[string]string {
	labels := map[string]string{}
	for key, value := range asked {
		if !queueLabel(key) {
			labels[key] = value
		}
	}
	maps.Copy(labels, ours)
	return labels
}

// noMesh keeps service meshes out of a pod: a sidecar that they add ends when the kubelet kills it, so that the Job would
// not end, and what stands before the main container would have no network. A Task or kind that wants one says so in its
// annotations.
var noMesh = map[string]string{"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"}

func podAnnotations(asked map[string]string) map[string]string {
	annotations := maps.Clone(noMesh)
	maps.Copy(annotations, asked)
	return annotations
}

// environment gives the variables in the order of their names, with those that hold secret parameters. The kubelet reads
// a Secret when it starts the container, and says by name which one, or which key, is missing.
func environment(p task.Pod) []corev1.EnvVar {
	var all []corev1.EnvVar
	asked := maps.Clone(p.Env)
	if asked == nil {
		asked = map[string]task.EnvSource{}
	}
	for parameter, ref := range p.Secrets {
		asked[task.SecretEnv+parameter] = task.EnvSource{Secret: &ref}
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		made, from := corev1.EnvVar{Name: name}, asked[name]
		switch {
		case from.Secret != nil:
			made.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: from.Secret.Name}, Key: from.Secret.Key, Optional: optional(from.Secret),
			}}
		case from.ConfigMap != nil:
			made.ValueFrom = &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: from.ConfigMap.Name}, Key: from.ConfigMap.Key, Optional: optional(from.ConfigMap),
			}}
		case from.Value != nil:
			made.Value = strings.ReplaceAll(*from.Value, "$", "$$")
		}
		all = append(all, made)
	}
	return all
}

func optional(ref *task.KeyRef) *bool {
	if ref.Optional {
		return new(true)
	}
	return nil
}

func tolerations(asked []task.Toleration) []corev1.Toleration {
	var all []corev1.Toleration
	for _, t := range asked {
		made := corev1.Toleration{
			Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value, Effect: corev1.TaintEffect(t.Effect),
		}
		if t.Seconds != nil {
			made.TolerationSeconds = new(int64(*t.Seconds))
		}
		all = append(all, made)
	}
	return all
}

func pullSecrets(names []string) []corev1.LocalObjectReference {
	var all []corev1.LocalObjectReference
	for _, name := range names {
		all = append(all, corev1.LocalObjectReference{Name: name})
	}
	return all
}
