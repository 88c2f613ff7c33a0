package kinds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/pkg/task"
)

// FileError names what is wrong with an entry of a kinds.yaml.
type FileError struct{ File, Kind, Field, Reason string }

func (e *FileError) Error() string {
	at := e.File
	if e.Kind != "" {
		at += ": kind " + e.Kind
	}
	if e.Field != "" {
		at += ": " + e.Field
	}
	return at + ": " + e.Reason
}

// entry is one kind of a kinds.yaml.
type entry struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Image       string          `json:"image"`
	AnyImage    bool            `json:"any_image"` // a submit may name another
	Wrap        wrapping        `json:"wrap"`      // true (default), false, or own: the image is made with pkg/handler
	Command     []string        `json:"command"`
	Args        []string        `json:"args"`
	Dir         string          `json:"dir"`
	Queue       string          `json:"queue"`
	Lane        string          `json:"lane"`
	Objects     []task.Object   `json:"objects"` // what Events tell of its steps; names are templates as lanes are
	Mode        task.Mode       `json:"mode"`
	OnConflict  task.OnConflict `json:"on_conflict"`
	Supersedes  []string        `json:"supersedes"`
	Defaults    json.RawMessage `json:"defaults"` // the spec of a submit
	Params      json.RawMessage `json:"params"`   // JSON Schema
	Secrets     []string        `json:"secrets"`  // parameters that take only a reference to a key of a Secret
	Pod         json.RawMessage `json:"pod"`      // strategic merge patch of the pod template
}

// wrapping reads true, false or own.
type wrapping struct{ task.Wrap }

func (w *wrapping) UnmarshalJSON(raw []byte) error {
	switch string(raw) {
	case `true`:
		w.Wrap = task.WrapExec
	case `false`:
		w.Wrap = task.WrapNone
	case `"own"`:
		w.Wrap = task.WrapOwn
	default:
		return errWrap
	}
	return nil
}

var errWrap = errors.New("wrap: is none of true, false and own")

// Read reads the kinds of a kinds.yaml; name is the file's, for errors. The error names every bad entry, each a
// *FileError.
func Read(name string, raw []byte) ([]Kind, error) {
	asJSON, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, &FileError{File: name, Reason: "is no YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	var file struct {
		Kinds []json.RawMessage `json:"kinds"`
	}
	if err := strict(asJSON, &file); err != nil {
		return nil, &FileError{File: name, Reason: "must hold a list named kinds and nothing else: " + said(err)}
	}
	var all []Kind
	var wrong []error
	known := BuiltIn()
	for i, text := range file.Kinds {
		var named struct{ Name string }
		_ = json.Unmarshal(text, &named) // what it cannot read is told below
		if named.Name == "" {
			named.Name = fmt.Sprintf("%d", i+1)
		}
		k, faults := readKind(text)
		if _, builtIn := known.Get(k.Name); builtIn {
			faults.add("name", "is that of a built-in kind")
		}
		if slices.ContainsFunc(all, func(other Kind) bool { return other.Name == k.Name }) {
			faults.add("name", "is defined twice")
		}
		for _, f := range faults {
			wrong = append(wrong, &FileError{File: name, Kind: named.Name, Field: f.Pointer, Reason: f.Reason})
		}
		all = append(all, k)
	}
	wrong = append(wrong, strangers(name, all)...)
	return all, errors.Join(wrong...)
}

// strangers finds kinds that are named and do not exist.
func strangers(file string, all []Kind) []error {
	var wrong []error
	known := BuiltIn()
	for _, k := range all {
		for _, other := range k.Supersedes {
			_, builtIn := known.Get(other)
			if !builtIn && !slices.ContainsFunc(all, func(is Kind) bool { return is.Name == other }) {
				wrong = append(wrong, &FileError{File: file, Kind: k.Name, Field: "supersedes", Reason: other + " is no kind"})
			}
		}
	}
	return wrong
}

func strict(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// said is a decoder's error in the words of a kinds.yaml.
func said(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return "cannot be a " + kind.Value
	}
	if errors.Is(err, errWrap) {
		return "is none of true, false and own"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// fieldOf is the field that a decoder's error is about, below at.
func fieldOf(at string, err error) string {
	var kind *json.UnmarshalTypeError
	name := ""
	found := unknownField.FindStringSubmatch(err.Error())
	switch {
	case errors.As(err, &kind):
		name = kind.Field
	case errors.Is(err, errWrap):
		name = "wrap"
	case found != nil:
		name = found[1]
	}
	return strings.Trim(at+"."+name, ".")
}

var unknownField = regexp.MustCompile(`unknown field "([^"]*)"`)

// readKind reads one entry.
func readKind(raw []byte) (Kind, fields) {
	var wrong fields
	e := entry{Queue: "default", Wrap: wrapping{task.WrapExec}}
	if err := strict(raw, &e); err != nil {
		wrong.add(fieldOf("", err), "%s", said(err))
		return Kind{Kind: task.Kind{Name: e.Name}}, wrong
	}
	spec := defaults()
	if len(e.Defaults) > 0 {
		if err := strict(e.Defaults, &spec); err != nil {
			wrong.add(fieldOf("defaults", err), "%s", said(err))
		}
	}
	checkDefaults(spec, &wrong)
	spec.Image = e.Image
	spec.Pod.Wrap, spec.Pod.Command, spec.Pod.Args, spec.Pod.Dir, spec.Pod.Patch = e.Wrap.Wrap, e.Command, e.Args, e.Dir, e.Pod
	k := Kind{
		Kind: task.Kind{
			Name: e.Name, Description: e.Description, Executor: task.ExecutorJob, Queue: e.Queue, Lane: e.Lane, Mode: e.Mode,
			OnConflict: e.OnConflict, Supersedes: e.Supersedes, Spec: spec, Params: e.Params, Secrets: e.Secrets,
		},
		AnyImage: e.AnyImage,
	}
	e.check(&k, &wrong)
	return k, wrong
}

var (
	queueName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	anyHole     = regexp.MustCompile(`\{[^{}]*\}`)
	knownHole   = regexp.MustCompile(`^\{(namespace|params\.[A-Za-z0-9_-]+|partition params\.[A-Za-z0-9_-]+ [1-9][0-9]{0,3})\}$`)
	modes       = []task.Mode{"", task.Strict, task.Latest, task.Parallel}
	onConflicts = []task.OnConflict{"", task.ConflictQueue, task.ConflictReject, task.ConflictReplace}
)

// check holds an entry against what a kind must be, and sets what follows from the rest.
func (e entry) check(k *Kind, wrong *fields) {
	if !validName.MatchString(e.Name) {
		wrong.add("name", "must be at most 40 letters, digits, dots, dashes and underscores")
	}
	if e.Image == "" {
		wrong.add("image", "is missing")
	}
	if e.Wrap.Wrap == task.WrapExec && (len(e.Command) == 0 || e.Command[0] == "") {
		wrong.add("command", "is missing: the entrypoint of an image that is wrapped cannot be known from outside")
	}
	if slices.ContainsFunc(slices.Concat(e.Command, e.Args), func(word string) bool { return strings.ContainsRune(word, 0) }) {
		wrong.add("command", "holds a NUL character, which no program can be given")
	}
	if e.Dir != "" && !strings.HasPrefix(e.Dir, "/") {
		wrong.add("dir", "must begin with /")
	}
	if !queueName.MatchString(e.Queue) {
		wrong.add("queue", "is no name of a queue")
	}
	if !slices.Contains(modes, e.Mode) {
		wrong.add("mode", "is none of strict, latest, parallel")
	}
	if !slices.Contains(onConflicts, e.OnConflict) {
		wrong.add("on_conflict", "is none of queue, reject, replace")
	}
	e.checkLane(k, wrong)
	e.checkObjects(k, wrong)
	if len(e.Params) > 0 {
		if _, err := compile(e.Params); err != nil {
			wrong.add("params", "is no JSON Schema: %v", err)
		}
	}
	if len(e.Secrets) > 0 {
		withSecrets(e.Params, e.Secrets, wrong)
	}
	if len(e.Pod) > 0 && !bytes.HasPrefix(bytes.TrimSpace(e.Pod), []byte("{")) {
		wrong.add("pod", "must be a patch of a pod template")
	}
}

// checkLane tries the template on a sample.
func (e entry) checkLane(k *Kind, wrong *fields) {
	if e.Lane == "" {
		if e.Mode != "" && e.Mode != task.Parallel {
			wrong.add("mode", "%s needs a lane", e.Mode)
		}
		k.Mode = task.Parallel
		return
	}
	for _, hole := range anyHole.FindAllString(e.Lane, -1) {
		if !knownHole.MatchString(hole) {
			wrong.add("lane", "holds %s, which is none of {namespace}, {params.FIELD} and {partition params.FIELD PARTS}", hole)
			return
		}
		name, parts := partition(strings.Trim(hole, "{}"))
		if parts > 0 && !strings.HasSuffix(e.Lane, "/"+hole) {
			wrong.add("lane", "holds %s beside other words of the name; a partition is the whole name", hole)
			return
		}
		if slices.Contains(e.Secrets, strings.TrimPrefix(name, "params.")) {
			wrong.add("lane", "holds %s, which is secret", hole)
			return
		}
	}
	sample := anyHole.ReplaceAllStringFunc(e.Lane, func(hole string) string {
		if hole == "{namespace}" {
			return "namespace"
		}
		return "x"
	})
	parts := laneKey.FindStringSubmatch(sample)
	switch {
	case parts == nil, parts[2] != "namespace" || !strings.Contains(e.Lane, ":{namespace}/"):
		wrong.add("lane", "must be of the form family:{namespace}/name")
	case parts[1] == privateFamily:
		wrong.add("lane", "is of a family that Slipway uses itself")
	case e.Mode == task.Parallel:
		wrong.add("mode", "is parallel, which has no lane")
	case e.Mode == "":
		k.Mode = task.Strict
	}
}
