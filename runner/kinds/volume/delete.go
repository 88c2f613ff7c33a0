package volume

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	found, err := w.get(ctx, w.in(snapshots), p.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", p.Snapshot, err)
	}
	if found == nil {
		return w.without(ctx, p.Snapshot)
	}
	var is snap
	if err := read(found, &is); err != nil {
		return nil, err
	}
	if of := is.Spec.Source.PVC; of != p.PVC {
		return nil, permanent(reasonRefused, "snapshot %s is not of PVC %s but of %s", p.Snapshot, p.PVC, cmp.Or(of, "a content that was given"))
	}
	if is.Metadata.DeletionTimestamp == nil { // else somebody has, or an earlier Attempt
		if err := w.mayGo(ctx, &is); err != nil {
			return nil, err
		}
		w.log("deleting snapshot %s", p.Snapshot)
		if err := w.remove(ctx, w.in(snapshots), found, false); err != nil {
			return nil, fmt.Errorf("delete snapshot %s: %w", p.Snapshot, err)
		}
		step("delete.asked")
	}
	if err := w.gone(ctx, found); err != nil {
		return nil, stillGoing(p.Snapshot, err)
	}
	w.say(1, 1, "snapshot %s and its content are gone", p.Snapshot)
	return Deleted{State: "deleted", Snapshot: p.Snapshot, Content: is.Status.Content}, nil
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
	if is.Status.Content == "" {
		return nil
	}
	found, err := w.get(ctx, w.api.Resource(contents), is.Status.Content)
	if err != nil {
		return fmt.Errorf("read content %s: %w", is.Status.Content, err)
	}
	if found == nil {
		return nil
	}
	var c content
	if err := read(found, &c); err != nil {
		return err
	}
	if c.Spec.Policy == "Retain" {
		return permanent(reasonRefused, "content %s of snapshot %s has the deletionPolicy Retain: deleting the snapshot would leave it behind", is.Status.Content, name)
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

// without ends the deletion of a snapshot that is not there: an earlier Attempt may have deleted it, and its content still
// be going.
func (w *world) without(ctx context.Context, name string) (any, error) {
	of, err := w.contentsOf(ctx, name)
	if err != nil {
		return nil, err
	}
	state := Deleted{State: "was not there", Snapshot: name}
	for _, c := range of {
		if c.Metadata.DeletionTimestamp == nil {
			return nil, permanent(reasonLeftover, "snapshot %s is gone, its content %s is kept (deletionPolicy %s)", name, c.Metadata.Name, c.Spec.Policy)
		}
		if err := w.contentGone(ctx, c.Metadata.Name, ""); err != nil {
			return nil, stillGoing(name, err)
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
