package volume

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Modified is the result of volume.modify.
type Modified struct {
	State string `json:"state"` // `already met`, `changed`
	Class string `json:"class"`
	From  string `json:"from,omitempty"`
}

// modify gives a volume another VolumeAttributesClass.
func (w *world) modify(ctx context.Context) (any, error) {
	var p struct {
		PVC   string `json:"pvc"`
		Class string `json:"class"`
	}
	if err := w.task.Decode(&p); err != nil {
		return nil, err
	}
	m := &change{wish: &wish{world: w, name: p.PVC, key: markModify, reason: reasonMayChange, verb: "change"}, class: p.Class}
	result, err := m.carryOut(ctx)
	if err != nil {
		return m.end(ctx, err, m.back)
	}
	m.fulfilled(ctx)
	return result, nil
}

// change is one wish for another class.
type change struct {
	*wish
	class string
}

func (m *change) carryOut(ctx context.Context) (any, error) {
	c, err := m.readClaim(ctx, m.name)
	if err != nil {
		return nil, err
	}
	m.last = c
	from := m.from()
	if m.met() {
		if m.mine() { // an earlier Attempt asked
			return m.changed(from), nil
		}
		return Modified{State: "already met", Class: m.class}, nil
	}
	stands := func() bool { return deref(m.last.Spec.Class) == m.class }
	if err := m.ask(ctx, ofClass(m.class), from, "class "+m.class+" in place of "+cmp.Or(from, "none"), stands); err != nil {
		return nil, err
	}
	step("modify.asked")
	var result any
	err = m.follow(ctx, m.in(claims), m.name, func(found *unstructured.Unstructured) (bool, error) {
		result, err = m.see(ctx, found)
		return result != nil, err
	})
	return result, err
}

// from is the class that the volume had before this Task first asked for another.
func (m *change) from() string {
	if by, class := m.last.mark(m.key); by == m.task.ID {
		return class
	}
	return deref(m.last.Status.Class)
}

func (m *change) changed(from string) Modified {
	return Modified{State: "changed", Class: m.class, From: from}
}

func ofClass(name string) map[string]any { return map[string]any{"volumeAttributesClassName": name} }

// met says that the volume has the class and nothing is pending.
func (m *change) met() bool {
	s := m.last.Status
	_, changing := m.last.standing("ModifyingVolume")
	return deref(s.Class) == m.class && deref(m.last.Spec.Class) == m.class && s.Modifying == nil && !changing
}

// see looks at the claim as it is now: a result or an error says that there is nothing more to wait for.
func (m *change) see(ctx context.Context, found *unstructured.Unstructured) (any, error) {
	if m.gone = found == nil; m.gone {
		return nil, permanent(reasonMissing, "PVC %s was deleted while its class was changed", m.name)
	}
	c := &claim{}
	if err := read(found, c); err != nil {
		return nil, err
	}
	from := m.from()
	m.last = c
	if err := c.usable(); err != nil {
		return nil, err
	}
	if m.met() {
		return m.changed(from), nil
	}
	if is := deref(c.Spec.Class); is != m.class {
		return nil, permanent(reasonRefused, "somebody else asks for class %s now", cmp.Or(is, "none"))
	}
	trouble := m.trouble(ctx)
	if c.Status.Modifying == nil {
		m.say(0, 1, "class %s, waiting for the resizer to look at class %s%s", cmp.Or(from, "none"), m.class, after(trouble))
		return nil, nil
	}
	switch s := c.Status.Modifying; {
	case s.Status == "Infeasible" && s.Target == m.class: // else that was another wish
		return nil, permanent(reasonDriver, "the driver cannot: %s", cmp.Or(trouble, "class "+s.Target+" is infeasible"))
	case s.Status == "Pending":
		m.say(0, 1, "class %s, waiting for class %s, which is missing or cannot be used%s", cmp.Or(from, "none"), m.class, after(trouble))
	default:
		m.say(0, 1, "class %s, waiting for the driver to apply class %s%s", cmp.Or(from, "none"), s.Target, after(trouble))
	}
	return nil, nil
}

func after(trouble string) string {
	if trouble == "" {
		return ""
	}
	return ": " + trouble
}

func (m *change) trouble(ctx context.Context) string {
	if message, ok := m.last.standing("ModifyVolumeError"); ok {
		return cmp.Or(message, "ModifyVolumeError")
	}
	return m.warning(ctx, m.last.Metadata)
}

// back puts the class of before back, and looks on until that is what the resizer works at.
func (m *change) back(ctx context.Context) (enough bool, err error) {
	old := m.from()
	switch asks := deref(m.last.Spec.Class); {
	case m.met():
		m.result = m.changed(old) // it came to its end meanwhile
	case asks == m.class && old == "":
		m.goesOn = "may still change to class " + m.class + ": a claim never goes back to no class"
	case asks == m.class:
		m.goesOn = "may still change to class " + m.class
		if err := m.amend(ctx, ofClass(old), m.markOf(old)); err != nil {
			return false, again(err)
		}
		m.log("the claim asks for class %s again", old)
		return false, nil // the watch shows what comes of it
	case asks == old:
		if s := m.last.Status.Modifying; s != nil && s.Status == "InProgress" && s.Target == m.class {
			m.goesOn = "may still change to class " + m.class + " before it goes back to " + old + ": the driver has not answered"
			m.say(0, 0, "the claim asks for class %s again; waiting for the resizer to give up class %s", old, m.class)
			return false, nil
		}
	}
	return true, nil // else somebody else wants something else
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
