package kinds

import (
	"encoding/json"
	"strings"

	"slipway.dev/slipway/pkg/task"
)

// commandRun runs one command in the runner's own image.
func commandRun() Kind {
	return Kind{
		Kind: task.Kind{
			Name:        "command.run",
			Description: "Run a command in the runner's image.",
			Executor:    task.ExecutorJob,
			Queue:       "default",
			Mode:        task.Parallel,
			OnConflict:  task.ConflictQueue,
			Supersedes:  []string{"command.run"},
			Spec:        defaults(),
			Params: json.RawMessage(`{
				"type": "object",
				"additionalProperties": false,
				"required": ["command"],
				"properties": {
					"command": {
						"description": "Program and arguments; no shell in between.",
						"type": "array", "minItems": 1, "maxItems": 1000,
						"prefixItems": [{"type": "string", "minLength": 1}],
						"items": {"type": "string"}
					},
					"env": {
						"description": "Environment, nothing secret. Names are of letters, digits and underscores and do not begin with SLIPWAY_.",
						"type": "object", "maxProperties": 1000,
						"additionalProperties": {"type": "string"}
					},
					"dir": {"description": "Working directory.", "type": "string", "pattern": "^/"},
					"stdin": {"description": "What the command reads.", "type": "string"}
				}
			}`),
		},
		Free:  true,
		shape: func(params json.RawMessage, _ *task.Spec, wrong *fields) { checkEnv(params, wrong) },
	}
}

// checkEnv holds the names in params.env. The schema could, but where a rule is about names the library may tell the
// place of another field.
func checkEnv(params json.RawMessage, wrong *fields) {
	var p struct{ Env map[string]string }
	if err := json.Unmarshal(params, &p); err != nil {
		wrong.add("/params", "cannot be read")
		return
	}
	for name := range p.Env {
		switch at := "/params/env/" + Escape(name); {
		case !envName.MatchString(name):
			wrong.add(at, "is no name of a variable")
		case strings.HasPrefix(name, "SLIPWAY_"):
			wrong.add(at, "is a name that Slipway uses itself")
		}
	}
}

// containerRun runs any image.
func containerRun() Kind {
	k := commandRun()
	k.Name, k.Supersedes, k.shape = "container.run", []string{"container.run"}, shapeContainer
	k.Description = "Run a command in any image, with a runner around it."
	k.Spec.Pod.Wrap = task.WrapExec
	k.Params = json.RawMessage(`{
		"type": "object",
		"additionalProperties": false,
		"required": ["image"],
		"properties": {
			"image": {
				"description": "Image to run. It needs nothing of Slipway inside, not even a shell.",
				"type": "string", "minLength": 1, "maxLength": 512
			},
			"command": {
				"description": "Program and arguments; no shell in between. The entrypoint of an image cannot be known from outside, so it has to be given unless wrap is false.",
				"type": "array", "minItems": 1, "maxItems": 1000,
				"prefixItems": [{"type": "string", "minLength": 1}],
				"items": {"type": "string"}
			},
			"args": {
				"description": "Further arguments; without command, those of the image's entrypoint.",
				"type": "array", "maxItems": 1000, "items": {"type": "string"}
			},
			"env": {
				"description": "Environment, nothing secret. Names as for command.run. It stands in the pod; secrets are named in spec.pod.env.",
				"type": "object", "maxProperties": 1000,
				"additionalProperties": {"type": "string"}
			},
			"dir": {"description": "Working directory; default, the image's.", "type": "string", "pattern": "^/"},
			"wrap": {
				"description": "Whether the runner stands around the command (default true). Without it there is no progress, result or kept log and no fence time: exit code and termination message tell the end, and where the pod vanishes without a word its lane is kept until its node is known to be gone.",
				"type": "boolean"
			},
			"input": {"description": "Anything for the program: it finds all parameters in the file $SLIPWAY_PARAMS."}
		},
		"if": {"required": ["wrap"], "properties": {"wrap": {"const": false}}},
		"else": {"required": ["command"]}
	}`)
	return k
}

// shapeContainer turns the parameters of container.run into what its pod runs.
func shapeContainer(params json.RawMessage, s *task.Spec, wrong *fields) {
	var p struct {
		Image         string
		Command, Args []string
		Env           map[string]string
		Dir           string
		Wrap          *bool
	}
	if err := json.Unmarshal(params, &p); err != nil {
		wrong.add("/params", "cannot be read")
		return
	}
	checkEnv(params, wrong)
	s.Image, s.Pod.Command, s.Pod.Args, s.Pod.Dir = p.Image, p.Command, p.Args, p.Dir
	if p.Wrap != nil && !*p.Wrap {
		s.Pod.Wrap = task.WrapNone
	}
	for name, value := range p.Env {
		if _, twice := s.Pod.Env[name]; twice {
			wrong.add("/params/env/"+Escape(name), "stands in spec.pod.env too")
			continue
		}
		if s.Pod.Env == nil {
			s.Pod.Env = map[string]task.EnvSource{}
		}
		s.Pod.Env[name] = task.EnvSource{Value: &value}
	}
}

// group is a composite Task and nothing else.
func group() Kind {
	return Kind{
		Kind: task.Kind{
			Name:        "group",
			Description: "Runs nothing itself: its children are the work.",
			Executor:    task.ExecutorJob,
			Queue:       "default",
			Mode:        task.Parallel,
			OnConflict:  task.ConflictQueue,
			Supersedes:  []string{"group"},
			Spec:        defaults(),
			Params:      json.RawMessage(`{"type": "object", "additionalProperties": false}`),
		},
		NeedsChildren: true,
	}
}
