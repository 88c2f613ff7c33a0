package kinds

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"slipway.dev/slipway/pkg/task"
)

// clonePod keeps what is laid over a kind's pod from changing the kind.
func clonePod(p task.Pod) task.Pod {
	p.Command, p.Args = slices.Clone(p.Command), slices.Clone(p.Args)
	p.Env, p.Labels, p.Annotations = maps.Clone(p.Env), maps.Clone(p.Labels), maps.Clone(p.Annotations)
	p.Secrets = maps.Clone(p.Secrets)
	p.Tolerations, p.PullSecrets = slices.Clone(p.Tolerations), slices.Clone(p.PullSecrets)
	return p
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkPod holds what the API's document cannot say.
func checkPod(p task.Pod, at string, wrong *fields) {
	for name, from := range p.Env {
		here := at + "/env/" + Escape(name)
		given := 0
		for _, is := range []bool{from.Value != nil, from.Secret != nil, from.ConfigMap != nil} {
			if is {
				given++
			}
		}
		switch {
		case !envName.MatchString(name):
			wrong.add(here, "is no name of a variable")
		case strings.HasPrefix(name, "SLIPWAY_"):
			wrong.add(here, "is a name that Slipway uses itself")
		case given != 1:
			wrong.add(here, "needs exactly one of value, secretRef and configMapRef")
		case from.Value != nil && strings.ContainsRune(*from.Value, 0):
			wrong.add(here, "holds a NUL character")
		}
	}
	for key, value := range p.Labels {
		switch here := at + "/labels/" + Escape(key); {
		case !validKey(key):
			wrong.add(here, "is no valid label key")
		case reserved(key):
			wrong.add(here, "is a label that Slipway or Kubernetes sets itself")
		case value != "" && !labelName.MatchString(value):
			wrong.add(here, "has no valid label value")
		}
	}
	for key := range p.Annotations {
		switch here := at + "/annotations/" + Escape(key); {
		case !validKey(key):
			wrong.add(here, "is no valid annotation key")
		case ofSlipway(key):
			wrong.add(here, "is an annotation that Slipway sets itself")
		}
	}
	for _, t := range p.Tolerations {
		if t.Key == "" && t.Operator != "Exists" {
			wrong.add(at+"/tolerations", "without a key need the operator Exists")
		}
		if t.Operator == "Exists" && t.Value != "" {
			wrong.add(at+"/tolerations", "with the operator Exists have no value")
		}
		if t.Seconds != nil && t.Effect != "NoExecute" {
			wrong.add(at+"/tolerations", "with seconds need the effect NoExecute")
		}
	}
}

// reserved tells the labels that decide whose a pod is.
func reserved(key string) bool {
	switch key {
	case "app.kubernetes.io/managed-by", "job-name", "controller-uid":
		return true
	}
	return ofSlipway(key) || strings.HasPrefix(key, "batch.kubernetes.io/")
}
