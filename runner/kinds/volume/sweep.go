package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/pkg/retention"
)

// Bounds of a cleanup: where the driver deletes nothing, it ends after maxStuck + 1 times goneWithin.
const (
	goneWithin = 2 * time.Minute // for one snapshot, before the next is looked at, and at last for all that are going
	maxStuck   = 5               // snapshots that are not gone in time, before no more are deleted
	lookEvery  = 5 * time.Second // at those that are going
	maxListed  = 200             // in the result; the plan has all
	maxNamed   = 1200            // bytes of the names in the message of a failure, and of what is left
)

// sweep is a plan that is carried out.
type sweep struct {
	*world
	plan   retention.Plan
	read   map[string]*unstructured.Unstructured
	byName map[string]retention.Decision // the removals
	going  []*unstructured.Unstructured  // that are being deleted: by an earlier Attempt, and those that take long
	out    Cleaned
}

// carryOut removes one snapshot after the other, each only as it was planned, and sees it gone.
func (s *sweep) carryOut(ctx context.Context) (any, error) {
	removals, stuck := s.plan.Removals(), 0
	s.byName = make(map[string]retention.Decision, len(removals))
	for _, d := range removals {
		s.byName[d.Name] = d
	}
	for i, d := range removals {
		if ctx.Err() != nil || stuck == maxStuck {
			s.out.Left = append(s.out.Left, fmt.Sprintf("%d are left as they were, from %s on", len(removals)-i, d.Name))
			break
		}
		s.say(int64(i), int64(len(removals)), "removing %s: %s", d.Name, d.Reason)
		planned := s.read[d.Name]
		if err := s.removePlanned(ctx, planned); err != nil {
			s.out.Left = append(s.out.Left, fmt.Sprintf("%s: %v", d.Name, err))
			s.log("%s is left: %v", d.Name, err)
			continue
		}
		if err := s.goneSoon(ctx, planned); err != nil {
			s.log("%s is being deleted, and not gone: %v", d.Name, err)
			s.going = append(s.going, planned)
			stuck++
			continue
		}
		s.removed(d.Name)
		step("cleanup.removed")
	}
	s.await(ctx)
	s.out.Removals = first(s.out.Removals)
	s.say(int64(len(removals)), int64(len(removals)), "%d of %d removed, %d good ones are left", s.out.Removed, s.plan.Remove, s.plan.Good-s.out.Removed)
	switch {
	case len(s.out.Left) == 0:
		return s.out, nil
	case ctx.Err() != nil:
		return nil, &stoppedError{cause: context.Cause(ctx), waiting: s.out.account()}
	}
	return nil, failure(reasonIncomplete, "%s", s.out.account())
}

func (s *sweep) removed(name string) {
	d, planned := s.byName[name]
	if !planned {
		return // of an earlier Attempt, which has counted it
	}
	s.out.Removed++
	s.out.Removals = append(s.out.Removals, d)
}

// removePlanned deletes a snapshot that is as it was when the plan was made.
func (s *sweep) removePlanned(ctx context.Context, planned *unstructured.Unstructured) error {
	var is snap
	if err := read(planned, &is); err != nil {
		return err
	}
	if err := s.mayGo(ctx, &is); err != nil {
		return err
	}
	err := s.remove(ctx, s.in(snapshots), planned, true)
	if apierrors.IsConflict(err) {
		return errors.New("it has changed since the plan was made; the next run looks at it anew")
	}
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// goneSoon waits a while for one snapshot.
func (w *world) goneSoon(ctx context.Context, deleted *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeoutCause(ctx, goneWithin, fmt.Errorf("it is not gone after %v", goneWithin))
	defer cancel()
	return w.gone(ctx, deleted)
}

// await waits for all that are going, together: one driver that is stuck holds none of the others up.
func (s *sweep) await(ctx context.Context) {
	bound, cancel := context.WithTimeout(ctx, goneWithin)
	defer cancel()
	for {
		s.going = slices.DeleteFunc(s.going, func(deleted *unstructured.Unstructured) bool {
			gone := s.isGone(ctx, deleted)
			if gone {
				s.removed(deleted.GetName())
			}
			return gone
		})
		if len(s.going) == 0 {
			return
		}
		s.say(0, 0, "waiting for %d snapshots to be gone, as %s", len(s.going), s.going[0].GetName())
		if !wait(bound, lookEvery) {
			break
		}
	}
	for _, deleted := range s.going {
		s.out.Left = append(s.out.Left, deleted.GetName()+" is still being deleted")
	}
}

// isGone looks once. What cannot be read counts as there.
func (w *world) isGone(ctx context.Context, deleted *unstructured.Unstructured) bool {
	found, err := w.get(ctx, w.in(snapshots), deleted.GetName())
	if err != nil || found != nil && found.GetUID() == deleted.GetUID() {
		return false
	}
	var is snap
	if read(deleted, &is) != nil {
		return false
	}
	held, err := w.get(ctx, w.api.Resource(contents), is.content())
	if err != nil || held == nil {
		return err == nil
	}
	var c content
	return read(held, &c) == nil && c.Spec.Of.UID != "" && c.Spec.Of.UID != string(deleted.GetUID())
}

// account says what was removed, and what was not, within the bounds of a message.
func (c Cleaned) account() string {
	text := fmt.Sprintf("%d of %d removed", c.Removed, c.Planned)
	if c.Removed > 0 {
		var names []string
		for _, d := range c.Removals {
			names = append(names, d.Name)
		}
		text += ": " + bounded(names, c.Removed, ", ")
	}
	return text + "; left: " + bounded(c.Left, len(c.Left), "; ")
}

// bounded joins parts as far as maxNamed goes; all counts them, and those that are not given.
func bounded(parts []string, all int, by string) string {
	const longest = 300 // bytes of one
	var text strings.Builder
	for i, part := range parts {
		if text.Len()+min(len(part), longest) > maxNamed {
			parts = parts[:i]
			break
		}
		if i > 0 {
			text.WriteString(by)
		}
		text.WriteString(part[:min(len(part), longest)])
	}
	if all > len(parts) {
		fmt.Fprintf(&text, " and %d more", all-len(parts))
	}
	return text.String()
}
