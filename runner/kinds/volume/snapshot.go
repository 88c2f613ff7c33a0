package volume

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Labels and the mark of snapshots.
const (
	labelManager = "app.kubernetes.io/managed-by" // slipway
	labelTask    = "slipway.dev/task"             // the Task that took it
	labelPVC     = "slipway.dev/pvc-uid"          // the claim that it was taken of: one that is made again has another
	labelRule    = "slipway.dev/retention"        // the rule that may remove it; without one, none does
	labelPinned  = "slipway.dev/pinned"           // as a label or an annotation, with any value but false: nothing removes it
	manager      = "slipway"
)

// errorStands is how long an error of the driver may stand on a snapshot before the Attempt ends by it. Drivers try on by
// themselves, and some succeed.
const errorStands = time.Minute

// snap is what is read of a VolumeSnapshot.
type snap struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Source struct {
			PVC     string `json:"persistentVolumeClaimName"`
			Content string `json:"volumeSnapshotContentName"`
		} `json:"source"`
	} `json:"spec"`
	Status struct {
		Ready   *bool              `json:"readyToUse"`
		Content string             `json:"boundVolumeSnapshotContentName"`
		Created *metav1.Time       `json:"creationTime"`
		Size    *resource.Quantity `json:"restoreSize"`
		Error   *snapError         `json:"error"`
	} `json:"status"`
}

type snapError struct {
	Message string `json:"message"`
}

func (s *snap) ready() bool { return s.Status.Ready != nil && *s.Status.Ready && s.Status.Error == nil }

// content is the name of the content: until a snapshot is bound, the one that was given, or that the snapshot controller
// gives it.
func (s *snap) content() string {
	return cmp.Or(s.Status.Content, s.Spec.Source.Content, "snapcontent-"+string(s.Metadata.UID))
}

func (s *snap) pinned() bool {
	for _, marks := range []map[string]string{s.Metadata.Labels, s.Metadata.Annotations} {
		if value, marked := marks[labelPinned]; marked && value != "false" {
			return true
		}
	}
	return false
}

// Taken is the result of volume.snapshot.
type Taken struct {
	Snapshot string `json:"snapshot"`
	PVC      string `json:"pvc"`
	Content  string `json:"content,omitempty"`
	Size     string `json:"size,omitempty"` // the least size of a volume that is restored from it
	TakenAt  string `json:"taken_at,omitempty"`
}

// taking is one snapshot on its way.
type taking struct {
	*world
	pvc, class, rule, name string

	wrong time.Time // since when an error stands
}

// snapshot takes a snapshot of a volume. Its name follows from the Task, so that no restart makes a second one.
func (w *world) snapshot(ctx context.Context) (any, error) {
	var p struct {
		PVC   string `json:"pvc"`
		Class string `json:"class"`
		Rule  string `json:"rule"`
	}
	if err := w.task.Decode(&p); err != nil {
		return nil, err
	}
	s := &taking{world: w, pvc: p.PVC, class: p.Class, rule: p.Rule, name: SnapshotName(p.PVC, w.task.ID)}
	result, err := s.take(ctx)
	if err == nil {
		return result, nil
	}
	return nil, s.discard(ctx, err)
}

// SnapshotName is the name of the one snapshot that a Task takes.
func SnapshotName(pvc, taskID string) string {
	const most = 26 // with a uuid, a valid label
	return strings.TrimRight(pvc[:min(len(pvc), most)], "-.") + "-" + taskID
}

func (s *taking) take(ctx context.Context) (any, error) {
	if err := s.create(ctx); err != nil {
		return nil, err
	}
	step("snapshot.created")
	var result *Taken
	err := s.follow(ctx, s.in(snapshots), s.name, func(found *unstructured.Unstructured) (bool, error) {
		var err error
		result, err = s.see(ctx, found)
		return result != nil, err
	})
	return result, err
}

// create makes the snapshot where an earlier Attempt has not.
func (s *taking) create(ctx context.Context) error {
	for range 3 {
		found, err := s.get(ctx, s.in(snapshots), s.name)
		if err != nil {
			return fmt.Errorf("look for snapshot %s: %w", s.name, err)
		}
		if found != nil && found.GetLabels()[labelTask] != s.task.ID {
			return permanent(reasonRefused, "snapshot %s is there and not of this task", s.name)
		}
		if found != nil && found.GetDeletionTimestamp() == nil {
			return nil
		}
		if found != nil { // an earlier Attempt has given it up
			if err := s.gone(ctx, found); err != nil {
				return err
			}
		}
		of, err := s.readClaim(ctx, s.pvc)
		if err != nil {
			return err
		}
		if err := s.checkClass(ctx); err != nil {
			return err
		}
		err = s.world.create(ctx, s.in(snapshots), s.object(of.Metadata.UID))
		if err == nil {
			s.log("asked for snapshot %s of PVC %s", s.name, s.pvc)
			return nil
		}
		if !apierrors.IsAlreadyExists(err) { // the answer to a create may get lost, or an earlier one come late
			return fmt.Errorf("create snapshot %s: %w", s.name, err)
		}
	}
	return fmt.Errorf("create snapshot %s: it comes and goes", s.name)
}

func (s *taking) checkClass(ctx context.Context) error {
	if s.class == "" {
		return nil
	}
	found, err := s.get(ctx, s.api.Resource(snapshotClasses), s.class)
	if err != nil {
		return fmt.Errorf("read VolumeSnapshotClass %s: %w", s.class, err)
	}
	if found == nil {
		return permanent(reasonMissing, "there is no VolumeSnapshotClass %s", s.class)
	}
	return nil
}

func (s *taking) object(of types.UID) *unstructured.Unstructured {
	labels := map[string]any{labelManager: manager, labelTask: s.task.ID, labelPVC: string(of)}
	if s.rule != "" {
		labels[labelRule] = s.rule
	}
	spec := map[string]any{"source": map[string]any{"persistentVolumeClaimName": s.pvc}}
	if s.class != "" {
		spec["volumeSnapshotClassName"] = s.class
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshots.GroupVersion().String(), "kind": "VolumeSnapshot",
		"metadata": map[string]any{"name": s.name, "labels": labels}, "spec": spec,
	}}
}

func (s *taking) see(ctx context.Context, found *unstructured.Unstructured) (*Taken, error) {
	if found == nil || found.GetDeletionTimestamp() != nil {
		return nil, failure(reasonMissing, "snapshot %s was deleted before it was ready", s.name)
	}
	var is snap
	if err := read(found, &is); err != nil {
		return nil, err
	}
	if is.ready() {
		t := &Taken{Snapshot: s.name, PVC: s.pvc, Content: is.Status.Content}
		if is.Status.Size != nil {
			t.Size = is.Status.Size.String()
		}
		if is.Status.Created != nil {
			t.TakenAt = is.Status.Created.UTC().Format(time.RFC3339)
		}
		s.say(1, 1, "snapshot %s is ready", s.name)
		return t, nil
	}
	waits := "the snapshot controller"
	if is.Status.Content != "" {
		waits = "the driver"
	}
	var trouble string
	if is.Status.Error != nil {
		trouble = is.Status.Error.Message
		if s.wrong.IsZero() {
			s.wrong = s.now()
		}
		if s.now().Sub(s.wrong) >= errorStands {
			return nil, failure(reasonDriver, "snapshot %s: %s", s.name, trouble)
		}
	} else {
		s.wrong = time.Time{}
		trouble = s.warning(ctx, is.Metadata)
	}
	s.say(0, 1, "snapshot %s, waiting for %s%s", s.name, waits, after(trouble))
	return nil, nil
}

// discard removes a snapshot that did not become ready, and names it where it cannot see it gone.
func (s *taking) discard(ctx context.Context, failed error) error {
	settle, cancel, ok := settling(ctx)
	defer cancel()
	if !ok {
		return failed
	}
	found, err := s.get(settle, s.in(snapshots), s.name) // a create whose answer was lost is found here
	if err == nil && (found == nil || found.GetLabels()[labelTask] != s.task.ID) {
		return failed
	}
	if err == nil {
		s.say(0, 1, "removing snapshot %s, which did not become ready", s.name)
		err = s.remove(settle, s.in(snapshots), found, false)
	}
	if err == nil {
		err = s.gone(settle, found)
	}
	if err != nil {
		return failure(reasonLeftover, "leftover snapshot %s: %v (it could not be seen gone: %v)", s.name, failed, err)
	}
	s.log("snapshot %s is gone", s.name)
	return failed
}

// gone waits until a snapshot and its content are gone.
func (w *world) gone(ctx context.Context, deleted *unstructured.Unstructured) error {
	name, uid := deleted.GetName(), deleted.GetUID()
	var is snap
	if err := read(deleted, &is); err != nil {
		return err
	}
	err := w.follow(ctx, w.in(snapshots), name, func(found *unstructured.Unstructured) (bool, error) {
		if found == nil || found.GetUID() != uid {
			return true, nil
		}
		if err := read(found, &is); err != nil {
			return false, err
		}
		waits := ""
		if is.Status.Error != nil {
			waits = is.Status.Error.Message
		}
		w.say(0, 0, "waiting for snapshot %s to be gone%s", name, after(cmp.Or(waits, w.warning(ctx, is.Metadata))))
		return false, nil
	})
	if err != nil {
		return err
	}
	return w.contentGone(ctx, is.content(), string(uid))
}

// content is what is read of a VolumeSnapshotContent.
type content struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Policy string `json:"deletionPolicy"`
		Of     struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
			UID       string `json:"uid"`
		} `json:"volumeSnapshotRef"`
	} `json:"spec"`
	Status struct {
		Error *snapError `json:"error"`
	} `json:"status"`
}

// contentGone waits until the content of a snapshot is gone; one that has come under the same name is another.
func (w *world) contentGone(ctx context.Context, name, of string) error {
	return w.follow(ctx, w.api.Resource(contents), name, func(found *unstructured.Unstructured) (bool, error) {
		if found == nil {
			return true, nil
		}
		var c content
		if err := read(found, &c); err != nil {
			return false, err
		}
		if of != "" && c.Spec.Of.UID != "" && c.Spec.Of.UID != of {
			return true, nil
		}
		if c.Spec.Policy == "Retain" && c.Metadata.DeletionTimestamp == nil {
			return false, permanent(reasonLeftover, "its content %s is kept (deletionPolicy Retain)", name)
		}
		trouble := ""
		if c.Status.Error != nil {
			trouble = c.Status.Error.Message
		}
		w.say(0, 0, "waiting for content %s to be gone%s", name, after(cmp.Or(trouble, w.warning(ctx, c.Metadata))))
		return false, nil
	})
}
