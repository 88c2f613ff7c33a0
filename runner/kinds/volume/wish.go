package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/task"
)

// Marks are annotations of a claim that say which Task asked for what stands in its spec: `<task id> <note>`. They are
// written in one patch with the wish, so that each Attempt knows whether an earlier one has asked, and a wish of somebody
// else's is never taken back. They go with a clean end, and stay where something may go on after it.
const (
	markResize = "slipway.dev/resize-asked" // note: what the wish was lowered to; none while it stands
	markModify = "slipway.dev/modify-asked" // note: the class before the first ask; none where there was none
)

const mostConflicts = 5

// mark reads a mark.
func (c *claim) mark(key string) (taskID, note string) {
	taskID, note, _ = strings.Cut(c.Metadata.Annotations[key], " ")
	return taskID, note
}

// wish is what a Task asks of a claim.
type wish struct {
	*world
	name   string      // of the claim
	key    string      // of the mark
	reason task.Reason // of an end after which something may go on
	verb   string      // of what may go on: `grow`

	last  *claim // as last seen
	asked bool   // by this Attempt
	sent  string // the version of the claim that an asking was for whose answer got lost

	gone bool // the claim was deleted

	// Of an end that failed:
	result any    // it came to its end after all
	goesOn string // what may go on although it was taken back
}

// mine says whether this Task has asked, in whatever Attempt.
func (w *wish) mine() bool {
	by, _ := w.last.mark(w.key)
	return by == w.task.ID
}

// amend changes a claim, only as it was seen last, and marks it; without a mark it takes the mark away.
func (w *wish) amend(ctx context.Context, spec map[string]any, mark any) error {
	change := map[string]any{"metadata": map[string]any{"annotations": map[string]any{w.key: mark}}}
	if spec != nil {
		change["spec"] = spec
	}
	return w.patch(ctx, w.in(claims), w.name, w.last.Metadata.ResourceVersion, change)
}

func (w *wish) markOf(note string) string { return strings.TrimSpace(w.task.ID + " " + note) }

// ask writes a wish into the claim, against whoever changes it meanwhile, unless it stands there.
func (w *wish) ask(ctx context.Context, spec map[string]any, note, what string, stands func() bool) error {
	for try := 0; !stands(); try++ {
		err := w.amend(ctx, spec, w.markOf(note))
		switch {
		case err == nil:
			w.asked = true
			w.log("asked for %s", what)
			return nil
		case apierrors.IsConflict(err) && try < mostConflicts:
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
			return handler.Permanent(fmt.Errorf("ask for %s: %w", what, err), reasonRefused)
		default:
			w.sent = w.last.Metadata.ResourceVersion
			return fmt.Errorf("ask for %s: %w", what, err)
		}
		if w.last, err = w.readClaim(ctx, w.name); err != nil {
			return err
		}
	}
	if !w.mine() {
		w.log("the claim asks for %s already, by somebody else: that wish is left as it is", what)
	}
	return nil
}

// fulfilled takes the mark away.
func (w *wish) fulfilled(ctx context.Context) {
	settle, cancel, ok := settling(ctx)
	defer cancel()
	if ok {
		w.unmark(settle)
	}
}

// unmark takes the mark of this Task away. One that stays says who asked last, which is true, and does no harm.
func (w *wish) unmark(ctx context.Context) {
	err := error(nil)
	for range mostConflicts {
		if w.last == nil || !w.mine() {
			return
		}
		if err = w.amend(ctx, nil, nil); !apierrors.IsConflict(err) {
			break
		}
		var found *unstructured.Unstructured
		if found, err = w.get(ctx, w.in(claims), w.name); err != nil || found == nil {
			break
		}
		w.last = &claim{}
		if err = read(found, w.last); err != nil {
			break
		}
	}
	if err != nil && !missing(err) {
		w.log("the annotation %s stays on PVC %s: %v", w.key, w.name, err)
	}
}

// end ends a wish that failed: back takes it back, and is shown the claim until it has seen that nothing of it goes on.
func (w *wish) end(ctx context.Context, failed error, back func(context.Context) (enough bool, err error)) (any, error) {
	settle, cancel, ok := settling(ctx)
	defer cancel()
	if !ok || w.gone {
		return nil, failed
	}
	seen := false
	err := w.follow(settle, w.in(claims), w.name, func(found *unstructured.Unstructured) (bool, error) {
		seen = true
		w.result, w.goesOn, w.gone = nil, "", found == nil
		if w.gone {
			return true, nil
		}
		w.last = &claim{}
		if err := read(found, w.last); err != nil {
			return false, err
		}
		switch {
		case w.mine():
			return back(settle)
		case w.sent == w.last.Metadata.ResourceVersion: // what was asked may come yet; once the claim has changed, it comes too late
			return false, again(w.amend(settle, nil, w.markOf(w.standing())))
		}
		return true, nil
	})
	var stopped *stoppedError
	switch {
	case err == nil && w.gone && w.last == nil: // it never was there
		return nil, failed
	case err == nil && w.gone:
		return nil, w.deleted(failed)
	case err == nil && w.result != nil:
		w.unmark(settle)
		return w.result, nil
	case err == nil && w.goesOn == "":
		w.unmark(settle)
		return nil, failed
	case !seen && !w.asked && w.sent == "" && w.task.Attempt <= 1: // nothing was ever asked
		return nil, failed
	case errors.As(err, &stopped) && w.goesOn != "":
		err = nil // goesOn says it
	}
	return nil, w.left(failed, err)
}

// standing is what the claim asks for, in the words of a note.
func (w *wish) standing() string {
	if w.key == markModify {
		return deref(w.last.Spec.Class)
	}
	return quantity(w.last.requested())
}

// deleted is failed, of a claim that is no more: nothing of it goes on.
func (w *wish) deleted(failed error) error {
	w.log("PVC %s was deleted: there is nothing to take back", w.name)
	return fmt.Errorf("%w (PVC %s was deleted: nothing of it goes on)", failed, w.name)
}

// left is failed with what may go on.
func (w *wish) left(failed, why error) error {
	text := "failed, " + cmp.Or(w.goesOn, "may still "+w.verb) + ": " + failed.Error()
	if why != nil {
		text += " (take it back: " + why.Error() + ")"
	}
	w.log("%s", text)
	return failure(w.reason, "%s", text)
}
