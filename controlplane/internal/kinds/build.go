package kinds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"slipway.dev/slipway/pkg/task"
)

// Bounds of a submit.
const (
	MaxParams = 256 << 10 // bytes of JSON
	MaxName   = 200       // characters
	MaxLabels = 16
)

// Request is what a submit asks for. Empty fields leave the choice to the kind.
type Request struct {
	Namespace  string
	Name       string
	Params     json.RawMessage
	Labels     map[string]string
	Lane       string
	Objects    []task.Object // named beside those of the kind
	Mode       task.Mode
	OnConflict task.OnConflict
	Queue      string
	Class      string
	Spec       json.RawMessage // the fields of a task.Spec that are to differ from the kind's
	RunAt      time.Time
	Delay      task.Seconds
	Found      []string // for a Planner: the names of what the kind's Selector matches
}

// Built is a Task that is ready to be stored.
type Built struct {
	Task       task.Task
	OnConflict task.OnConflict
	Supersedes []string
	RunAt      time.Time
	Delay      time.Duration
	// Free says that the caller chose the program, the image or the service account: that takes the right to create
	// Jobs in the namespace.
	Free bool
	// Growth is what it wants of the storage of its namespace; nil: nothing.
	Growth *task.Growth
}

// FieldError says what is wrong with one field; Pointer is a JSON pointer into the submit.
type FieldError struct{ Pointer, Reason string }

// InvalidError refuses a submit by a rule.
type InvalidError struct{ Fields []FieldError }

// Error names the first field.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s: %s", e.Fields[0].Pointer, e.Fields[0].Reason)
}

// fields collects what is wrong.
type fields []FieldError

func (f *fields) add(pointer, reason string, args ...any) {
	const most = 20
	if len(*f) < most {
		*f = append(*f, FieldError{Pointer: pointer, Reason: fmt.Sprintf(reason, args...)})
	}
}

// Build lays req over the defaults of k. The error is an *InvalidError that names every field at fault.
func Build(k Kind, req Request) (Built, error) {
	var wrong fields
	t := task.Task{
		Kind: k.Name, Namespace: req.Namespace, Name: req.Name, Labels: req.Labels,
		Queue: k.Queue, Executor: k.Executor, Class: task.Normal,
	}
	t.Params = params(k, req.Params, &wrong)
	checkName(req.Name, &wrong)
	checkLabels(req.Labels, &wrong)
	if req.Queue != "" {
		t.Queue = req.Queue
	}
	if req.Class != "" {
		class, ok := task.ParseClass(req.Class)
		if !ok {
			wrong.add("/class", "is none of critical, high, normal, low")
		}
		t.Class = class
	}
	if k.Only != "" && req.Namespace != k.Only {
		wrong.add("/namespace", "is not %s, where kind %s runs alone", k.Only, k.Name)
	}
	t.Lane, t.Mode = lane(k, req, &wrong)
	spec, free := spec(k, req.Spec, &wrong)
	if len(wrong) == 0 {
		spec.Pod.Secrets = secretRefs(k, t.Params, &wrong)
	}
	if k.shape != nil && len(wrong) == 0 {
		k.shape(t.Params, &spec, &wrong)
	}
	spec.Objects = objects(k, req, &wrong)
	if k.InlineOK {
		field, reason := task.InlineBar(spec, k.Executor == task.ExecutorInline)
		if spec.Inline = field == ""; !spec.Inline && k.Executor == task.ExecutorInline {
			wrong.add("/spec/"+field, "%s: this kind runs in the control plane's own process", reason)
		}
	}
	t.Spec = spec
	if !req.RunAt.IsZero() && req.Delay != 0 {
		wrong.add("/delay", "stands beside run_at; give one of them")
	}
	b := Built{
		Task: t, OnConflict: onConflict(k, req, t.Mode, &wrong), Supersedes: k.Supersedes,
		RunAt: req.RunAt, Delay: req.Delay.Duration(), Free: k.Free || free,
	}
	if len(wrong) > 0 {
		return Built{}, &InvalidError{Fields: wrong}
	}
	if k.Growth != nil {
		g := k.Growth(t.Params)
		b.Growth = &g
	}
	return b, nil
}

// params checks the parameters against the kind's schema and brings them into their shortest form.
func params(k Kind, raw json.RawMessage, wrong *fields) json.RawMessage {
	if len(raw) == 0 {
		raw = json.RawMessage(`{}`)
	}
	var short bytes.Buffer
	if err := json.Compact(&short, raw); err != nil {
		wrong.add("/params", "is not JSON")
		return nil
	}
	if short.Len() > MaxParams {
		wrong.add("/params", "is larger than %d KiB", MaxParams>>10)
		return nil
	}
	checkSchema(k, short.Bytes(), wrong)
	return short.Bytes()
}

func checkName(name string, wrong *fields) {
	if utf8.RuneCountInString(name) > MaxName {
		wrong.add("/name", "is longer than %d characters", MaxName)
	}
	if strings.IndexFunc(name, unicode.IsControl) >= 0 {
		wrong.add("/name", "holds control characters")
	}
}

var (
	labelName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelPrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
)

func checkLabels(labels map[string]string, wrong *fields) {
	if len(labels) > MaxLabels {
		wrong.add("/labels", "holds more than %d", MaxLabels)
		return
	}
	for key, value := range labels {
		switch at := "/labels/" + Escape(key); {
		case !validKey(key):
			wrong.add(at, "is no valid label key")
		case ofSlipway(key):
			wrong.add(at, "is a label that Slipway sets itself")
		case value != "" && !labelName.MatchString(value):
			wrong.add(at, "has no valid label value")
		}
	}
}

// validKey tells keys of labels and annotations.
func validKey(key string) bool {
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return labelName.MatchString(key)
	}
	return labelName.MatchString(name) && len(prefix) <= 253 && labelPrefix.MatchString(prefix)
}

func ofSlipway(key string) bool {
	prefix, _, prefixed := strings.Cut(key, "/")
	return prefixed && (prefix == "slipway.dev" || strings.HasSuffix(prefix, ".slipway.dev"))
}

// Escape writes a key as one step of a JSON pointer, cut where it is long.
func Escape(key string) string {
	const most = 100
	if len(key) > most {
		key = strings.ToValidUTF8(key[:most], "") + "…"
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// spec lays the wishes over the kind's defaults; free says that they choose an image, a service account or anything else
// that only who creates a pod can choose.
func spec(k Kind, wishes json.RawMessage, wrong *fields) (s task.Spec, free bool) {
	s = k.Spec
	s.Requests, s.Limits = maps.Clone(s.Requests), maps.Clone(s.Limits)
	s.NodeSelector, s.Pod = maps.Clone(s.NodeSelector), clonePod(s.Pod)
	if len(wishes) > 0 {
		if err := json.Unmarshal(wishes, &s); err != nil {
			wrong.add("/spec", "cannot be read")
			return s, false
		}
	}
	if s.Image != k.Spec.Image {
		free = true
		if !k.AnyImage {
			wrong.add("/spec/image", "cannot be chosen for kind %s", k.Name)
		}
	}
	if s.ServiceAccount != k.Spec.ServiceAccount || !reflect.DeepEqual(s.Pod, k.Spec.Pod) {
		free = true
		checkPod(s.Pod, "/spec/pod", wrong)
	}
	if s.Retry.Attempts == 0 {
		s.Retry.Attempts = 1
		if s.Idempotent {
			s.Retry.Attempts = task.DefaultRetry().Attempts
		}
	}
	checkRetry(s.Retry, "/spec/retry/", wrong)
	return s, free
}

func onConflict(k Kind, req Request, mode task.Mode, wrong *fields) task.OnConflict {
	policy := req.OnConflict
	if policy == "" {
		policy = k.OnConflict
	}
	if policy == "" {
		policy = task.ConflictQueue
	}
	if mode == task.Parallel && policy != task.ConflictQueue {
		if req.OnConflict != "" {
			wrong.add("/on_conflict", "needs a lane")
		}
		return task.ConflictQueue
	}
	return policy
}
