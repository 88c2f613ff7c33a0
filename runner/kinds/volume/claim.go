package volume

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/task"
)

// Reasons of these kinds.
const (
	reasonMissing    task.Reason = "missing"        // what the Task is about is not there, or is being deleted
	reasonRefused    task.Reason = "refused"        // the volume, or its driver, can never do this
	reasonDriver     task.Reason = "driver"         // the driver reports an error
	reasonMayGrow    task.Reason = "may_still_grow" // and the wish could not be taken back
	reasonMayChange  task.Reason = "may_still_change"
	reasonInUse      task.Reason = "in_use"
	reasonLeftover   task.Reason = "leftover" // something is left behind, which the message names
	reasonConfirm    task.Reason = "needs_confirmation"
	reasonIncomplete task.Reason = "incomplete"
)

// claim is what is read of a PersistentVolumeClaim.
type claim struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		VolumeName string    `json:"volumeName"`
		Class      *string   `json:"volumeAttributesClassName"`
		Resources  resources `json:"resources"`
		DataSource *source   `json:"dataSource"`
		Source     *source   `json:"dataSourceRef"`
	} `json:"spec"`
	Status struct {
		Phase      string            `json:"phase"`
		Capacity   quantities        `json:"capacity"`
		Allocated  quantities        `json:"allocatedResources"`
		Allocating map[string]string `json:"allocatedResourceStatuses"`
		Conditions []condition       `json:"conditions"`
		Class      *string           `json:"currentVolumeAttributesClassName"`
		Modifying  *struct {
			Target string `json:"targetVolumeAttributesClassName"`
			Status string `json:"status"`
		} `json:"modifyVolumeStatus"`
	} `json:"status"`
}

type (
	quantities map[string]resource.Quantity
	resources  struct {
		Requests quantities `json:"requests"`
	}
	condition struct {
		Type    string `json:"type"`
		Status  string `json:"status"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
	// source is what a claim was made from.
	source struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	}
)

const storage = "storage"

func (c *claim) requested() resource.Quantity { return c.Spec.Resources.Requests[storage] }
func (c *claim) actual() resource.Quantity    { return c.Status.Capacity[storage] }
func (c *claim) allocated() resource.Quantity { return c.Status.Allocated[storage] }
func (c *claim) allocating() string           { return c.Status.Allocating[storage] }

// standing is the message of a condition that holds; ok is false where it does not.
func (c *claim) standing(kind string) (message string, ok bool) {
	i := slices.IndexFunc(c.Status.Conditions, func(c condition) bool { return c.Type == kind && c.Status == "True" })
	if i < 0 {
		return "", false
	}
	return c.Status.Conditions[i].Message, true
}

// settled says that nothing is pending on the size of the volume.
func (c *claim) settled() bool {
	_, resizing := c.standing("Resizing")
	_, pending := c.standing("FileSystemResizePending")
	return c.allocating() == "" && !resizing && !pending
}

// usable is an error where nothing can be asked of a claim.
func (c *claim) usable() error {
	switch {
	case c.Metadata.DeletionTimestamp != nil:
		return permanent(reasonMissing, "PVC %s is being deleted", c.Metadata.Name)
	case c.Status.Phase != "Bound":
		return permanent(reasonRefused, "PVC %s is %s: only one that is bound has a volume", c.Metadata.Name, cmp.Or(c.Status.Phase, "Pending"))
	}
	return nil
}

func permanent(reason task.Reason, format string, args ...any) error {
	return handler.Permanent(fmt.Errorf(format, args...), reason)
}

func failure(reason task.Reason, format string, args ...any) error {
	return &handler.Failure{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// readClaim reads a claim that can be worked on.
func (w *world) readClaim(ctx context.Context, name string) (*claim, error) {
	found, err := w.get(ctx, w.in(claims), name)
	if err != nil {
		return nil, fmt.Errorf("read PVC %s: %w", name, err)
	}
	if found == nil {
		return nil, permanent(reasonMissing, "there is no PVC %s in namespace %s", name, w.task.Namespace)
	}
	c := &claim{}
	if err := read(found, c); err != nil {
		return nil, err
	}
	return c, c.usable()
}

// mountedBy names the pods that have the claim and have not ended.
func (w *world) mountedBy(ctx context.Context, name string) ([]string, error) {
	all, err := w.list(ctx, w.in(pods), metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"})
	if err != nil {
		return nil, fmt.Errorf("look for pods that mount PVC %s: %w", name, err)
	}
	var by []string
	for i := range all {
		var pod struct {
			Spec struct {
				NodeName string `json:"nodeName"`
				Volumes  []struct {
					Claim *struct {
						Name string `json:"claimName"`
					} `json:"persistentVolumeClaim"`
				} `json:"volumes"`
			} `json:"spec"`
			Status struct {
				Phase string `json:"phase"`
			} `json:"status"`
		}
		if err := read(&all[i], &pod); err != nil {
			return nil, err
		}
		ended := pod.Status.Phase == "Succeeded" || pod.Status.Phase == "Failed"
		for _, v := range pod.Spec.Volumes {
			// One without a node mounts nothing yet; when it does, that is the next mount.
			if v.Claim != nil && v.Claim.Name == name && pod.Spec.NodeName != "" && !ended {
				by = append(by, all[i].GetName())
			}
		}
	}
	return by, nil
}

// warning is the newest Warning about an object; empty where there is none, or none can be read: it explains, and decides
// nothing.
func (w *world) warning(ctx context.Context, about metav1.ObjectMeta) string {
	all, err := w.list(ctx, w.in(events), metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.uid=" + string(about.UID)})
	if err != nil {
		return ""
	}
	newest, text := "", ""
	for i := range all {
		var e struct {
			Type     string `json:"type"`
			Involved struct {
				UID string `json:"uid"`
			} `json:"involvedObject"`
			Last    string `json:"lastTimestamp"`
			At      string `json:"eventTime"`
			Message string `json:"message"`
		}
		if read(&all[i], &e) != nil || e.Type != "Warning" || e.Involved.UID != string(about.UID) {
			continue
		}
		if at := max(e.Last, e.At); at >= newest {
			newest, text = at, e.Message
		}
	}
	return strings.TrimSpace(text)
}
