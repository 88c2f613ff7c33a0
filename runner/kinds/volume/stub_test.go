package volume

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"slipway.dev/slipway/pkg/handler"
)

// stub answers as an API server in trouble would; what a test does not give is empty.
type stub struct {
	dynamic.Interface
	of map[string]*answers
}

type answers struct {
	dynamic.NamespaceableResourceInterface
	get    func(name string) (*unstructured.Unstructured, error)
	list   func() ([]unstructured.Unstructured, error)
	remove func(name string, o metav1.DeleteOptions) error
	watch  func() (watch.Interface, error)
}

func (s *stub) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	if a := s.of[of.Resource]; a != nil {
		return a
	}
	return &answers{}
}

func (a *answers) Namespace(string) dynamic.ResourceInterface { return a }

func (a *answers) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if a.get == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return a.get(name)
}

func (a *answers) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	all := &unstructured.UnstructuredList{}
	if a.list == nil {
		return all, nil
	}
	var err error
	all.Items, err = a.list()
	return all, err
}

func (a *answers) Delete(_ context.Context, name string, o metav1.DeleteOptions, _ ...string) error {
	return a.remove(name, o)
}

func (a *answers) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	if a.watch == nil {
		return watch.NewFake(), nil
	}
	return a.watch()
}

// on is a world on a stub, with what it logs.
func on(t *testing.T, of map[string]*answers) (*world, *bytes.Buffer) {
	t.Helper()
	said := &bytes.Buffer{}
	return &world{api: &stub{of: of}, now: time.Now, task: handler.Task{ID: "t1", Namespace: "ns", Attempt: 1, Stdout: said}}, said
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return o
}

func unavailable() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusServiceUnavailable, Message: "etcd has no leader"}}
}
