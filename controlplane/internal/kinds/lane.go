package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"

	"slipway.dev/slipway/pkg/task"
)

// laneKey is `family:namespace/name`.
var laneKey = regexp.MustCompile(`^([a-z][a-z0-9-]{0,39}):([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)/([A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?)$`)

// privateFamily begins the lanes that the store makes for Tasks without one.
const privateFamily = "task"

// lane finds the lane of a Task and how it is treated. A kind with a template has its lane from there; for others it
// is what the submit gives. Without a lane there is no order.
func lane(k Kind, req Request, wrong *fields) (string, task.Mode) {
	key, mode := req.Lane, req.Mode
	if k.Lane != "" {
		made, err := fill(k.Lane, req)
		switch {
		case err != nil:
			wrong.add("/params", "gives no lane: %v", err)
			return "", k.Mode
		case key != "" && key != made:
			wrong.add("/lane", "follows from the parameters of kind %s", k.Name)
		case mode != "" && mode != k.Mode:
			wrong.add("/mode", "is always %s for kind %s", k.Mode, k.Name)
		}
		key, mode = made, k.Mode
	}
	if key == "" {
		if mode != "" && mode != task.Parallel {
			wrong.add("/mode", "needs a lane")
		}
		return "", task.Parallel
	}
	parts := laneKey.FindStringSubmatch(key)
	switch {
	case parts == nil:
		wrong.add("/lane", "is not of the form family:namespace/name")
	case parts[1] == privateFamily:
		wrong.add("/lane", "is of a family that Slipway uses itself")
	case parts[2] != req.Namespace:
		wrong.add("/lane", "belongs to another namespace than the task")
	case mode == task.Parallel:
		wrong.add("/mode", "is parallel, which has no lane")
	}
	if mode == "" {
		mode = task.Strict
	}
	return key, mode
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// fill puts the namespace and fields of the parameters into a lane template.
func fill(template string, req Request) (string, error) {
	var errs []error
	key := placeholder.ReplaceAllStringFunc(template, func(hole string) string {
		name := strings.Trim(hole, "{}")
		if name == "namespace" {
			return req.Namespace
		}
		name, parts := partition(name)
		field, ok := strings.CutPrefix(name, "params.")
		if !ok {
			errs = append(errs, fmt.Errorf("the kind's template holds an unknown %s", hole))
			return ""
		}
		value, err := textField(req.Params, field)
		if err != nil {
			errs = append(errs, err)
		}
		if parts > 0 {
			return partOf(value, parts)
		}
		return value
	})
	return key, errors.Join(errs...)
}

// partitionHole makes lanes that are coarser than what they are about: `partition params.pvc 8`.
var partitionHole = regexp.MustCompile(`^partition (params\.[A-Za-z0-9_-]+) ([1-9][0-9]{0,3})$`)

// partition reads such a hole; any other is given back, with 0 parts.
func partition(hole string) (name string, parts int) {
	m := partitionHole.FindStringSubmatch(hole)
	if m == nil {
		return hole, 0
	}
	parts, err := strconv.Atoi(m[2])
	if err != nil {
		return hole, 0
	}
	return m[1], parts
}

// partOf names the part that a value falls into, by its FNV-1a hash. The number of parts is in the name: with another
// number the lanes are others, and the store takes those only once nothing is open in the old ones.
func partOf(value string, parts int) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(value)) // it never fails
	return fmt.Sprintf("%d-of-%d", h.Sum64()%uint64(parts), parts)
}

func textField(params json.RawMessage, name string) (string, error) {
	var all map[string]json.RawMessage
	var value string
	if json.Unmarshal(params, &all) != nil || json.Unmarshal(all[name], &value) != nil || value == "" {
		return "", fmt.Errorf("%s is no text", name)
	}
	return value, nil
}
