package volume

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/pkg/handler"
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
	m := &change{world: w, name: p.PVC, class: p.Class}
	result, err := m.carryOut(ctx)
	if err == nil {
		return result, nil
	}
	return m.putBack(ctx, err)
}

// change is one wish for another class.
type change struct {
	*world
	name, class string

	asked bool
	from  string // the class that the volume had
	last  *claim
}

func (m *change) carryOut(ctx context.Context) (any, error) {
	c, err := m.readClaim(ctx, m.name)
	if err != nil {
		return nil, err
	}
	m.from, m.last = deref(c.Status.Class), c
	if m.met() {
		return Modified{State: "already met", Class: m.class}, nil
	}
	for try := 0; deref(m.last.Spec.Class) != m.class; try++ {
		m.asked = true
		err := m.patch(ctx, m.in(claims), m.name, m.last.Metadata.ResourceVersion, ofClass(m.class))
		if err == nil {
			m.log("asked for class %s, the volume has %s", m.class, cmp.Or(m.from, "none"))
			break
		}
		if !apierrors.IsConflict(err) || try == 5 {
			if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
				m.asked = false
				return nil, handler.Permanent(fmt.Errorf("ask for class %s: %w", m.class, err), reasonRefused)
			}
			return nil, fmt.Errorf("ask for class %s: %w", m.class, err)
		}
		if m.last, err = m.readClaim(ctx, m.name); err != nil {
			return nil, err
		}
	}
	m.asked = true
	step("modify.asked")
	err = m.follow(ctx, m.in(claims), m.name, func(found *unstructured.Unstructured) (bool, error) { return m.see(ctx, found) })
	if err != nil {
		return nil, err
	}
	return Modified{State: "changed", Class: m.class, From: m.from}, nil
}

func ofClass(name string) map[string]any {
	return map[string]any{"spec": map[string]any{"volumeAttributesClassName": name}}
}

// met says that the volume has the class and nothing is pending.
func (m *change) met() bool {
	s := m.last.Status
	_, changing := m.last.standing("ModifyingVolume")
	return deref(s.Class) == m.class && deref(m.last.Spec.Class) == m.class && s.Modifying == nil && !changing
}

func (m *change) see(ctx context.Context, found *unstructured.Unstructured) (bool, error) {
	if found == nil {
		return false, permanent(reasonMissing, "PVC %s was deleted while its class was changed", m.name)
	}
	c := &claim{}
	if err := read(found, c); err != nil {
		return false, err
	}
	m.last = c
	if err := c.usable(); err != nil {
		return false, err
	}
	if m.met() {
		return true, nil
	}
	if is := deref(c.Spec.Class); is != m.class {
		return false, permanent(reasonRefused, "somebody else asks for class %s now", cmp.Or(is, "none"))
	}
	trouble := m.trouble(ctx)
	if c.Status.Modifying == nil {
		m.say(0, 1, "class %s, waiting for the resizer to look at class %s%s", cmp.Or(m.from, "none"), m.class, after(trouble))
		return false, nil
	}
	switch s := c.Status.Modifying; s.Status {
	case "Infeasible":
		return false, permanent(reasonDriver, "the driver cannot: %s", cmp.Or(trouble, "class "+s.Target+" is infeasible"))
	case "Pending":
		m.say(0, 1, "class %s, waiting for class %s, which is missing or cannot be used%s", cmp.Or(m.from, "none"), m.class, after(trouble))
	default:
		m.say(0, 1, "class %s, waiting for the driver to apply class %s%s", cmp.Or(m.from, "none"), s.Target, after(trouble))
	}
	return false, nil
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

// putBack ends a change that failed.
func (m *change) putBack(ctx context.Context, failed error) (any, error) {
	settle, cancel, ok := settling(ctx)
	defer cancel()
	if !ok || !m.asked {
		return nil, failed
	}
	var stop error
	for range 5 {
		found, err := m.get(settle, m.in(claims), m.name)
		if err != nil || found == nil {
			return nil, m.left(failed, "may still change", err)
		}
		c := &claim{}
		if err := read(found, c); err != nil {
			return nil, m.left(failed, "may still change", err)
		}
		m.last = c
		if m.met() {
			return Modified{State: "changed", Class: m.class, From: m.from}, nil // it came to its end meanwhile
		}
		if deref(c.Spec.Class) != m.class {
			return nil, failed // somebody else wants something else
		}
		old := deref(c.Status.Class)
		if old == "" {
			return nil, m.left(failed, "may still change to class "+m.class+": a claim never goes back to no class", nil)
		}
		stop = m.patch(settle, m.in(claims), m.name, c.Metadata.ResourceVersion, ofClass(old))
		if stop == nil {
			m.log("the claim asks for class %s again", old)
			if s := c.Status.Modifying; s != nil && s.Status == "InProgress" {
				return nil, m.left(failed, "may still change to class "+m.class+" before it goes back to "+old+": the driver has not answered", nil)
			}
			return nil, failed
		}
		if !apierrors.IsConflict(stop) {
			break
		}
	}
	return nil, m.left(failed, "may still change to class "+m.class, stop)
}

func (m *change) left(failed error, goesOn string, why error) error {
	text := "failed, " + goesOn + ": " + failed.Error()
	if why != nil {
		text += " (put the class back: " + why.Error() + ")"
	}
	m.log("%s", text)
	return failure(reasonMayChange, "%s", text)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
