package kinds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slipway.dev/slipway/pkg/task"
)

// Kind is a task.Kind with what only the edge needs to know of it.
type Kind struct {
	task.Kind
	// Free says that the caller names the program that runs: creating such a Task is creating a pod.
	Free bool
	// AnyImage says that a submit may name the image.
	AnyImage bool
	// NeedsChildren says that it has no handler: its Tasks are composite.
	NeedsChildren bool
	// Only, where set, is the one namespace that its Tasks may be in; they run in the control plane's own process alone.
	Only string
	// Planner, where there is one, makes the children of its Tasks.
	Planner Planner
	// Selector, where it is set, reads from parameters a selector of PersistentVolumeClaims of the namespace. What it matches
	// is looked up before the Planner is asked, and handed to it as Found.
	Selector func(params json.RawMessage) string
	// Growth, where it is set, reads from parameters what a Task wants of the storage of its namespace.
	Growth func(params json.RawMessage) task.Growth

	schema *jsonschema.Schema
	// shape reads into the Spec what the parameters say about the pod.
	shape func(params json.RawMessage, s *task.Spec, wrong *fields)
}

// Composite says that a Task of the kind always has children.
func (k Kind) Composite() bool { return k.NeedsChildren || k.Planner != nil }

// Registry holds kinds by name.
type Registry struct{ byName map[string]Kind }

// BuiltIn is the registry of the kinds out of the box.
func BuiltIn() *Registry {
	r, err := WithBuiltIn()
	if err != nil {
		panic(err) // they are constants of this package, held good by a test
	}
	return r
}

// WithBuiltIn is the registry of the kinds out of the box and those of the user.
func WithBuiltIn(users ...Kind) (*Registry, error) {
	return New(slices.Concat([]Kind{commandRun(), containerRun(), group()}, volumes(), users)...)
}

// Local is the registry of a control plane without a cluster: of what runs in its own process, with more of that.
func Local(more ...Kind) (*Registry, error) {
	k := commandRun()
	k.Description = "Run a command in the control plane's own process, for a minute at most."
	k.Executor, k.InlineOK, k.Spec.RunDeadline = task.ExecutorInline, true, task.InlineMost
	return New(append([]Kind{k, group()}, more...)...)
}

var validName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,38}[A-Za-z0-9])?$`)

// New makes a registry; a bad kind is named.
func New(all ...Kind) (*Registry, error) {
	r := &Registry{byName: make(map[string]Kind, len(all))}
	for _, k := range all {
		if !validName.MatchString(k.Name) {
			return nil, fmt.Errorf("kind %q: a name is at most 40 letters, digits, dots, dashes and underscores", k.Name)
		}
		if _, twice := r.byName[k.Name]; twice {
			return nil, fmt.Errorf("kind %s: defined twice", k.Name)
		}
		if len(k.Secrets) > 0 {
			var wrong fields
			if k.Params = withSecrets(k.Params, k.Secrets, &wrong); len(wrong) > 0 {
				return nil, fmt.Errorf("kind %s: %s %s", k.Name, wrong[0].Pointer, wrong[0].Reason)
			}
		}
		if len(k.Params) > 0 {
			schema, err := compile(k.Params)
			if err != nil {
				return nil, fmt.Errorf("kind %s: read its schema of parameters: %w", k.Name, err)
			}
			k.schema = schema
		}
		r.byName[k.Name] = k
	}
	return r, nil
}

func compile(schema json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	const here = "params.json"
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is fetched
	if err := c.AddResource(here, doc); err != nil {
		return nil, err
	}
	return c.Compile(here)
}

// AllowInline marks a kind as one that may run in the control plane's own process; false says that there is no such kind.
// It comes before the registry is used.
func (r *Registry) AllowInline(name string) bool {
	k, ok := r.byName[name]
	if ok {
		k.InlineOK = true
		r.byName[name] = k
	}
	return ok
}

// Get returns the kind of that name; ok is false where there is none.
func (r *Registry) Get(name string) (k Kind, ok bool) {
	k, ok = r.byName[name]
	return k, ok
}

// Names lists the kinds in order.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }

// defaults is the Spec of a kind that says nothing. Its number of attempts is left open: it follows from whether the
// Task is idempotent.
func defaults() task.Spec {
	s := task.DefaultSpec()
	s.Retry.Attempts = 0
	return s
}
