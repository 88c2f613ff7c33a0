package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Names in the manifests.
const (
	deployment = "slipway"
	container  = "controlplane"
	variable   = "SLIPWAY_NAMESPACES"
)

// Watched is the list of namespaces that the control plane is told to run Jobs in, and the version of the Deployment
// that says so.
type Watched struct {
	Namespaces []string
	version    string
}

// Has reports whether the control plane runs Jobs in a namespace.
func (w Watched) Has(namespace string) bool {
	return slices.Contains(w.Namespaces, namespace) || slices.Contains(w.Namespaces, "*")
}

// With is the list with a namespace, Without that without it.
func (w Watched) With(namespace string) Watched {
	w.Namespaces = append(slices.Clone(w.Namespaces), namespace)
	return w
}

// Without is the list without a namespace.
func (w Watched) Without(namespace string) Watched {
	w.Namespaces = slices.DeleteFunc(slices.Clone(w.Namespaces), func(n string) bool { return n == namespace })
	return w
}

// Command is what sets the list.
func (c *Cluster) Command(list string) string {
	return fmt.Sprintf("kubectl -n %s set env deployment/%s -c %s %s=%s", c.cfg.SystemNamespace, deployment, container, variable, list)
}

// Watched reads the list from the control plane's Deployment.
func (c *Cluster) Watched(ctx context.Context) (Watched, error) {
	found, err := c.api.AppsV1().Deployments(c.cfg.SystemNamespace).Get(ctx, deployment, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Watched{}, fmt.Errorf("there is no deployment %s in namespace %s", deployment, c.cfg.SystemNamespace)
	case err != nil:
		return Watched{}, fmt.Errorf("look at the control plane: %w", err)
	}
	value, err := listOf(found)
	if err != nil {
		return Watched{}, err
	}
	list := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
	return Watched{Namespaces: list, version: found.ResourceVersion}, nil
}

func listOf(d *appsv1.Deployment) (string, error) {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name != container {
			continue
		}
		for _, e := range c.Env {
			if e.Name == variable && e.ValueFrom == nil {
				return e.Value, nil
			}
		}
	}
	return "", fmt.Errorf("look at the control plane: deployment %s does not give %s as a value", d.Name, variable)
}

// Watch gives the control plane another list, which rolls its replicas one by one.
func (c *Cluster) Watch(ctx context.Context, w Watched) error {
	if len(w.Namespaces) == 0 {
		return errors.New("change the control plane's list: it would be empty; stop the control plane instead")
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": w.version}, // nobody's change is undone
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": container, "env": []any{map[string]any{"name": variable, "value": strings.Join(w.Namespaces, ",")}},
		}}}}},
	})
	if err != nil {
		return fmt.Errorf("write a patch: %w", err)
	}
	_, err = c.api.AppsV1().Deployments(c.cfg.SystemNamespace).Patch(ctx, deployment, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("change the control plane's list: %w", err)
	}
	return nil
}
