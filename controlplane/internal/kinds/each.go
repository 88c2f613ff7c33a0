package kinds

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/labels"

	"slipway.dev/slipway/pkg/task"
)

// defaultSpread is over how many seconds the snapshots of one run are spread.
const defaultSpread = 30

// snapshotEach takes a snapshot of each volume that a selector names, each as a Task of its own.
func snapshotEach() Kind {
	k := Kind{
		Kind: task.Kind{
			Name: "volume.snapshot.each", Description: "Take a snapshot of each volume that a selector names, as a task of its own.",
			Executor: task.ExecutorJob, Queue: "volume", Mode: task.Parallel, OnConflict: task.ConflictQueue,
			Supersedes: []string{"volume.snapshot.each"}, Spec: defaults(),
			Params: json.RawMessage(`{
				"type": "object", "additionalProperties": false, "required": ["selector"],
				"properties": {
					"selector": {"description": "Labels of PersistentVolumeClaims of the namespace, as kubectl takes them: app=shop,tier!=cache. Bound ones are taken, 100 at most; none is an error.", "type": "string", "minLength": 1, "maxLength": 1000},
					"class": ` + objectNamed("VolumeSnapshotClass; default, the cluster's for the driver.") + `,
					"rule": ` + ruleName + `,
					"spread": {"description": "Seconds over which the snapshots are spread, each by what follows from its volume's name alone; default 30.", "type": "number", "minimum": 0, "maximum": 3600}
				}
			}`),
		},
		Planner: eachVolume{},
	}
	k.shape = func(params json.RawMessage, _ *task.Spec, wrong *fields) {
		if selector, err := labels.Parse(k.Selector(params)); err != nil {
			wrong.add("/params/selector", "is no selector of labels: %v", err)
		} else if selector.Empty() {
			wrong.add("/params/selector", "selects everything; name the labels of the volumes")
		}
	}
	k.Selector = func(params json.RawMessage) string {
		var p struct{ Selector string }
		_ = json.Unmarshal(params, &p) // the schema refuses what cannot be read
		return p.Selector
	}
	return k
}

// eachVolume plans one volume.snapshot for each claim that was found.
type eachVolume struct{}

// Plan makes the children.
func (eachVolume) Plan(parent Request) ([]Child, error) {
	var p struct {
		Class  string   `json:"class,omitempty"`
		Rule   string   `json:"rule,omitempty"`
		Spread *float64 `json:"spread,omitempty"`
	}
	if err := json.Unmarshal(parent.Params, &p); err != nil {
		return nil, fmt.Errorf("read the parameters: %w", err)
	}
	switch n := len(parent.Found); {
	case n == 0:
		return nil, refused("/params/selector", "matches no bound PersistentVolumeClaim of namespace %s", parent.Namespace)
	case n > MaxChildren:
		return nil, refused("/params/selector", "matches %d PersistentVolumeClaims, at most %d can be: divide them by labels", n, MaxChildren)
	}
	spread := float64(defaultSpread)
	if p.Spread != nil {
		spread = *p.Spread
	}
	all := make([]Child, len(parent.Found))
	for i, pvc := range parent.Found {
		params, err := json.Marshal(struct {
			PVC   string `json:"pvc"`
			Class string `json:"class,omitempty"`
			Rule  string `json:"rule,omitempty"`
		}{pvc, p.Class, p.Rule})
		if err != nil {
			return nil, fmt.Errorf("write the parameters of PVC %s: %w", pvc, err)
		}
		all[i] = Child{Kind: "volume.snapshot", Request: Request{
			Namespace: parent.Namespace, Name: pvc, Params: params, Delay: later(parent.Namespace+"/"+pvc, spread),
		}}
	}
	return all, nil
}

// later is the part of spread seconds that a name always gets, in whole milliseconds.
func later(name string, spread float64) task.Seconds {
	const steps = 10_000
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash never refuses a write
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // neighbours in name land far from each other
	x ^= x >> 31
	return task.Seconds(float64(int64(spread*1000*float64(x%steps)/steps)) / 1000)
}

func refused(pointer, reason string, args ...any) error {
	var wrong fields
	wrong.add(pointer, reason, args...)
	return &InvalidError{Fields: wrong}
}
