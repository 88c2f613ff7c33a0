package kinds

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"slipway.dev/slipway/manifests/rights"
	"slipway.dev/slipway/pkg/retention"
	"slipway.dev/slipway/pkg/task"
)

// maxBytes bounds what can be asked for: sums of many stay countable.
const maxBytes = 1 << 60

// Bytes reads a quantity of storage, in whole bytes, rounded up. It is not negative, and 1Ei at most. To compare one like
// 1e999999999 takes Kubernetes' own code for ever, so that spellings are looked at first.
func Bytes(text string) (int64, error) {
	if !quantity.MatchString(text) {
		return 0, errors.New("is no quantity")
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("read a quantity: %w", err)
	}
	if q.Sign() < 0 || q.CmpInt64(maxBytes) > 0 {
		return 0, fmt.Errorf("a quantity of storage is from 0 to %s", task.Quantity(maxBytes))
	}
	return q.Value(), nil
}

// volumeKind is what the kinds about one volume have in common: its lane, and an account with their rights.
func volumeKind(name, description, params string) Kind {
	spec := defaults()
	spec.Idempotent = true
	spec.ServiceAccount, spec.Pod.API = rights.Account(name), true
	spec.Objects = []task.Object{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "{params.pvc}"}}
	return Kind{Kind: task.Kind{
		Name: name, Description: description, Executor: task.ExecutorJob, Queue: "volume", Lane: "volume:{namespace}/{params.pvc}",
		Mode: task.Strict, OnConflict: task.ConflictQueue, Supersedes: []string{name}, Spec: spec, Params: json.RawMessage(params),
	}}
}

// objectNamed is the schema of a name, with what it is of.
func objectNamed(of string) string {
	return `{"description": "` + of + `", "type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"}`
}

const ruleName = `{"description": "Name of the rule of retention.", "type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"}`

// volumes are the kinds about volumes.
func volumes() []Kind {
	resize := volumeKind("volume.resize", "Grow a volume, and tell what it really has.", `{
		"type": "object", "additionalProperties": false, "required": ["pvc", "size"],
		"properties": {
			"pvc": `+objectNamed("PersistentVolumeClaim of the namespace, bound.")+`,
			"size": {"description": "What it is to have at least, as a quantity: 2Gi. A volume never shrinks.", "type": "string", "minLength": 1, "maxLength": 40}
		}
	}`)
	resize.shape = func(params json.RawMessage, _ *task.Spec, wrong *fields) {
		var p struct{ Size string }
		if err := json.Unmarshal(params, &p); err != nil {
			wrong.add("/params", "cannot be read")
		} else if size, err := Bytes(p.Size); err != nil || size == 0 {
			wrong.add("/params/size", "is no quantity above zero and up to %s, as 2Gi", task.Quantity(maxBytes))
		}
	}
	resize.Growth = func(params json.RawMessage) task.Growth {
		var p struct{ PVC, Size string }
		_ = json.Unmarshal(params, &p) // shape has refused what cannot be read
		size, _ := Bytes(p.Size)
		return task.Growth{Claim: p.PVC, Bytes: size}
	}
	modify := volumeKind("volume.modify", "Give a volume another VolumeAttributesClass.", `{
		"type": "object", "additionalProperties": false, "required": ["pvc", "class"],
		"properties": {
			"pvc": `+objectNamed("PersistentVolumeClaim of the namespace, bound.")+`,
			"class": `+objectNamed("VolumeAttributesClass. Once a volume has one, it can never go back to none.")+`
		}
	}`)
	snapshot := volumeKind("volume.snapshot", "Take a snapshot of a volume.", `{
		"type": "object", "additionalProperties": false, "required": ["pvc"],
		"properties": {
			"pvc": `+objectNamed("PersistentVolumeClaim of the namespace, bound.")+`,
			"class": `+objectNamed("VolumeSnapshotClass; default, the cluster's for the driver.")+`,
			"rule": `+ruleName+`
		}
	}`)
	remove := volumeKind("volume.snapshot.delete", "Delete a snapshot, and see its content gone too.", `{
		"type": "object", "additionalProperties": false, "required": ["pvc", "snapshot"],
		"properties": {
			"pvc": `+objectNamed("PersistentVolumeClaim that the snapshot is of.")+`,
			"snapshot": `+objectNamed("VolumeSnapshot of the namespace.")+`
		}
	}`)
	return []Kind{resize, modify, snapshot, remove, snapshotCleanup(), snapshotEach()}
}

// snapshotCleanup removes what a rule does not keep.
func snapshotCleanup() Kind {
	k := volumeKind("volume.snapshot.cleanup", "Remove the snapshots that a rule of retention does not keep.", `{
		"type": "object", "additionalProperties": false, "required": ["rule", "keep"],
		"properties": {
			"rule": `+ruleName+`,
			"keep": {
				"description": "What stays: a snapshot goes only if none of these keeps it. Each volume is looked at by itself, and only good snapshots that volume.snapshot took under this rule.",
				"type": "object", "additionalProperties": false,
				"properties": {
					"count": {"description": "The newest so many.", "type": "integer"},
					"age": {"description": "What is not older, in seconds; at least 60.", "type": "number"},
					"hourly": {"description": "The newest of each of the so many latest hours that have one.", "type": "integer"},
					"daily": {"description": "The same by days of the zone.", "type": "integer"},
					"weekly": {"description": "By weeks, from Monday.", "type": "integer"},
					"monthly": {"description": "By months.", "type": "integer"},
					"zone": {"description": "IANA zone of the calendar. Default UTC.", "type": "string", "maxLength": 100},
					"floor": {"description": "The newest so many, whatever their age. Default 1.", "type": "integer"},
					"max_share": {"description": "A run that would remove four or more, and a larger share of a volume's good ones, has to be confirmed. Default 0.5.", "type": "number"}
				}
			},
			"confirm": {"description": "How many removals are confirmed, where the plan looks like a mistake. Default 0.", "type": "integer", "minimum": 0, "maximum": 1000000},
			"dry_run": {"description": "Plan, and remove nothing. Default false.", "type": "boolean"}
		}
	}`)
	k.Queue, k.Lane, k.Mode, k.Spec.Objects = "maintenance", "volume-rules:{namespace}/{params.rule}", task.Latest, nil
	k.shape = func(params json.RawMessage, _ *task.Spec, wrong *fields) {
		var p struct{ Keep retention.Rules }
		err := json.Unmarshal(params, &p)
		if err == nil {
			err = p.Keep.Check()
		}
		var field *retention.FieldError
		switch {
		case errors.As(err, &field):
			wrong.add("/params/keep/"+field.Field, "%s", field.Reason)
		case err != nil:
			wrong.add("/params/keep", "cannot be read")
		}
	}
	return k
}
