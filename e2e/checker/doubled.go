package checker

import (
	"fmt"
	"slices"
)

// doubled finds everything that happened twice and must not.
func doubled(h History, runs []*run) []Finding {
	return slices.Concat(attemptsTwice(runs), jobsTwice(h), successesTwice(h), keysTwice(h), repeated(h, runs))
}

// attemptsTwice finds Attempts whose handler began more than once.
func attemptsTwice(runs []*run) (found []Finding) {
	type attempt struct {
		task  string
		fence int64
	}
	first := map[attempt]*run{}
	for _, r := range runs {
		a := attempt{r.task, r.fence}
		if before := first[a]; before != nil {
			found = append(found, Finding{Doubled, fmt.Sprintf("task %s, fence %d ran in pod %s and in pod %s", r.task, r.fence, before.pod, r.pod), []string{r.task}})
			continue
		}
		first[a] = r
		if r.begins > 1 {
			found = append(found, Finding{Doubled, fmt.Sprintf("task %s, fence %d began %d times in pod %s", r.task, r.fence, r.begins, r.pod), []string{r.task}})
		}
	}
	return found
}

// jobsTwice finds Jobs that were created more than once: a name is that of one Attempt.
func jobsTwice(h History) (found []Finding) {
	owner := map[string]string{}
	for id, t := range h.Tasks {
		if t.Attempt != nil {
			owner[t.Attempt.Job.Name] = id
		}
		for _, a := range h.Attempts[id] {
			owner[a.Job.Name] = id
		}
	}
	for _, job := range sorted(h.Created) {
		if n := h.Created[job]; n > 1 {
			f := Finding{Kind: Doubled, Text: fmt.Sprintf("job %s was created %d times", job, n)}
			if id := owner[nameOf(job)]; id != "" {
				f.Tasks = []string{id}
			}
			found = append(found, f)
		}
	}
	return found
}

// successesTwice finds Tasks that went on after they had succeeded.
func successesTwice(h History) (found []Finding) {
	for _, id := range sorted(h.Attempts) {
		all := h.Attempts[id]
		for i, a := range all {
			if a.Outcome == "succeeded" && i < len(all)-1 {
				found = append(found, Finding{Doubled, fmt.Sprintf("task %s was tried again after attempt %d had succeeded", id, a.Number), []string{id}})
				break
			}
		}
	}
	return found
}

// keysTwice finds idempotency keys with more than one Task. The name of a Task is its key, unless it was answered under
// another one: then it took the name over from what it absorbed.
func keysTwice(h History) (found []Finding) {
	answered := map[string]string{}
	for _, s := range h.Submits {
		for _, id := range s.IDs {
			answered[id] = s.Key
		}
	}
	named := map[string][]string{}
	for _, id := range sorted(h.Tasks) {
		t := h.Tasks[id]
		if key := answered[id]; t.Name != "" && t.RetryOf == "" && (key == "" || key == t.Name) {
			named[t.Name] = append(named[t.Name], id)
		}
	}
	seen := map[string]bool{}
	for _, s := range h.Submits {
		ids := slices.Clone(s.IDs)
		if !s.Retry {
			ids = append(ids, named[s.Key]...)
			// One that was absorbed by another Task is that Task.
		}
		slices.Sort(ids)
		if ids = slices.Compact(ids); len(ids) > 1 && !seen[s.Key] {
			seen[s.Key] = true
			found = append(found, Finding{Doubled, fmt.Sprintf("key %s made %d tasks: %v", s.Key, len(ids), ids), ids})
		}
	}
	return found
}

// repeated finds Tasks that were not to be repeated and whose handler began more than once.
func repeated(h History, runs []*run) (found []Finding) {
	once := map[string]bool{}
	for _, s := range h.Submits {
		if !s.Idempotent {
			for _, id := range s.IDs {
				once[id] = true
			}
		}
	}
	began := map[string]*run{}
	for _, r := range runs {
		if before := began[r.task]; before != nil && once[r.task] && before.fence != r.fence {
			found = append(found, Finding{Doubled, fmt.Sprintf("task %s is not idempotent and ran with fence %d and with fence %d", r.task, before.fence, r.fence), []string{r.task}})
		}
		began[r.task] = r
	}
	return found
}
