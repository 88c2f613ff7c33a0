package httpapi

import (
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// wirePod shows the part of a task.Pod that a submit can set; the rest is the kind's, or follows from the parameters.
func wirePod(p task.Pod) api.PodWishes {
	out := api.PodWishes{ImagePullSecrets: p.PullSecrets, Labels: p.Labels, Annotations: p.Annotations}
	for name, from := range p.Env {
		if out.Env == nil {
			out.Env = map[string]api.EnvSource{}
		}
		out.Env[name] = api.EnvSource{Value: from.Value, SecretRef: wireRef(from.Secret), ConfigMapRef: wireRef(from.ConfigMap)}
	}
	for _, t := range p.Tolerations {
		out.Tolerations = append(out.Tolerations, api.Toleration{
			Key: t.Key, Operator: api.TolerationOperator(t.Operator), Value: t.Value, Effect: api.TolerationEffect(t.Effect),
			Seconds: (*float64)(t.Seconds),
		})
	}
	return out
}

func wireRef(r *task.KeyRef) api.KeyRef {
	if r == nil {
		return api.KeyRef{}
	}
	return api.KeyRef{Name: r.Name, Key: r.Key, Optional: r.Optional}
}
