package app

import (
	"errors"
	"fmt"
	"os"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/controlplane/internal/kube"
	"slipway.dev/slipway/pkg/task"
)

// patcher tells whether the pod of a kind can be built.
type patcher interface{ CheckKind(task.Kind) error }

// userKinds reads the kinds of a file, if there is one; the error names every bad entry.
func userKinds(file string) ([]kinds.Kind, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %sKINDS: %w", Prefix, err)
	}
	return kinds.Read(file, raw)
}

// allKinds joins the user's kinds with those out of the box and those of upkeep. What only the cluster's side knows of a pod is checked here.
func allKinds(file string, users, own []kinds.Kind, cluster patcher) (*kinds.Registry, error) {
	var wrong []error
	for _, k := range users {
		err := cluster.CheckKind(k.Kind)
		var refused *kube.PatchError
		if errors.As(err, &refused) {
			err = &kinds.FileError{File: file, Kind: k.Name, Field: refused.Field, Reason: refused.Reason}
		}
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return kinds.WithBuiltIn(append(own, users...)...)
}
