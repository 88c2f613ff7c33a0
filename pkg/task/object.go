package task

// Object is something in the Task's namespace that the Task is about: Kubernetes Events on it tell of the Task's steps.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// Step is what Events on a Task's objects tell of.
type Step string

// The steps.
const (
	StepStarted   Step = "Started"
	StepRetrying  Step = "Retrying"
	StepSucceeded Step = "Succeeded"
	StepFailed    Step = "Failed"
	StepCanceled  Step = "Canceled"
)

// StepOf is the step that a Task has taken with the end of an Attempt, or with its own; empty: none.
func StepOf(s State) Step {
	switch s {
	case Queued:
		return StepRetrying
	case Succeeded:
		return StepSucceeded
	case Failed:
		return StepFailed
	case Canceled:
		return StepCanceled
	case Running:
	}
	return ""
}
