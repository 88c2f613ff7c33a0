package task

import "encoding/json"

// Pod is what the pod of a Task has beyond resources and place: what runs in it, and what a cluster wants to see on it.
type Pod struct {
	Wrap    Wrap     `json:"wrap,omitempty"`
	Command []string `json:"command,omitempty"` // in place of the image's entrypoint; what a runner wraps
	Args    []string `json:"args,omitempty"`
	Dir     string   `json:"dir,omitempty"` // working directory; empty: the image's

	Env         map[string]EnvSource `json:"env,omitempty"`
	Tolerations []Toleration         `json:"tolerations,omitempty"`
	PullSecrets []string             `json:"image_pull_secrets,omitempty"` // names of Secrets
	Labels      map[string]string    `json:"labels,omitempty"`
	Annotations map[string]string    `json:"annotations,omitempty"`

	// API says that the pod gets a token of its service account for the API server.
	API bool `json:"api,omitempty"`

	// Secrets are the parameters whose values the pod gets from Secrets, each in the variable SecretEnv and its name. They
	// follow from the parameters.
	Secrets map[string]KeyRef `json:"secrets,omitempty"`

	// Patch is the kind's strategic merge patch of the pod template, as JSON. No submit can set it.
	Patch json.RawMessage `json:"patch,omitempty"`
}

// empty reports whether p asks for nothing.
func (p Pod) empty() bool {
	return p.Wrap == WrapOwn && !p.API && p.Dir == "" && len(p.Command)+len(p.Args)+len(p.Env)+len(p.Tolerations)+len(p.PullSecrets)+
		len(p.Labels)+len(p.Annotations)+len(p.Secrets)+len(p.Patch) == 0
}

// Wrap is how Slipway's side of an Attempt gets into its container.
type Wrap string

// The ways.
const (
	WrapOwn  Wrap = ""     // the image's own entrypoint is a runner, as every image made with pkg/handler has
	WrapExec Wrap = "exec" // the runner is copied in and runs Command
	WrapNone Wrap = "none" // no runner inside: a gate asks for the start, the exit code and the termination message tell the end
)

// Runner reports whether a runner attends the handler: it beats, stops by itself at the fence time, and reports.
func (w Wrap) Runner() bool { return w != WrapNone }

// SecretEnv begins the variables that hold the values of secret parameters.
const SecretEnv = "SLIPWAY_SECRET_"

// EnvSource is where the value of an environment variable comes from: exactly one of the three. A secret's value never
// passes through Slipway.
type EnvSource struct {
	Value     *string `json:"value,omitempty"`
	Secret    *KeyRef `json:"secretRef,omitempty"`
	ConfigMap *KeyRef `json:"configMapRef,omitempty"`
}

// KeyRef names a key of a Secret or a ConfigMap in the Task's namespace.
type KeyRef struct {
	Name     string `json:"name"`
	Key      string `json:"key"`
	Optional bool   `json:"optional,omitempty"` // the pod starts without it
}

// Toleration lets a pod onto nodes with a matching taint; the words are those of Kubernetes.
type Toleration struct {
	Key      string   `json:"key,omitempty"`
	Operator string   `json:"operator,omitempty"` // Equal, Exists
	Value    string   `json:"value,omitempty"`
	Effect   string   `json:"effect,omitempty"` // NoSchedule, PreferNoSchedule, NoExecute
	Seconds  *Seconds `json:"seconds,omitempty"`
}

// PodKey names what makes the pods of two Tasks the same to an admission: namespace, kind, class and Spec, whatever the
// words of the command and the objects that hear of it.
func (t Task) PodKey() string {
	same := t.Spec
	same.Pod.Command, same.Pod.Args, same.Objects = nil, nil, nil
	spec, err := json.Marshal(same)
	if err != nil {
		spec = []byte(t.ID) // never for a Spec; asking once more does no harm
	}
	return t.Namespace + "\n" + t.Kind + "\n" + t.Class.String() + "\n" + string(spec)
}
