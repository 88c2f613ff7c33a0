package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/pkg/task"
)

// PatchError names the field at fault of a kind's patch of the pod template.
type PatchError struct{ Field, Reason string }

func (e *PatchError) Error() string { return e.Field + ": " + e.Reason }

// CheckKind tells whether the pod of a kind can be built: whether the patch of its template can be applied and leaves
// alone what Slipway needs. The error is a *PatchError.
func (c *Client) CheckKind(k task.Kind) error {
	plain := k.Spec
	plain.Pod.Patch = nil
	a := task.Attempt{ID: 1, TaskID: "check", Number: 1, Fence: 1, Kind: k.Name, Namespace: "default"}
	before, err := c.podTemplate(task.Task{Kind: k.Name, Spec: plain}, a)
	if err != nil {
		return &PatchError{Field: "defaults", Reason: err.Error()}
	}
	if len(k.Spec.Pod.Patch) == 0 {
		return nil
	}
	var unknown corev1.PodTemplateSpec
	if err := yaml.UnmarshalStrict(k.Spec.Pod.Patch, &unknown); err != nil {
		text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: "), "json: ")
		return &PatchError{Field: "pod", Reason: "is no pod template: " + text}
	}
	after, err := merge(before, k.Spec.Pod.Patch)
	if err != nil {
		return &PatchError{Field: "pod", Reason: err.Error()}
	}
	return touched(before, after)
}

// patched applies a kind's patch. It was checked when the kind was read; here it is held again, for a Task keeps the
// patch that its kind had.
func patched(built *corev1.PodTemplateSpec, patch json.RawMessage) (*corev1.PodTemplateSpec, error) {
	if len(patch) == 0 {
		return built, nil
	}
	after, err := merge(built, patch)
	if err == nil {
		err = touched(built, after)
	}
	if err != nil {
		return nil, &task.Refusal{Cause: task.RefusedInvalid, Message: "the kind's patch of the pod: " + err.Error()}
	}
	return after, nil
}

func merge(built *corev1.PodTemplateSpec, patch json.RawMessage) (*corev1.PodTemplateSpec, error) {
	raw, err := json.Marshal(built)
	if err != nil {
		return nil, fmt.Errorf("write the pod template: %w", err)
	}
	merged, err := strategicpatch.StrategicMergePatch(raw, patch, corev1.PodTemplateSpec{})
	if err != nil {
		return nil, fmt.Errorf("merge the patch: %w", err)
	}
	after := new(corev1.PodTemplateSpec)
	if err := json.Unmarshal(merged, after); err != nil {
		return nil, fmt.Errorf("read the patched pod template: %w", err)
	}
	toFront(after.Spec.InitContainers, nameOfFirst(built.Spec.InitContainers))
	toFront(after.Spec.Containers, nameOfFirst(built.Spec.Containers))
	return after, nil
}

// nameOfFirst names the first of our containers; a merge puts a patch's own in front of them.
func nameOfFirst(ours []corev1.Container) string {
	if len(ours) == 0 {
		return ""
	}
	return ours[0].Name
}

// toFront moves the container of that name to the front: nothing may run before a start is granted.
func toFront(all []corev1.Container, name string) {
	i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	if i > 0 {
		ours := all[i]
		copy(all[1:i+1], all[:i])
		all[0] = ours
	}
}

// touched finds the first field that a patch has changed and that Slipway needs, or that a kind sets elsewhere.
func touched(before, after *corev1.PodTemplateSpec) error {
	b, a := before.Spec, after.Spec
	for key := range before.Labels {
		if after.Labels[key] != before.Labels[key] {
			return &PatchError{Field: "pod.metadata.labels", Reason: key + " is Slipway's own"}
		}
	}
	for _, f := range []struct {
		field, reason string
		before, after any
	}{
		{"metadata.finalizers", "are Slipway's own", before.Finalizers, after.Finalizers},
		{"metadata.name", "is the Job controller's", before.Name + before.GenerateName, after.Name + after.GenerateName},
		{"metadata.namespace", "is the task's", before.Namespace, after.Namespace},
		{"spec.restartPolicy", "must be Never", b.RestartPolicy, a.RestartPolicy},
		{"spec.activeDeadlineSeconds", "follows from run_deadline", b.ActiveDeadlineSeconds, a.ActiveDeadlineSeconds},
		{"spec.terminationGracePeriodSeconds", "follows from grace", b.TerminationGracePeriodSeconds, a.TerminationGracePeriodSeconds},
		{"spec.serviceAccountName", "is set by service_account", b.ServiceAccountName + b.DeprecatedServiceAccount, a.ServiceAccountName + a.DeprecatedServiceAccount},
	} {
		if !reflect.DeepEqual(f.before, f.after) {
			return &PatchError{Field: "pod." + f.field, Reason: f.reason}
		}
	}
	for _, v := range b.Volumes {
		if !slices.ContainsFunc(a.Volumes, func(is corev1.Volume) bool { return reflect.DeepEqual(v, is) }) {
			return &PatchError{Field: "pod.spec.volumes", Reason: "volume " + v.Name + " is Slipway's own"}
		}
	}
	for i := range b.InitContainers {
		if i >= len(a.InitContainers) || !reflect.DeepEqual(b.InitContainers[i], a.InitContainers[i]) {
			return &PatchError{Field: "pod.spec.initContainers", Reason: "container " + b.InitContainers[i].Name + " is Slipway's own"}
		}
	}
	return touchedMain(b.Containers[0], a.Containers)
}

// touchedMain looks at the container that does the work.
func touchedMain(before corev1.Container, all []corev1.Container) error {
	i := slices.IndexFunc(all, func(is corev1.Container) bool { return is.Name == MainContainer })
	if i < 0 {
		return &PatchError{Field: "pod.spec.containers", Reason: "container main is missing"}
	}
	after := all[i]
	env := func(c corev1.Container) map[string]corev1.EnvVar {
		own := map[string]corev1.EnvVar{}
		for _, e := range c.Env {
			if strings.HasPrefix(e.Name, "SLIPWAY_") {
				own[e.Name] = e
			}
		}
		return own
	}
	mounts := func(c corev1.Container) map[string]corev1.VolumeMount {
		own := map[string]corev1.VolumeMount{}
		for _, m := range c.VolumeMounts {
			if slices.ContainsFunc(before.VolumeMounts, func(is corev1.VolumeMount) bool { return is.Name == m.Name || is.MountPath == m.MountPath }) {
				own[m.MountPath] = m
			}
		}
		return own
	}
	for _, f := range []struct {
		field, reason string
		same          bool
	}{
		{"image", "is set by image", before.Image == after.Image},
		{"command", "is set by command", slices.Equal(before.Command, after.Command)},
		{"args", "is set by args", slices.Equal(before.Args, after.Args)},
		{"env", "names that begin with SLIPWAY_ are Slipway's own", maps.EqualFunc(env(before), env(after), func(a, b corev1.EnvVar) bool { return reflect.DeepEqual(a, b) })},
		{"volumeMounts", "those of Slipway's volumes are its own", maps.EqualFunc(mounts(before), mounts(after), func(a, b corev1.VolumeMount) bool { return reflect.DeepEqual(a, b) })},
		{"terminationMessagePath", "is the runner's", before.TerminationMessagePath == after.TerminationMessagePath},
		{"terminationMessagePolicy", "is the runner's", before.TerminationMessagePolicy == after.TerminationMessagePolicy},
	} {
		if !f.same {
			return &PatchError{Field: "pod.spec.containers[main]." + f.field, Reason: f.reason}
		}
	}
	return nil
}
