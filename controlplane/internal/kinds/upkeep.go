package kinds

import (
	"encoding/json"

	"slipway.dev/slipway/pkg/task"
)

// The kinds of Slipway's own upkeep.
const (
	Retention = "slipway.retention"
	Check     = "slipway.check"
)

// Upkeep are the kinds of Slipway's own upkeep, which run in the control plane's own process alone, and in one namespace
// alone: who may submit there may have everybody's ended Tasks removed.
func Upkeep(namespace string) []Kind {
	retention := inHouse(Retention, "Remove ended tasks, events, logs, ledgers and idempotency keys that are not kept any longer, and idle lanes.", namespace)
	retention.Lane = "slipway:{namespace}/retention"
	retention.Params = json.RawMessage(`{
		"type": "object",
		"additionalProperties": false,
		"properties": {
			"succeeded": {"description": "Seconds that a succeeded task is kept after its end; default 7 days. The last success of a schedule stays.", "type": "number", "minimum": 60, "maximum": 315360000},
			"failed": {"description": "The same of failed and canceled ones; default 30 days.", "type": "number", "minimum": 60, "maximum": 315360000},
			"events": {"description": "Seconds that events are kept, by whole days; default 7 days.", "type": "number", "minimum": 86400, "maximum": 315360000},
			"logs": {"description": "Seconds that logs are kept, by whole days, and never longer than their task; default 30 days.", "type": "number", "minimum": 86400, "maximum": 315360000},
			"fires": {"description": "Seconds that lines of the ledgers of schedules are kept; default 30 days.", "type": "number", "minimum": 86400, "maximum": 315360000},
			"max_tasks": {"description": "Most ended tasks; beyond, the oldest go first; default 2 million.", "type": "integer", "minimum": 0},
			"max_log_bytes": {"description": "Most bytes of kept logs; beyond, the oldest days go first, never today; default 20 GiB.", "type": "integer", "minimum": 0}
		}
	}`)
	check := inHouse(Check, "Compare what lanes show with their tasks, and set right what differs.", namespace)
	check.Lane = "slipway:{namespace}/check"
	check.Params = json.RawMessage(`{
		"type": "object",
		"additionalProperties": false,
		"properties": {"repair": {"description": "Set right what differs (default true); else it is told alone.", "type": "boolean"}}
	}`)
	return []Kind{retention, check}
}

func inHouse(name, description, namespace string) Kind {
	spec := defaults()
	spec.Idempotent, spec.RunDeadline, spec.Grace = true, task.InlineMost, task.InlineGrace
	return Kind{
		Kind: task.Kind{
			Name: name, Description: description, Executor: task.ExecutorInline, Queue: "maintenance", Mode: task.Latest,
			OnConflict: task.ConflictQueue, Supersedes: []string{name}, Spec: spec, InlineOK: true,
		},
		Only: namespace,
	}
}
