package volume

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Deleted is the result of volume.snapshot.delete.
type Deleted struct {
	State    string `json:"state"` // `deleted`, `was not there`
	Snapshot string `json:"snapshot"`
	Content  string `json:"content,omitempty"`
}

// deleteSnapshot deletes a snapshot, and has succeeded when its content is gone too.
func (w *world) deleteSnapshot(ctx context.Context) (any, error) {
	var p struct {
		PVC      string `json:"pvc"`
		Snapshot string `json:"snapshot"`
	}
	if err := w.task.Decode(&p); err != nil {
		return nil, err
	}
	found, err := w.askGone(ctx, p.Snapshot, p.PVC)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return w.without(ctx, p.Snapshot)
	}
	if err := w.gone(ctx, found); err != nil {
		return nil, stillGoing(p.Snapshot, err)
	}
	result, err := w.without(ctx, p.Snapshot) // whatever their names, and whether or not the snapshot ever knew of them
	if err != nil {
		return nil, err
	}
	var is snap
	if err := read(found, &is); err != nil {
		return nil, err
	}
	w.say(1, 1, "snapshot %s and its content are gone", p.Snapshot)
	return Deleted{State: "deleted", Snapshot: p.Snapshot, Content: cmp.Or(is.Status.Content, result.Content)}, nil
}

// askGone asks for the deletion of a snapshot as it was looked at: a pin that is set meanwhile holds. Nil: there is none.
func (w *world) askGone(ctx context.Context, name, of string) (*unstructured.Unstructured, error) {
	for try := 0; ; try++ {
		found, err := w.get(ctx, w.in(snapshots), name)
		if err != nil {
			return nil, fmt.Errorf("read snapshot %s: %w", name, err)
		}
		if found == nil {
			return nil, nil
		}
		var is snap
		if err := read(found, &is); err != nil {
			return nil, err
		}
		if pvc := is.Spec.Source.PVC; pvc != of {
			return nil, permanent(reasonRefused, "snapshot %s is not of PVC %s but of %s", name, of, cmp.Or(pvc, "a content that was given"))
		}
		if is.Metadata.DeletionTimestamp != nil { // somebody has, or an earlier Attempt
			return found, nil
		}
		if err := w.mayGo(ctx, &is); err != nil {
			return nil, err
		}
		w.log("deleting snapshot %s", name)
		err = w.remove(ctx, w.in(snapshots), found, true)
		if apierrors.IsConflict(err) && try < mostConflicts {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("delete snapshot %s: %w", name, err)
		}
		step("delete.asked")
		return found, nil
	}
}

// stillGoing says that a deletion, which Kubernetes never takes back, goes on.
func stillGoing(name string, err error) error {
	return fmt.Errorf("snapshot %s is still being deleted: %w", name, err)
}

// mayGo is an error where a snapshot must not, or cannot, be deleted.
func (w *world) mayGo(ctx context.Context, is *snap) error {
	name := is.Metadata.Name
	if is.pinned() {
		return permanent(reasonRefused, "snapshot %s is pinned by %s", name, labelPinned)
	}
	users, err := w.users(ctx)
	if err != nil {
		return err
	}
	if by := users[name]; by != "" {
		return failure(reasonInUse, "snapshot %s is in use by PVC %s", name, by)
	}
	found, err := w.get(ctx, w.api.Resource(contents), is.content())
	if err != nil {
		return fmt.Errorf("read content %s: %w", is.content(), err)
	}
	if found == nil {
		return nil
	}
	var c content
	if err := read(found, &c); err != nil {
		return err
	}
	if c.Spec.Policy == "Retain" {
		return permanent(reasonRefused, "content %s of snapshot %s has the deletionPolicy Retain: deleting the snapshot would leave it behind", is.content(), name)
	}
	return nil
}

// users are the claims that are being made from snapshots, by the snapshot.
func (w *world) users(ctx context.Context) (map[string]string, error) {
	all, err := w.list(ctx, w.in(claims), metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look for claims that are made from a snapshot: %w", err)
	}
	by := map[string]string{}
	for i := range all {
		var c claim
		if err := read(&all[i], &c); err != nil {
			return nil, err
		}
		for _, from := range []*source{c.Spec.DataSource, c.Spec.Source} {
			if from != nil && from.Kind == "VolumeSnapshot" && c.Status.Phase != "Bound" {
				by[from.Name] = c.Metadata.Name
			}
		}
	}
	return by, nil
}

// without ends the deletion of a snapshot that is not there any more: its contents may still be going.
func (w *world) without(ctx context.Context, name string) (Deleted, error) {
	state := Deleted{State: "was not there", Snapshot: name}
	of, err := w.contentsOf(ctx, name)
	if err != nil {
		return state, err
	}
	for _, c := range of {
		if err := w.contentGone(ctx, c.Metadata.Name, c.Spec.Of.UID); err != nil {
			return state, stillGoing(name, err)
		}
		state.State, state.Content = "deleted", c.Metadata.Name
	}
	return state, nil
}

// contentsOf are the contents that were made for a snapshot of this namespace.
func (w *world) contentsOf(ctx context.Context, name string) ([]content, error) {
	all, err := w.list(ctx, w.api.Resource(contents), metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look for contents of snapshot %s: %w", name, err)
	}
	var of []content
	for i := range all {
		var c content
		if err := read(&all[i], &c); err != nil {
			return nil, err
		}
		if c.Spec.Of.Namespace == w.task.Namespace && c.Spec.Of.Name == name {
			of = append(of, c)
		}
	}
	return of, nil
}
