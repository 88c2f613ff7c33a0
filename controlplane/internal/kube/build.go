package kube

import (
	"fmt"
	"math"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

// What every pod gets.
const (
	runnerAudience = "slipway-runner"
	tokenFolder    = "/var/run/secrets/slipway" //nolint:gosec // a place, not a secret
	tokenFile      = "token"
	tokenSeconds   = 3600
	workFolder     = "/slipway"
	scratchFolder  = "/tmp"
	user           = 65532 // not root, and without a home in any image

	// reportSlack is what a runner has between the end of its grace period and the kubelet's kill, to report.
	reportSlack = 5 * time.Second
	// backstopSlack is how much later than everything else the Job's own deadline comes.
	backstopSlack = 10 * time.Minute
)

// job builds the Job of an Attempt. No parameter and no secret stands in it: the runner gets them when it starts.
func (c *Client) job(t task.Task, a task.Attempt) (*batchv1.Job, error) {
	pod, err := c.podTemplate(t, a)
	if err != nil {
		return nil, err
	}
	meta := metav1.ObjectMeta{
		Name: c.JobName(t, a), Namespace: a.Namespace, Labels: c.labels(a), Annotations: map[string]string{AnnotationLane: a.Lane},
	}
	if t.Name != "" {
		meta.Annotations[AnnotationName] = t.Name
	}
	s := t.Spec
	for key, value := range s.Pod.Labels {
		if queueLabel(key) {
			meta.Labels[key] = value
		}
	}
	queueing := s.Capacity.Duration()
	outer := seconds(queueing + s.StartDeadline.Duration() + s.RunDeadline.Duration() + s.Grace.Duration() + backstopSlack)
	return &batchv1.Job{
		ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)),
			BackoffLimit:          new(int32(0)),
			PodReplacementPolicy:  new(batchv1.Failed),
			ActiveDeadlineSeconds: &outer,
			Template:              *pod,
		},
	}, nil
}

func (c *Client) podTemplate(t task.Task, a task.Attempt) (*corev1.PodTemplateSpec, error) {
	resources, err := resources(t.Spec)
	if err != nil {
		return nil, err
	}
	s := t.Spec
	inner := seconds(s.RunDeadline.Duration() + s.StartDeadline.Duration() + s.Grace.Duration())
	pod := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		ServiceAccountName:            or(s.ServiceAccount, c.cfg.RunnerServiceAccount),
		AutomountServiceAccountToken:  new(s.Pod.API),
		EnableServiceLinks:            new(false),
		ActiveDeadlineSeconds:         &inner,
		TerminationGracePeriodSeconds: new(seconds(s.Grace.Duration() + reportSlack)),
		NodeSelector:                  s.NodeSelector,
		SecurityContext:               restricted(),
		Tolerations:                   tolerations(s.Pod.Tolerations),
		ImagePullSecrets:              pullSecrets(s.Pod.PullSecrets),
		Volumes:                       volumes(s.Pod),
		InitContainers:                c.before(t, a, resources),
		Containers:                    []corev1.Container{c.container(t, a, resources)},
	}
	if c.cfg.PriorityPrefix != "" {
		pod.PriorityClassName = c.cfg.PriorityPrefix + t.Class.String()
	}
	built := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels: podLabels(s.Pod.Labels, c.labels(a)), Annotations: podAnnotations(s.Pod.Annotations), Finalizers: []string{Finalizer},
		},
		Spec: pod,
	}
	return patched(built, s.Pod.Patch)
}

// restricted is what PodSecurity's strictest level asks for.
func restricted() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)), FSGroup: new(int64(user)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func unprivileged() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// container is the one that does the work.
func (c *Client) container(t task.Task, a task.Attempt, resources corev1.ResourceRequirements) corev1.Container {
	s := t.Spec
	made := corev1.Container{
		Name:                     MainContainer,
		Image:                    or(s.Image, c.cfg.RunnerImage),
		ImagePullPolicy:          corev1.PullIfNotPresent,
		WorkingDir:               s.Pod.Dir,
		Env:                      append(c.runnerEnv(a), environment(s.Pod)...),
		Resources:                resources,
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext:          unprivileged(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "token", MountPath: tokenFolder, ReadOnly: true},
			{Name: "work", MountPath: workFolder},
			{Name: "tmp", MountPath: scratchFolder},
		},
	}
	wrap(&made, s.Pod, a)
	return made
}

// runnerEnv is what a runner has to know. The authority is no secret.
func (c *Client) runnerEnv(a task.Attempt) []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: "SLIPWAY_URL", Value: c.cfg.RunnerURL},
		{Name: "SLIPWAY_TASK", Value: a.TaskID},
		{Name: "SLIPWAY_ATTEMPT", Value: decimal(a.ID)},
		{Name: "SLIPWAY_FENCE", Value: decimal(a.Fence)},
		downward("SLIPWAY_POD_NAME", "metadata.name"),
		downward("SLIPWAY_POD_UID", "metadata.uid"),
	}
	if c.cfg.RunnerCA != nil {
		if ca := c.cfg.RunnerCA(); ca != "" {
			env = append(env, corev1.EnvVar{Name: "SLIPWAY_CA", Value: ca})
		}
	}
	return env
}

func volumes(p task.Pod) []corev1.Volume {
	token := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
		Audience: runnerAudience, ExpirationSeconds: new(int64(tokenSeconds)), Path: tokenFile,
	}}
	work := &corev1.EmptyDirVolumeSource{}
	if p.Wrap == task.WrapExec && len(p.Secrets) > 0 {
		work.Medium = corev1.StorageMediumMemory // the file of the parameters holds their values: no disk may
	}
	all := []corev1.Volume{
		{Name: "token", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{token}},
		}},
		{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: work}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	if p.Wrap == task.WrapExec {
		all = append(all, corev1.Volume{Name: runnerVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	return all
}

func downward(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: field},
	}}
}

// resources reads the quantities of a Spec; a bad one is refused here as the API server would.
func resources(s task.Spec) (corev1.ResourceRequirements, error) {
	requests, err := quantities("requests", s.Requests)
	if err != nil {
		return corev1.ResourceRequirements{}, err
	}
	limits, err := quantities("limits", s.Limits)
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}, err
}

func quantities(what string, given map[string]string) (corev1.ResourceList, error) {
	if len(given) == 0 {
		return nil, nil
	}
	list := corev1.ResourceList{}
	for name, text := range given {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, &task.Refusal{Cause: task.RefusedInvalid, Message: fmt.Sprintf("%s.%s: %q is not a quantity", what, name, text)}
		}
		list[corev1.ResourceName(name)] = q
	}
	return list, nil
}

// seconds rounds up to whole seconds, at least one, at most what the API takes.
func seconds(d time.Duration) int64 {
	return int64(min(max(math.Ceil(d.Seconds()), 1), math.MaxInt32))
}
