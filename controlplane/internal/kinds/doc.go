// Package kinds knows what can be run: the built-in kinds with their defaults, those of a kinds.yaml, and how a submit
// is laid over them to make a Task. [Build] and [Read] are pure functions.
//
// Allowed imports: pkg/task, the standard library, santhosh-tekuri/jsonschema, sigs.k8s.io/yaml.
package kinds
