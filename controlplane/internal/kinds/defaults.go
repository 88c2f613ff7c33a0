package kinds

import (
	"regexp"
	"strings"

	"slipway.dev/slipway/pkg/task"
)

var (
	objectName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	quantity   = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$`)
)

// checkDefaults holds the defaults of a kind to the bounds of the API's document.
func checkDefaults(s task.Spec, wrong *fields) {
	if s.Image != "" {
		wrong.add("defaults.image", "is set by image")
	}
	if s.Pod.Wrap != "" || s.Pod.Command != nil || s.Pod.Args != nil || s.Pod.Dir != "" || s.Pod.Patch != nil || s.Pod.Secrets != nil {
		wrong.add("defaults.pod", "takes env, tolerations, image_pull_secrets, labels and annotations; the rest stands beside defaults")
	}
	if s.ServiceAccount != "" && !objectName.MatchString(s.ServiceAccount) {
		wrong.add("defaults.service_account", "is no name")
	}
	for field, all := range map[string]map[string]string{"requests": s.Requests, "limits": s.Limits} {
		for name, q := range all {
			if !quantity.MatchString(q) {
				wrong.add("defaults."+field+"."+name, "is no quantity")
			}
		}
	}
	for _, d := range []struct {
		field       string
		is          task.Seconds
		least, most task.Seconds
	}{
		{"queue_deadline", s.QueueDeadline, 0, 31536000},
		{"start_deadline", s.StartDeadline, 1, 86400},
		{"capacity_deadline", s.Capacity, 1, 604800},
		{"run_deadline", s.RunDeadline, 1, 2592000},
		{"grace", s.Grace, 0, 3600},
		{"fence_after", s.FenceAfter, 15, 86400},
	} {
		if d.is < d.least || d.is > d.most {
			wrong.add("defaults."+d.field, "must be between %v and %v seconds", float64(d.least), float64(d.most))
		}
	}
	checkRetry(s.Retry, "defaults.retry.", wrong)
	var pod fields
	checkPod(s.Pod, "defaults/pod", &pod)
	for _, f := range pod {
		wrong.add(strings.ReplaceAll(f.Pointer, "/", "."), "%s", f.Reason)
	}
}

// checkRetry holds a policy to the bounds of the API's document; at begins the names of its fields.
func checkRetry(r task.Retry, at string, wrong *fields) {
	for _, n := range []struct {
		field       string
		is          float64
		least, most float64
	}{
		{"attempts", float64(r.Attempts), 0, task.MaxAttempts}, // none: what idempotent says
		{"lost", float64(r.Lost), 0, task.MaxAttempts},
		{"backoff", float64(r.Backoff), 0, float64(task.MaxBackoff)},
		{"cap", float64(r.Cap), 0, float64(task.MaxBackoff)},
	} {
		if !(n.is >= n.least && n.is <= n.most) { // refuses NaN too
			wrong.add(at+n.field, "must be between %v and %v", n.least, n.most)
		}
	}
	if r.Cap < r.Backoff {
		wrong.add(at+"cap", "is less than backoff")
	}
}
