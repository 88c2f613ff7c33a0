package kube

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

// Labels, annotations and names that Slipway sets.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelInstance  = "slipway.dev/instance"
	LabelTask      = "slipway.dev/task"
	LabelAttempt   = "slipway.dev/attempt"
	LabelFence     = "slipway.dev/fence"
	LabelKind      = "slipway.dev/kind"
	LabelState     = "slipway.dev/state"

	ManagedBy   = "slipway"
	StateOpen   = "open"
	StateClosed = "closed"

	AnnotationLane = "slipway.dev/lane"
	AnnotationName = "slipway.dev/name"

	// Finalizer keeps a pod, and so its exit code and termination message, until its end is stored.
	Finalizer = "slipway.dev/evidence"

	// MainContainer is the container whose exit code counts.
	MainContainer = "main"
)

func (c *Client) labels(a task.Attempt) map[string]string {
	return map[string]string{
		LabelManagedBy: ManagedBy,
		LabelInstance:  c.cfg.Instance,
		LabelTask:      a.TaskID,
		LabelAttempt:   decimal(a.ID),
		LabelFence:     decimal(a.Fence),
		LabelKind:      labelValue(a.Kind),
		LabelState:     StateOpen,
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// ours selects the objects of this Slipway.
func (c *Client) ours() string {
	return LabelManagedBy + "=" + ManagedBy + "," + LabelInstance + "=" + c.cfg.Instance
}

// open selects what is not closed yet.
func (c *Client) open() string { return c.ours() + "," + LabelState + "!=" + StateClosed }

// of selects the objects of one Attempt, closed or not.
func (c *Client) of(attempt, fence int64) string {
	return c.ours() + "," + LabelAttempt + "=" + decimal(attempt) + "," + LabelFence + "=" + decimal(fence)
}

// attemptOf reads the Attempt's id and fence from labels; ok is false for what is not ours.
func (c *Client) attemptOf(o metav1.Object) (attempt, fence int64, ok bool) {
	labels := o.GetLabels()
	if labels[LabelManagedBy] != ManagedBy || labels[LabelInstance] != c.cfg.Instance {
		return 0, 0, false
	}
	attempt, errAttempt := strconv.ParseInt(labels[LabelAttempt], 10, 64)
	fence, errFence := strconv.ParseInt(labels[LabelFence], 10, 64)
	return attempt, fence, errAttempt == nil && errFence == nil
}

// maxName is the longest name of a Job: it becomes a label of its pods.
const maxName = 63

// JobName names the Job of an Attempt: `<kind>-<seq in base 32>-<mark of this Slipway>-<number>`. Seq makes it unique
// whatever the kind's name; the mark keeps two Slipways that share a namespace apart.
func (c *Client) JobName(t task.Task, a task.Attempt) string {
	tail := "-" + strconv.FormatInt(t.Seq, 32) + "-" + mark(c.cfg.Instance) + "-" + strconv.Itoa(a.Number)
	return dnsName(a.Kind, maxName-len(tail)) + tail
}

// mark is three letters or digits made of an instance's uuid.
func mark(instance string) string {
	sum := sha256.Sum256([]byte(instance))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:3])
}

// dnsName makes a DNS label of at most limit characters out of text.
func dnsName(text string, limit int) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, text)
	name = strings.TrimLeft(name, "-")
	name = strings.TrimRight(name[:min(len(name), limit)], "-")
	if name == "" {
		return "task"
	}
	return name
}

// labelValue makes a label's value out of text.
func labelValue(text string) string {
	value := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, text)
	return strings.Trim(value[:min(len(value), maxName)], "-_.")
}
