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
	wanted, jobs := map[string]bool{}, jobLog{by: map[string]string{}, gone: map[string]bool{}}
	for _, ns := range namespaces {
		wanted[ns] = true
	}
	err := errors.Join(
		each(f.Submits, func(s Submit) { h.Submits = append(h.Submits, s) }),
		each(f.Faults, func(x Fault) { h.Faults = append(h.Faults, x) }),
		each(f.Records, func(r Record) { h.Records = append(h.Records, r) }),
		each(f.Audit, func(e audited) {
			if name := e.ObjectRef.Namespace + "/" + e.ObjectRef.Name; wanted[e.ObjectRef.Namespace] && jobs.fresh(e, name) {
				h.Created[name]++
			}
		}),
	)
	return h, err
}

// audited is one line of the API server's audit log.
type audited struct {
	Stage, Verb, RequestURI string
	User                    struct{ Username string }
	ObjectRef               struct{ Resource, Namespace, Name, Subresource string }
	ResponseStatus          struct{ Code int }
}

// did reports whether the API server did that to a Job.
func (e audited) did(verb string) bool {
	return e.Stage == "ResponseComplete" && e.Verb == verb && e.ObjectRef.Resource == "jobs" && e.ObjectRef.Subresource == "" &&
		(e.ResponseStatus.Code == 200 || e.ResponseStatus.Code == 201) && !strings.Contains(e.RequestURI, "dryRun")
}

// jobLog follows who made each Job, and whether somebody else has deleted it since.
type jobLog struct {
	by   map[string]string
	gone map[string]bool
}

// fresh reports whether e made a Job for which there is no excuse: a create that was on its way while somebody else
// deleted the Job makes it anew. Its pod has to be refused at the start, which attemptsTwice sees.
func (l jobLog) fresh(e audited, job string) bool {
	switch {
	case e.did("delete"):
		l.gone[job] = l.by[job] != "" && l.by[job] != e.User.Username
	case e.did("create"):
		excused := l.gone[job]
		l.by[job], l.gone[job] = e.User.Username, false
		return !excused
	}
	return false
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
