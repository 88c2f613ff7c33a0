package checker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Files are where a storm left its traces.
type Files struct {
	Submits, Faults, Records, Audit string
}

// Read reads the files; Jobs are counted in the given namespaces.
func Read(f Files, namespaces ...string) (History, error) {
	h := History{Created: map[string]int{}, Tasks: map[string]Task{}, Attempts: map[string][]Attempt{}}
	wanted := map[string]bool{}
	for _, ns := range namespaces {
		wanted[ns] = true
	}
	err := errors.Join(
		each(f.Submits, func(s Submit) { h.Submits = append(h.Submits, s) }),
		each(f.Faults, func(x Fault) { h.Faults = append(h.Faults, x) }),
		each(f.Records, func(r Record) { h.Records = append(h.Records, r) }),
		each(f.Audit, func(e audited) {
			if wanted[e.ObjectRef.Namespace] && e.createdJob() {
				h.Created[e.ObjectRef.Namespace+"/"+e.ObjectRef.Name]++
			}
		}),
	)
	return h, err
}

// audited is one line of the API server's audit log.
type audited struct {
	Stage, Verb, RequestURI string
	ObjectRef               struct{ Resource, Namespace, Name, Subresource string }
	ResponseStatus          struct{ Code int }
}

func (e audited) createdJob() bool {
	return e.Stage == "ResponseComplete" && e.Verb == "create" && e.ObjectRef.Resource == "jobs" && e.ObjectRef.Subresource == "" &&
		e.ResponseStatus.Code == 201 && !strings.Contains(e.RequestURI, "dryRun")
}

// each reads a file of one JSON object a line. The last line may still be being written.
func each[T any](file string, take func(T)) error {
	in, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read the traces of the storm: %w", err)
	}
	defer func() { _ = in.Close() }() // only read
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 8<<20)
	var broken error
	for n := 1; lines.Scan(); n++ {
		if broken != nil {
			return broken
		}
		var value T
		if err := json.Unmarshal(lines.Bytes(), &value); err != nil {
			broken = fmt.Errorf("read %s, line %d: %w", file, n, err)
			continue
		}
		take(value)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

func nameOf(job string) string {
	_, name, _ := strings.Cut(job, "/")
	return name
}
