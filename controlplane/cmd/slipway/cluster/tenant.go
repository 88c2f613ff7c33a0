package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/manifests"
)

// fieldManager owns what is applied.
const fieldManager = "slipway-cli"

// partOf marks what is ours to delete.
const partOf, product = "app.kubernetes.io/part-of", "slipway"

// Tenant is a namespace that is to run Tasks.
type Tenant struct {
	Namespace   string
	PodSecurity string // level to enforce; empty: the namespace's label is not touched
	Network     bool   // let runners call the control plane where pods may call nothing
	Volumes     bool   // make the accounts of the kinds volume.*
}

// resources are the kinds of object that the components of a tenant hold.
var resources = map[string]schema.GroupVersionResource{
	"ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
	"RoleBinding":    {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"NetworkPolicy":  {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	"ConfigMap":      {Version: "v1", Resource: "configmaps"},
	clusterWide:      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
}

// clusterWide belongs to no namespace: each tenant has its own, named after it.
const clusterWide = "ClusterRoleBinding"

// of is where the objects of a tenant of that kind are.
func (c *Cluster) of(kind, namespace string) dynamic.ResourceInterface {
	if kind == clusterWide {
		return c.objects.Resource(resources[kind])
	}
	return c.objects.Resource(resources[kind]).Namespace(namespace)
}

// Enable applies what a namespace needs for Tasks to run in it, and names what it applied.
func (c *Cluster) Enable(ctx context.Context, t Tenant) ([]string, error) {
	objects, err := c.tenant(t)
	if err != nil {
		return nil, err
	}
	var done []string
	for _, o := range objects {
		name := o.GetKind() + " " + o.GetName()
		_, err := c.of(o.GetKind(), t.Namespace).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: fieldManager})
		if err != nil {
			return done, c.refused("apply "+name, t.Namespace, err)
		}
		done = append(done, name)
	}
	if t.PodSecurity == "" {
		return done, nil
	}
	// Only now: applying it would make a namespace that is not there.
	label := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": t.Namespace, "labels": map[string]any{"pod-security.kubernetes.io/enforce": t.PodSecurity},
	}}}
	namespaces := c.objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if _, err := namespaces.Apply(ctx, t.Namespace, label, metav1.ApplyOptions{FieldManager: fieldManager}); err != nil {
		return done, c.refused("label the namespace", t.Namespace, err)
	}
	return append(done, "label pod-security.kubernetes.io/enforce="+t.PodSecurity), nil
}

// Disable deletes what Enable applied, and names what it deleted. The label of the namespace stays.
func (c *Cluster) Disable(ctx context.Context, namespace string) ([]string, error) {
	objects, err := c.tenant(Tenant{Namespace: namespace, Network: true, Volumes: true})
	if err != nil {
		return nil, err
	}
	slices.Reverse(objects)
	var done []string
	volumes := false // whether there is a trace of them
	for _, o := range objects {
		name := o.GetKind() + " " + o.GetName()
		of := c.of(o.GetKind(), namespace)
		found, err := of.Get(ctx, o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && found.GetLabels()[partOf] != product {
			continue
		}
		if o.GetKind() == clusterWide && apierrors.IsForbidden(err) && !volumes {
			continue // it was enabled without volumes, by somebody who may do nothing in the whole cluster
		}
		volumes = volumes || o.GetKind() == "ConfigMap"
		if err == nil {
			uid := found.GetUID()
			err = of.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return done, c.refused("delete "+name, namespace, err)
		}
		done = append(done, name)
	}
	return done, nil
}

// tenant renders the objects of one namespace.
func (c *Cluster) tenant(t Tenant) ([]*unstructured.Unstructured, error) {
	const folder = "overlays/enabled"
	text := "namespace: " + t.Namespace + "\nresources: [../../components/tenant"
	if t.Network {
		text += ", ../../components/tenant-network"
	}
	if t.Volumes {
		text += ", ../../components/tenant-volumes"
	}
	out, err := manifests.Render(folder, map[string][]byte{folder + "/kustomization.yaml": []byte(text + "]\n")})
	if err != nil {
		return nil, err
	}
	out = bytes.ReplaceAll(out, []byte(SystemNamespace), []byte(c.cfg.SystemNamespace))
	var objects []*unstructured.Unstructured
	for document := range bytes.SplitSeq(out, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
		if _, known := resources[o.GetKind()]; !known {
			return nil, fmt.Errorf("read the manifests: a tenant has a %s", o.GetKind())
		}
		if o.GetKind() == clusterWide {
			o.SetName(o.GetName() + "-" + t.Namespace)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// refused says what was not allowed, and by whom it could be.
func (c *Cluster) refused(what, namespace string, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: you may not: %w. It takes whoever administers namespace %s; giving slipway-launcher away takes its rights or the verb `bind` on it", what, err, namespace)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: there is no namespace %s", what, namespace)
	}
	return fmt.Errorf("%s: %w", what, err)
}
