// Package kinds knows what can be run: the built-in kinds with their defaults, and how a submit is laid over them to
// make a Task. [Build] is a pure function.
//
// Allowed imports: pkg/task, the standard library, santhosh-tekuri/jsonschema.
package kinds
