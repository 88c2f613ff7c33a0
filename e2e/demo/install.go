package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/e2e/authority"
	"slipway.dev/slipway/e2e/images/archive"
	"slipway.dev/slipway/manifests"
)

// Names in the manifests.
const (
	system   = "slipway-system"
	tenant   = "demo"
	database = "slipway-database"
	partOf   = "app.kubernetes.io/part-of"
	product  = "slipway"
)

// install builds and delivers the images and applies the manifests.
func install(ctx context.Context, s settings, c *cluster, log *progress) error {
	for _, name := range []string{system, tenant} {
		if err := mayUse(ctx, c, name); err != nil {
			return err
		}
	}
	images, err := archive.Build(ctx, archive.Options{Log: log.out})
	if err != nil {
		return err
	}
	if images, err = deliver(ctx, s, c, log, images); err != nil {
		return err
	}
	password, err := keptPassword(ctx, c)
	if err != nil {
		return err
	}
	address, err := serviceAddress(ctx, c)
	if err != nil {
		return err
	}
	pair, err := keptPair(ctx, c, address)
	if err != nil {
		return err
	}
	text, err := render(c.overlay, images, secrets{password, pair})
	if err != nil {
		return err
	}
	if c.local != nil {
		// The folder of the static volume, as the node sees it: /var/lib/slipway/postgres.
		if err := os.MkdirAll(filepath.Join(c.local.Dir, "node/lib/slipway/postgres"), 0o770); err != nil {
			return fmt.Errorf("make the database's folder: %w", err)
		}
	}
	return apply(ctx, c, text, log)
}

// apply applies documents and, where there is a log, says how many.
func apply(ctx context.Context, c *cluster, text []byte, log *progress) error {
	out, err := c.kubectlRun(ctx, text, "apply", "--server-side", "--force-conflicts", "--field-manager=slipway-demo", "-f", "-")
	if err == nil && log != nil {
		log.say("applied %s: %d objects", c.overlay, strings.Count(out, "\n"))
	}
	return err
}

// mayUse refuses a namespace that somebody else made: down would delete it.
func mayUse(ctx context.Context, c *cluster, name string) error {
	found, err := c.api.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for namespace %s: %w", name, err)
	case found.Labels[partOf] != product:
		return fmt.Errorf("namespace %s exists and is not ours (label %s=%s): this demonstration would take it over", name, partOf, product)
	case found.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %s is being deleted; try again when it is gone", name)
	}
	return nil
}

// deliver brings the images to where the nodes find them.
func deliver(ctx context.Context, s settings, c *cluster, log *progress, images []archive.Image) ([]archive.Image, error) {
	if c.local == nil && s.registry == "" {
		log.say("images: taken to be on the nodes already; set IMAGE_REGISTRY to push them")
		return images, nil
	}
	if c.local == nil {
		for i, image := range images {
			pushed, err := archive.Push(ctx, image, s.registry)
			if err != nil {
				return nil, err
			}
			images[i] = pushed
			log.say("pushed %s", pushed.Ref)
		}
		return images, nil
	}
	there, err := onNode(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, image := range images {
		if there[image.Ref] {
			continue
		}
		if err := c.local.Load(ctx, image.Archive); err != nil {
			return nil, err
		}
		log.say("loaded %s", image.Ref)
	}
	return images, nil
}

// onNode lists the images that the local node says it has.
func onNode(ctx context.Context, c *cluster) (map[string]bool, error) {
	node, err := c.api.CoreV1().Nodes().Get(ctx, c.local.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("look at the node: %w", err)
	}
	there := map[string]bool{}
	for _, image := range node.Status.Images {
		for _, name := range image.Names {
			there[name] = true
		}
	}
	return there, nil
}

// keptPassword is that of an earlier run, since the database has it, or a new one.
func keptPassword(ctx context.Context, c *cluster) (string, error) {
	secret, err := c.api.CoreV1().Secrets(system).Get(ctx, database, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return random(24)
	case err != nil:
		return "", fmt.Errorf("look for the database's password: %w", err)
	}
	if password := secret.Data["password"]; len(password) > 0 {
		return string(password), nil
	}
	return random(24)
}

// secrets is what no manifest holds.
type secrets struct {
	password string
	pair     authority.Pair
}

// generators makes the Secrets; the files are those that they name.
func (s secrets) generators() (made []any, files map[string][]byte) {
	secret := func(name, key string, from ...string) map[string]any {
		return map[string]any{
			"name": name, "namespace": system, key: from, "options": map[string]any{"labels": map[string]string{partOf: product}},
		}
	}
	files = map[string][]byte{}
	if s.password != "" {
		made = append(made, secret(database, "literals", "password="+s.password))
	}
	if len(s.pair.Cert) > 0 {
		made = append(made, secret(tlsSecret, "files", "tls.crt", "tls.key", "ca.crt"))
		files["demo/tls.crt"], files["demo/tls.key"], files["demo/ca.crt"] = s.pair.Cert, s.pair.Key, s.pair.CA
	}
	return made, files
}

// render lays images and Secrets over an overlay. Without them it is as it stands.
func render(overlay string, images []archive.Image, s secrets) ([]byte, error) {
	top := map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": []string{"../" + overlay},
	}
	generators, files := s.generators()
	if generators != nil {
		top["generatorOptions"] = map[string]any{"disableNameSuffixHash": true}
		top["secretGenerator"] = generators
	}
	var rename []any
	for _, image := range images {
		repository, tag, _ := cutTag(image.Ref)
		rename = append(rename, map[string]string{"name": archive.Repository + "/" + image.Name, "newName": repository, "newTag": tag})
		if image.Name == "runner" {
			top["patches"] = []any{map[string]any{"patch": runnerPatch(image.Ref)}}
		}
	}
	if rename != nil {
		top["images"] = rename
	}
	text, err := yaml.Marshal(top)
	if err != nil {
		return nil, fmt.Errorf("write the kustomization: %w", err)
	}
	files["demo/kustomization.yaml"] = text
	return manifests.Render("demo", files)
}

func cutTag(ref string) (repository, tag string, found bool) {
	at := strings.LastIndexByte(ref, ':')
	if at < 0 {
		return ref, "", false
	}
	return ref[:at], ref[at+1:], true
}

// runnerPatch tells the control plane which image runs what Slipway brings itself.
func runnerPatch(ref string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: %s}
spec: {template: {spec: {containers: [{name: controlplane, env: [{name: SLIPWAY_RUNNER_IMAGE, value: %q}]}]}}}
`, product, system, ref)
}
