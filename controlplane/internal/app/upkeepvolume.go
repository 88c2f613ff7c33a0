package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"slipway.dev/slipway/controlplane/internal/kube"
	"slipway.dev/slipway/controlplane/internal/store"
)

const (
	snapshotGroup   = "snapshot.storage.k8s.io"
	snapshotCleanup = "volume.snapshot.cleanup"
	// lookForSnapshots is how often a namespace without the schedules of volumes is looked at: whether it has been enabled
	// for volumes, and whether the cluster has snapshots by now.
	lookForSnapshots = time.Minute
)

// volumeSchedules are those that a namespace with volumes gets. The cleanup is on: it touches nothing but what
// volume.snapshot has taken under its rule. The snapshots are off until somebody says of which volumes.
func volumeSchedules(namespace string) []store.Schedule {
	const spread = 5 * time.Minute
	return []store.Schedule{
		shipped(store.Schedule{
			Namespace: namespace, Name: "slipway-snapshot-cleanup", Description: "Removes the snapshots that rule default does not keep.",
			Every: time.Hour, ExpectSuccess: 6 * time.Hour, Spread: spread, Enabled: true,
			Template: json.RawMessage(`{"kind":"volume.snapshot.cleanup","params":{"rule":"default","keep":{"hourly":24,"daily":7,"weekly":4,"floor":3}}}`),
		}),
		shipped(store.Schedule{
			Namespace: namespace, Name: "slipway-snapshots", Description: "Takes snapshots of the volumes with label slipway.dev/snapshots, once it is enabled.",
			Every: day, ExpectSuccess: 2 * day, Spread: spread,
			Template: json.RawMessage(`{"kind":"volume.snapshot.each","params":{"selector":"slipway.dev/snapshots","rule":"default"}}`),
		}),
	}
}

// ensureVolumes makes the schedules of the volumes of a namespace, and says whether it has them: they are made once
// snapshots can be cleaned up there.
func (p plane) ensureVolumes(ctx context.Context, namespace string) (bool, error) {
	served, err := p.cluster.Serves(ctx, snapshotGroup+"/v1")
	if err != nil || !served {
		return false, err
	}
	k, ok := p.kinds.Get(snapshotCleanup)
	if !ok {
		return false, nil
	}
	const accounts = "system:serviceaccounts"
	enabled, _, err := p.cluster.Allowed(ctx, kube.Identity{
		User: "system:serviceaccount:" + namespace + ":" + k.Spec.ServiceAccount, Groups: []string{accounts, accounts + ":" + namespace, "system:authenticated"},
	}, kube.Access{Verb: "delete", Group: snapshotGroup, Resource: "volumesnapshots", Namespace: namespace})
	if err != nil || !enabled {
		return false, err
	}
	return true, p.ensureSchedules(ctx, volumeSchedules(namespace))
}

// makeVolumeSchedules makes the schedules of volumes in each namespace, once for each as long as it runs: whoever deletes one
// has it made again by the next start alone, and whoever wants none pauses it.
func (p plane) makeVolumeSchedules(ctx context.Context) error {
	left := slices.Clone(p.config.Namespaces)
	if p.config.Upkeep == noUpkeep || slices.Contains(left, kube.AllNamespaces) { // which ones there are is not ours to read
		left = nil
	}
	for ctx.Err() == nil && len(left) > 0 {
		left = slices.DeleteFunc(left, func(namespace string) bool {
			made, err := p.ensureVolumes(ctx, namespace)
			if err != nil && ctx.Err() == nil {
				p.log.WarnContext(ctx, "make the schedules of volumes", "error", fmt.Errorf("namespace %s: %w", namespace, err))
			}
			return made && err == nil
		})
		select {
		case <-time.After(lookForSnapshots):
		case <-ctx.Done():
		}
	}
	<-ctx.Done()
	return nil
}
