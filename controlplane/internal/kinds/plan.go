package kinds

// MaxChildren bounds the children of a composite Task.
const MaxChildren = 100

// Planner makes the children of a composite Task when it is submitted: pure, from the parent's request alone, which has
// been held against its kind before; what the kind selects in the cluster was looked up before, and is part of it. An
// *InvalidError names what is wrong with the parent's fields.
type Planner interface {
	Plan(parent Request) ([]Child, error)
}

// Child is one planned child.
type Child struct {
	Kind string
	Request
	Ref   string   // its name among its siblings; empty: nobody runs after it
	After []string // Refs of the siblings that must end first
	RunIf string   // all_succeeded, where empty, or all_finished
}
