package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/pkg/task"
)

// ObjectEvent is an Event on an object of a namespace.
type ObjectEvent struct {
	Namespace            string
	Object               task.Object
	Key                  string // two Events with the same one on the same object are the same
	Reason, Action, Note string
	Warning              bool
}

const reportingController = "slipway.dev/controlplane"

// WriteEvent writes an Event; one that stands there already is task.ErrTaken.
func (c *Client) WriteEvent(ctx context.Context, e ObjectEvent) error {
	if !c.namespaced(e.Namespace) {
		return fmt.Errorf("write an event: namespace %s is not enabled for Slipway", e.Namespace)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	sum := sha256.Sum256([]byte(c.cfg.Instance + "\n" + e.Object.APIVersion + "\n" + e.Object.Kind + "\n" + e.Key))
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	_, err := c.api.EventsV1().Events(e.Namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, Name: e.Object.Name[:min(len(e.Object.Name), 200)] + "." + hex.EncodeToString(sum[:8]),
			Labels: map[string]string{LabelManagedBy: ManagedBy, LabelInstance: c.cfg.Instance},
		},
		EventTime: metav1.NowMicro(), ReportingController: reportingController, ReportingInstance: c.cfg.Replica,
		Action: e.Action, Reason: e.Reason, Note: e.Note, Type: kind,
		Regarding: corev1.ObjectReference{
			APIVersion: e.Object.APIVersion, Kind: e.Object.Kind, Name: e.Object.Name, Namespace: e.Namespace, UID: c.uidOf(ctx, e),
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("write an event: %w", task.ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("write an event on %s %s/%s: %w", e.Object.Kind, e.Namespace, e.Object.Name, err)
	}
	return nil
}

// uidOf finds the uid of an object: `kubectl describe` shows only Events that name it, `kubectl events` all. Only volume
// claims can be read; of other objects, and where it cannot be found out, there is none.
func (c *Client) uidOf(ctx context.Context, e ObjectEvent) types.UID {
	if e.Object.APIVersion != "v1" || e.Object.Kind != "PersistentVolumeClaim" {
		return ""
	}
	claim, err := c.api.CoreV1().PersistentVolumeClaims(e.Namespace).Get(ctx, e.Object.Name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return claim.UID
}
