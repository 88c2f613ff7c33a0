package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const growingClaim = `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data","uid":"u1","resourceVersion":"1"},
	"spec":{"resources":{"requests":{"storage":"2Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"1Gi"},
	"allocatedResources":{"storage":"2Gi"},"allocatedResourceStatuses":{"storage":"NodeResizePending"},"conditions":[{"type":"FileSystemResizePending","status":"True"}]}}`

func TestAWatchThatBreaksOffAtOnceIsNotBegunAgainInAHotLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		w, _ := on(t, map[string]*answers{"persistentvolumeclaims": {
			get: func(string) (*unstructured.Unstructured, error) { reads++; return object(t, growingClaim), nil },
			watch: func() (watch.Interface, error) {
				broken := watch.NewFake()
				broken.Stop()
				return broken, nil
			},
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		err := w.follow(ctx, w.in(claims), "data", func(*unstructured.Unstructured) (bool, error) { return false, nil })
		if !errors.Is(err, context.DeadlineExceeded) || reads > 130 {
			t.Errorf("%d reads in ten minutes: %v", reads, err)
		}
	})
}

func TestTroubleOfTheServerWhileAGrowthIsWatchedIsWaitedOutAndSaidAndARefusalEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists, refuses := 0, false
		w, said := on(t, map[string]*answers{
			"persistentvolumeclaims": {get: func(string) (*unstructured.Unstructured, error) { return object(t, growingClaim), nil }},
			"pods": {list: func() ([]unstructured.Unstructured, error) {
				if refuses {
					return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no right to list"))
				}
				if lists++; lists < 4 {
					return nil, unavailable()
				}
				return nil, nil
			}},
		})
		g := &growth{wish: &wish{world: w, name: "data", key: markResize}, want: resource.MustParse("2Gi")}
		result, err := g.grow(t.Context())
		if err != nil || result.(Sizes).State != "grown, completes at next mount" || !strings.Contains(said.String(), "the API server does not answer: look for pods") {
			t.Errorf("%+v, %v; said:\n%s", result, err, said)
		}
		refuses = true
		if _, err = g.grow(t.Context()); err == nil || !strings.Contains(err.Error(), "no right to list") {
			t.Errorf("a refusal: %v", err)
		}
	})
}

func TestAPinThatIsSetBetweenTheLookAndTheDeletionHolds(t *testing.T) {
	const free = `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","metadata":{"name":"s","uid":"u1","resourceVersion":"1"},"spec":{"source":{"persistentVolumeClaimName":"data"}}}`
	now := free
	w, _ := on(t, map[string]*answers{"volumesnapshots": {
		get: func(string) (*unstructured.Unstructured, error) { return object(t, now), nil },
		remove: func(_ string, o metav1.DeleteOptions) error {
			// Somebody pins it just before the deletion arrives.
			now = strings.Replace(free, `"resourceVersion":"1"`, `"resourceVersion":"2","labels":{"slipway.dev/pinned":""}`, 1)
			if v := o.Preconditions.ResourceVersion; v == nil || *v != "1" {
				t.Error("the pinned one is deleted")
				return nil
			}
			return apierrors.NewConflict(schema.GroupResource{}, "s", errors.New("it has changed"))
		},
	}})
	w.task.Params = []byte(`{"pvc":"data","snapshot":"s"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // one that is deleted all the same never goes
	defer cancel()
	if _, err := w.deleteSnapshot(ctx); err == nil || !strings.Contains(err.Error(), "is pinned by") {
		t.Errorf("it ended with %v", err)
	}
}

// shelf is a namespace full of good snapshots, of a driver that deletes those that it can.
func shelf(t *testing.T, n int, stuck func(name string) bool) (w *world, left map[string]*unstructured.Unstructured) {
	t.Helper()
	left = map[string]*unstructured.Unstructured{}
	asked := map[string]bool{}
	for i := range n {
		name := fmt.Sprintf("s%02d", i)
		left[name] = object(t, fmt.Sprintf(`{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","metadata":{"name":%q,"uid":"u-%s","resourceVersion":"1"},
			"spec":{"source":{"persistentVolumeClaimName":"data"}},"status":{"readyToUse":true}}`, name, name))
	}
	w, _ = on(t, map[string]*answers{"volumesnapshots": {
		get: func(name string) (*unstructured.Unstructured, error) {
			if asked[name] && !stuck(name) {
				delete(left, name)
			}
			if is := left[name]; is != nil {
				return is, nil
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
		},
		remove: func(name string, _ metav1.DeleteOptions) error {
			asked[name] = true
			return nil
		},
	}})
	return w, left
}
