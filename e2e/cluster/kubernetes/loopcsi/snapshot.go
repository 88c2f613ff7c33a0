package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// CreateSnapshot copies a volume as it is. Asked again, it finds the copy.
func (d *driver) CreateSnapshot(ctx context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	id := r.GetName()
	if !validID.MatchString(id) {
		return nil, status.Errorf(codes.InvalidArgument, "name %q: use a-z, 0-9, . and -", id)
	}
	d.work.Lock()
	defer d.work.Unlock()
	var s snapshot
	found, err := read(d.disk.snapshots(), id, &s)
	if err != nil {
		return nil, internal(err)
	}
	if found && s.Volume != r.GetSourceVolumeId() {
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s exists, of volume %s", id, s.Volume)
	}
	if !found {
		if s, err = d.take(ctx, id, r); err != nil {
			return nil, err
		}
	}
	shown, err := d.shown(s)
	if err != nil {
		return nil, internal(err)
	}
	return &csi.CreateSnapshotResponse{Snapshot: shown}, nil
}

func (d *driver) take(ctx context.Context, id string, r *csi.CreateSnapshotRequest) (snapshot, error) {
	var v volume
	if found, err := read(d.disk.volumes(), r.GetSourceVolumeId(), &v); err != nil || !found {
		return snapshot{}, missing("volume", r.GetSourceVolumeId(), err)
	}
	from, to := image(d.disk.volumes(), v.ID), image(d.disk.snapshots(), id)
	mounted, err := d.mountOf(from)
	if err != nil {
		return snapshot{}, internal(err)
	}
	if err := copyImage(ctx, to+".new", from, mounted); err != nil {
		return snapshot{}, internal(err)
	}
	s := snapshot{ID: id, Volume: v.ID, Claim: v.Object, FS: v.FS, Bytes: v.Bytes, At: time.Now()}
	if names := r.GetParameters(); names["csi.storage.k8s.io/volumesnapshot/name"] != "" {
		s.Object = names["csi.storage.k8s.io/volumesnapshot/namespace"] + "/" + names["csi.storage.k8s.io/volumesnapshot/name"]
	}
	return s, internal(errors.Join(os.Rename(to+".new", to), write(d.disk.snapshots(), id, s)))
}

// shown is a snapshot as the cluster sees it: ready, unless a switch says otherwise.
func (d *driver) shown(s snapshot) (*csi.Snapshot, error) {
	switches, err := d.rules("CreateSnapshot", []string{s.Object, s.Claim})
	if err != nil {
		return nil, err
	}
	return &csi.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.Volume, SizeBytes: s.Bytes,
		CreationTime: timestamppb.New(s.At), ReadyToUse: !switches.NotReady,
	}, nil
}

// DeleteSnapshot removes a snapshot. Volumes made from it are copies and need it no more.
func (d *driver) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	return &csi.DeleteSnapshotResponse{}, internal(remove(d.disk.snapshots(), r.GetSnapshotId()))
}

// ListSnapshots lists all, those of one volume, or one.
func (d *driver) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	all, err := list[snapshot](d.disk.snapshots())
	if err != nil {
		return nil, internal(err)
	}
	all = slices.DeleteFunc(all, func(s snapshot) bool {
		return r.GetSnapshotId() != "" && r.GetSnapshotId() != s.ID || r.GetSourceVolumeId() != "" && r.GetSourceVolumeId() != s.Volume
	})
	slices.SortFunc(all, func(a, b snapshot) int { return strings.Compare(a.ID, b.ID) })
	first := 0
	if token := r.GetStartingToken(); token != "" {
		if first, err = strconv.Atoi(token); err != nil || first < 0 || first > len(all) {
			return nil, status.Errorf(codes.Aborted, "starting_token %q is not one of ours", token)
		}
	}
	end, next := len(all), ""
	if most := int(r.GetMaxEntries()); most > 0 && first+most < end {
		end = first + most
		next = strconv.Itoa(end)
	}
	answer := &csi.ListSnapshotsResponse{NextToken: next}
	for _, s := range all[first:end] {
		shown, err := d.shown(s)
		if err != nil {
			return nil, internal(err)
		}
		answer.Entries = append(answer.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: shown})
	}
	return answer, nil
}
