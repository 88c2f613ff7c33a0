package kinds

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/pkg/task"
)

// MaxObjects is how many objects a Task may name, those of its kind included.
const MaxObjects = 8

var (
	objectVersion = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?v[0-9][a-z0-9]{0,30}$`)
	objectKind    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
	namedObject   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

// objects are those that the kind names from the parameters, and those that the submit names.
func objects(k Kind, req Request, wrong *fields) []task.Object {
	var all []task.Object
	for _, o := range k.Spec.Objects {
		name, err := fill(o.Name, req)
		if err != nil || !namedObject.MatchString(name) {
			wrong.add("/params", "give no name of a %s", o.Kind)
			continue
		}
		all = append(all, task.Object{APIVersion: o.APIVersion, Kind: o.Kind, Name: name})
	}
	for i, o := range req.Objects {
		at := "/objects/" + strconv.Itoa(i)
		checkObject(o, at, wrong)
		if !namedObject.MatchString(o.Name) {
			wrong.add(at+"/name", "is no name of an object")
		}
		if !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	if len(all) > MaxObjects {
		wrong.add("/objects", "makes more than %d with those of the kind", MaxObjects)
	}
	return all
}

func checkObject(o task.Object, at string, wrong *fields) {
	if !objectVersion.MatchString(o.APIVersion) {
		wrong.add(at+"/apiVersion", "is no version of an API, as v1 or apps/v1")
	}
	if !objectKind.MatchString(o.Kind) {
		wrong.add(at+"/kind", "is no kind of object, as ConfigMap")
	}
}

// checkObjects tries the templates of a kind on a sample.
func (e entry) checkObjects(k *Kind, wrong *fields) {
	if len(e.Objects) > MaxObjects {
		wrong.add("objects", "holds more than %d", MaxObjects)
	}
	k.Spec.Objects = nil
	for i, o := range e.Objects {
		at := "objects." + strconv.Itoa(i)
		var faults fields
		checkObject(o, "", &faults)
		for _, f := range faults {
			wrong.add(at+"."+strings.TrimPrefix(f.Pointer, "/"), "%s", f.Reason)
		}
		for _, hole := range anyHole.FindAllString(o.Name, -1) {
			if !knownHole.MatchString(hole) {
				wrong.add(at+".name", "holds %s, which is neither {namespace} nor {params.FIELD}", hole)
			}
		}
		if !namedObject.MatchString(anyHole.ReplaceAllString(o.Name, "x")) {
			wrong.add(at+".name", "is no name of an object")
		}
		k.Spec.Objects = append(k.Spec.Objects, o)
	}
}
