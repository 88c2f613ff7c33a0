package store

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"slipway.dev/slipway/pkg/task"
)

// entry is one Task of a batch, with its children laid out flat.
type entry struct {
	ord     int // in the flat list
	top     int // of its item in the batch
	item    *Item
	pointer string
	id      string
	parent  int    // ord of its parent; -1: none
	lane    string // empty: a private one, named by the database
	outside string // why it does not enter its lane yet; empty: it does

	needs    []need
	settle   bool // a nudge is due: what it waits for has ended already
	retryOf  *int64
	root     *int64
	front    *int64 // its place, where it replaces
	absorbed int    // later items of this batch that went into it
	into     *entry // the entry of this batch that it went into
	tail     *int64 // the stored Task that it went into
	tailID   string
}

type need struct {
	key *int64 // a stored Task
	id  string // its id, or that of a Task of this batch
}

// Gates that keep a Task outside its lane, in the order in which they open.
const (
	outsideParent     = "parent"
	outsideDependency = "dependency"
	outsideDelay      = "delay"
)

// flatten lays out a batch and refuses what can never work, by pure rules.
func flatten(b Batch) ([]*entry, FieldErrors) {
	var all []*entry
	var errs FieldErrors
	add := func(item *Item, top, parent int, pointer string) *entry {
		e := &entry{ord: len(all), top: top, item: item, pointer: pointer, id: item.Task.ID, parent: parent, lane: item.Task.Lane}
		if e.id == "" {
			e.id = newID()
		}
		if item.Task.Mode == task.Parallel {
			e.lane = ""
		}
		errs = append(errs, checkItem(*item, b, pointer)...)
		all = append(all, e)
		return e
	}
	const mostChildren = 100
	for i := range b.Items {
		pointer := fmt.Sprintf("/items/%d", i)
		top := add(&b.Items[i], i, -1, pointer)
		if n := len(b.Items[i].Children); n > mostChildren {
			errs = append(errs, FieldError{pointer + "/children", fmt.Sprintf("has %d entries, at most %d are allowed", n, mostChildren)})
		}
		for c := range b.Items[i].Children {
			child := &b.Items[i].Children[c]
			e := add(child, i, top.ord, fmt.Sprintf("%s/children/%d", pointer, c))
			errs = append(errs, checkChild(top, e)...)
		}
	}
	errs = append(errs, checkTogether(all)...)
	return all, errs
}

// newID makes an id whose order is of no meaning; version 7 keeps the index's inserts together.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

func checkItem(item Item, b Batch, pointer string) FieldErrors {
	var errs FieldErrors
	say := func(field, reason string) { errs = append(errs, FieldError{pointer + field, reason}) }
	t := item.Task
	if t.ID != "" && uuid.Validate(t.ID) != nil {
		say("/id", "is not a UUID")
	}
	if t.Kind == "" {
		say("/kind", "is missing")
	}
	if t.Namespace == "" {
		say("/namespace", "is missing")
	}
	if t.Mode != task.Parallel && t.Lane == "" {
		say("/lane", "is missing for mode "+string(t.Mode))
	}
	if strings.HasPrefix(t.Lane, privatePrefix) {
		say("/lane", "begins with the reserved "+privatePrefix)
	}
	if utf8.RuneCountInString(t.Name) > maxName {
		say("/name", fmt.Sprintf("is longer than %d characters", maxName))
	}
	for field, text := range map[string]string{"/name": t.Name, "/lane": t.Lane, "/kind": t.Kind, "/namespace": t.Namespace} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			say(field, "holds what cannot be stored")
		}
	}
	if len(t.Labels) > maxLabels {
		say("/labels", fmt.Sprintf("has more than %d entries", maxLabels))
	}
	for k, v := range t.Labels {
		if len(k)+len(v) > maxLabel {
			say("/labels", fmt.Sprintf("has one longer than %d bytes", maxLabel))
		}
		if !utf8.ValidString(k+v) || strings.ContainsRune(k+v, 0) || strings.Contains(k, "=") {
			say("/labels", "holds what cannot be stored")
		}
	}
	for field, text := range map[string]string{"/lane": t.Lane, "/kind": t.Kind, "/namespace": t.Namespace, "/idempotency_key": item.Key} {
		if len(text) > maxKey {
			say(field, fmt.Sprintf("is longer than %d bytes", maxKey))
		}
	}
	if len(t.Params) > 0 {
		if why := unstorable(t.Params, maxParams); why != "" {
			say("/params", why)
		}
	}
	if b.Key != "" && item.Key != "" {
		say("/idempotency_key", "is given for the batch as a whole as well")
	}
	if item.Key != "" && b.Caller == "" {
		say("/idempotency_key", "needs a caller")
	}
	return errs
}

// privatePrefix begins the names of lanes that are made for one Task.
const privatePrefix = "task:"

// family ranks: a child's lane ranks below its parent's, so that no two composites can wait for each other.
var familyRank = map[string]int{"branch": 3, "backup": 2, "compute": 1, "volume": 1}

func checkChild(parent, child *entry) FieldErrors {
	var errs FieldErrors
	if len(child.item.Children) > 0 {
		errs = append(errs, FieldError{child.pointer + "/children", "a child cannot have children"})
	}
	if child.item.Key != "" {
		errs = append(errs, FieldError{child.pointer + "/idempotency_key", "belongs to the parent"})
	}
	if child.lane == "" || parent.lane == "" {
		return errs // nobody else waits for a private lane
	}
	of := func(lane string) string { family, _, _ := strings.Cut(lane, ":"); return family }
	if p, c := of(parent.lane), of(child.lane); child.lane == parent.lane || familyRank[c] >= familyRank[p] {
		errs = append(errs, FieldError{child.pointer + "/lane", fmt.Sprintf("lane family %q does not rank below the parent's %q", c, p)})
	}
	return errs
}

// checkTogether refuses ids and keys that stand twice, replacing items that share a lane, and circles.
func checkTogether(all []*entry) FieldErrors {
	var errs FieldErrors
	ids, keys, lanes := map[string]*entry{}, map[string]*entry{}, map[string]*entry{}
	for _, e := range all {
		if was, twice := ids[e.id]; twice {
			errs = append(errs, FieldError{e.pointer + "/id", "is that of " + was.pointer})
		}
		ids[e.id] = e
		if k := e.item.Key; k != "" {
			if was, twice := keys[k]; twice {
				errs = append(errs, FieldError{e.pointer + "/idempotency_key", "is that of " + was.pointer})
			}
			keys[k] = e
		}
		if e.lane == "" {
			continue
		}
		if was, twice := lanes[e.lane]; twice && (e.item.OnConflict == task.ConflictReplace || was.item.OnConflict == task.ConflictReplace) {
			errs = append(errs, FieldError{e.pointer + "/on_conflict", "replace cannot share a lane with " + was.pointer})
		}
		lanes[e.lane] = e
	}
	if e := circle(all, ids); e != nil {
		errs = append(errs, FieldError{e.pointer + "/after", "waits for itself in a circle"})
	}
	return errs
}

// circle finds an entry that can never run. Each Task is two nodes, its start and its end: an end needs its own start
// and the ends of its children, a start needs the ends of what it waits for, the start of its parent, and the end of what
// goes into its lane just before it.
func circle(all []*entry, ids map[string]*entry) *entry {
	n := len(all)
	start, end := func(e *entry) int { return e.ord }, func(e *entry) int { return n + e.ord }
	needs := make([][]int, 2*n)
	before := map[string]*entry{}
	for _, e := range all {
		if e.lane != "" && e.parent < 0 && len(e.item.After) == 0 && e.item.RunAt.IsZero() && e.item.Delay == 0 {
			if was := before[e.lane]; was != nil {
				needs[start(e)] = append(needs[start(e)], end(was))
			}
			before[e.lane] = e
		}
		needs[end(e)] = append(needs[end(e)], start(e))
		if e.parent >= 0 {
			p := all[e.parent]
			needs[start(e)] = append(needs[start(e)], start(p))
			needs[end(p)] = append(needs[end(p)], end(e))
		}
		for _, id := range e.item.After {
			if other, ours := ids[id]; ours {
				needs[start(e)] = append(needs[start(e)], end(other))
			}
		}
	}
	const open, done = 1, 2
	mark := make([]int, 2*n)
	var visit func(node int) bool
	visit = func(node int) bool {
		switch mark[node] {
		case open:
			return true
		case done:
			return false
		}
		mark[node] = open
		for _, next := range needs[node] {
			if visit(next) {
				return true
			}
		}
		mark[node] = done
		return false
	}
	for node := range needs {
		if visit(node) {
			return all[node%n]
		}
	}
	return nil
}
