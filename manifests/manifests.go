// Package manifests holds what is applied to a cluster to run Slipway in it, and renders it as `kubectl apply -k` would.
//
// Allowed imports: the standard library and kustomize.
package manifests

import (
	"embed"
	"fmt"
	"io/fs"
	"path"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

//go:embed base components overlays
var files embed.FS

// Render gives the YAML documents of a folder, for example overlays/local. What more holds, by path, lies beside the
// files of this package: a kustomization of one's own can build on them.
func Render(folder string, more map[string][]byte) ([]byte, error) {
	disk := filesys.MakeFsInMemory()
	put := func(name string, text []byte) error {
		if err := disk.WriteFile(path.Join("/", name), text); err != nil {
			return fmt.Errorf("lay out %s: %w", name, err)
		}
		return nil
	}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		return put(name, text)
	})
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	for name, text := range more {
		if err := put(name, text); err != nil {
			return nil, err
		}
	}
	built, err := krusty.MakeKustomizer(inOrder()).Run(disk, path.Join("/", folder))
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", folder, err)
	}
	out, err := built.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", folder, err)
	}
	return out, nil
}

// inOrder puts what others need first: namespaces, accounts, roles, then the rest.
func inOrder() *krusty.Options {
	o := krusty.MakeDefaultOptions()
	o.Reorder = krusty.ReorderOptionLegacy
	return o
}
