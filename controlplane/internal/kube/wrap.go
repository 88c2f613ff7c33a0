package kube

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/pkg/task"
)

// Where the runner stands in its own image, and where it is copied to in the pod of an image that is wrapped.
const (
	runnerProgram = "/slipway-runner"
	runnerVolume  = "runner"
	runnerFolder  = "/opt/slipway"
)

// before gives what has to run before the main container: the copy of the runner, or the gate.
func (c *Client) before(t task.Task, a task.Attempt, resources corev1.ResourceRequirements) []corev1.Container {
	made := corev1.Container{
		Image: c.cfg.RunnerImage, ImagePullPolicy: corev1.PullIfNotPresent, Resources: resources, SecurityContext: unprivileged(),
		TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	switch t.Spec.Pod.Wrap {
	case task.WrapExec:
		made.Name, made.Command = task.RunnerContainer, []string{runnerProgram, "install", path.Join(runnerFolder, path.Base(runnerProgram))}
		made.VolumeMounts = []corev1.VolumeMount{{Name: runnerVolume, MountPath: runnerFolder}}
		made.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError // it says why in one line, and nothing else
	case task.WrapNone:
		made.Name, made.Command = task.GateContainer, []string{runnerProgram, "gate"}
		made.Env = c.runnerEnv(a)
		made.VolumeMounts = []corev1.VolumeMount{{Name: "token", MountPath: tokenFolder, ReadOnly: true}}
	case task.WrapOwn:
		return nil
	}
	return []corev1.Container{made}
}

// wrap sets what the main container runs.
func wrap(main *corev1.Container, p task.Pod, a task.Attempt) {
	switch p.Wrap {
	case task.WrapOwn:
		main.Command, main.Args = literal(p.Command), literal(p.Args)
	case task.WrapExec:
		main.Command = []string{path.Join(runnerFolder, path.Base(runnerProgram)), "exec", "--"}
		main.Args = append(literal(p.Command), literal(p.Args)...)
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: runnerVolume, MountPath: runnerFolder, ReadOnly: true})
	case task.WrapNone:
		// What it needs to write a termination message of its own (DESIGN 5.4), and no token: there is nobody to call.
		main.Command, main.Args = literal(p.Command), literal(p.Args)
		main.Env = append([]corev1.EnvVar{
			{Name: "SLIPWAY_TASK", Value: a.TaskID},
			{Name: "SLIPWAY_ATTEMPT", Value: decimal(a.ID)},
			{Name: "SLIPWAY_FENCE", Value: decimal(a.Fence)},
		}, environment(p)...)
		main.VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: scratchFolder}}
	}
}

// literal keeps Kubernetes from reading $(NAME) in words that are to be passed on as they are.
func literal(words []string) []string {
	if len(words) == 0 {
		return nil
	}
	kept := make([]string, len(words))
	for i, word := range words {
		kept[i] = strings.ReplaceAll(word, "$", "$$")
	}
	return kept
}
