package kube

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

func TestAnEventIsWrittenOnceOnEachObjectWithTheLaunchersRights(t *testing.T) {
	r := newRig(t)
	e := ObjectEvent{
		Namespace: r.namespace, Object: task.Object{APIVersion: "v1", Kind: "ConfigMap", Name: "settings"}, Key: "t-1 Failed 1",
		Reason: "TaskFailed", Action: "volume.resize", Note: "Task t-1 has failed", Warning: true,
	}
	other := e
	other.Object.Kind = "Service"
	for _, want := range []struct {
		event ObjectEvent
		err   error
	}{{e, nil}, {e, task.ErrTaken}, {other, nil}} {
		if err := r.client.WriteEvent(t.Context(), want.event); !errors.Is(err, want.err) {
			t.Errorf("%s: %v, want %v", want.event.Object.Kind, err, want.err)
		}
	}
	all, err := server.api.CoreV1().Events(r.namespace).List(t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=ConfigMap,involvedObject.name=settings",
	})
	if err != nil || len(all.Items) != 1 {
		t.Fatalf("%d events, %v", len(all.Items), err)
	}
	if got := all.Items[0]; got.Type != corev1.EventTypeWarning || got.Reason != e.Reason || got.Message != e.Note || got.ReportingController != reportingController {
		t.Errorf("got %+v", got)
	}
	e.Namespace = "elsewhere"
	if err := r.client.WriteEvent(t.Context(), e); err == nil {
		t.Error("an event was written in a namespace that is not enabled")
	}
}
